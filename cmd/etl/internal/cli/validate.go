package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

func (a *app) validateCommand() *cobra.Command {
	var set []string
	c := &cobra.Command{
		Use:     "validate FILE...",
		Short:   "Checks pipeline files and reports every fault with its place",
		Example: "  etl validate pipelines/*.yaml",
		Args:    wantFiles,
		RunE:    func(_ *cobra.Command, files []string) error { return a.validate(files, set) },
	}
	c.Flags().StringArrayVar(&set, "set", nil, "override a key of the files")
	return c
}

// validate checks files without opening anything that they name.
func (a *app) validate(files, set []string) error {
	all := spec.Diagnostics{}
	for _, file := range files {
		p, _ := spec.Load(file, spec.Options{Set: set})
		pipeline.NewPlan(p)
		all = append(all, p.Diagnostics()...)
	}
	if a.json {
		if err := json.NewEncoder(a.out).Encode(struct {
			OK          bool             `json:"ok"`
			Files       int              `json:"files"`
			Diagnostics spec.Diagnostics `json:"diagnostics"`
		}{!all.HasErrors(), len(files), all}); err != nil {
			return err
		}
	} else if err := all.Print(a.err, a.color()); err != nil {
		return err
	}
	if all.HasErrors() {
		return &codeError{code: exitUsage, err: fmt.Errorf("%d files checked, some are not valid", len(files)), shown: true}
	}
	if !a.json {
		what := "1 file is valid"
		if len(files) > 1 {
			what = fmt.Sprintf("%d files are valid", len(files))
		}
		_, err := fmt.Fprintln(a.out, what)
		return err
	}
	return nil
}
