package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/storage"
)

func (a *app) checkpointCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "Lists, shows, verifies, compares and removes checkpoints on storage, without a daemon",
		Long: `Works on checkpoints where they are kept, without a daemon; one may be running.
A checkpoint is named by its folder or its _metadata: a local path, or a URL such as s3://bucket/prefix/orders/4f1c…/chk-860.`,
		Example: "  etl checkpoint list orders.yaml\n  etl checkpoint verify file:///var/lib/etl/orders/4f1c…/chk-860",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.checkpointListCommand(), a.checkpointInspectCommand(), a.checkpointVerifyCommand(),
		a.checkpointDiffCommand(), a.checkpointRmCommand(), a.checkpointGCCommand(), a.triggerCommand())
	return c
}

// storeOf opens the store that a pipeline file or a pipeline's folder names. The
// pipeline is nil where it is a folder.
func (a *app) storeOf(name string) (*checkpoint.Store, *spec.Pipeline, error) {
	address, pipe := path.Dir(strings.TrimRight(name, "/")), path.Base(strings.TrimRight(name, "/"))
	if i := strings.Index(name, "://"); i >= 0 {
		address = strings.TrimSuffix(strings.TrimRight(name, "/"), "/"+pipe)
	}
	var file *spec.Pipeline
	if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		plan, err := a.load(name, nil)
		if err != nil {
			return nil, nil, err
		}
		file = plan.Spec
		address, pipe = file.Checkpoint.Storage, file.Name
		if address == "" {
			return nil, nil, usageError(fmt.Errorf("%s keeps its checkpoints in memory: it has no checkpoint.storage", name))
		}
	}
	fs, err := storage.Open(address)
	if err != nil {
		return nil, nil, usageError(err)
	}
	s, err := checkpoint.NewStore(fs, pipe, checkpoint.StoreOptions{Log: a.log})
	if err != nil {
		return nil, nil, usageError(err)
	}
	return s, file, nil
}

// printAs prints v as JSON where that is asked for, and otherwise what text writes,
// in columns.
func (a *app) printAs(v any, text func(w *tabwriter.Writer)) error {
	if a.json {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	}
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	text(w)
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(a.out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func failed(err error) error { return &codeError{code: exitFailed, err: err} }

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 4 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}

// many is a number with its noun.
func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
