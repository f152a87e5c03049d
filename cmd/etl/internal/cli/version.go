package cli

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Prints the program's version",
		Example: "  etl version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return json.NewEncoder(a.out).Encode(map[string]any{
					"version": a.version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
					"checkpoint_format": checkpoint.FormatVersion,
				})
			}
			_, err := fmt.Fprintf(a.out, "etl %s, %s, %s/%s, checkpoint format %d\n",
				a.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, checkpoint.FormatVersion)
			return err
		},
	}
}
