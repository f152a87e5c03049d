package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
)

func (a *app) reloadCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "reload",
		Short: "Has a daemon read its folder of pipelines again",
		Long: `Has a daemon read its folder of pipelines again, as SIGHUP does: new files start, those of removed ones stop with a checkpoint, and
changed ones switch at a checkpoint. One that is invalid is refused, and one that does not start is rolled back: what ran before goes on. Prints
what became of each pipeline; the exit code is 1 where a change was not taken over.`,
		Example: `  etl reload
  etl reload --server https://etl.example.com:8080 --token-file ~/.etl-token`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.reload(c.Context()) },
	}
	return a.reaches(c)
}

func (a *app) reload(ctx context.Context) error {
	client, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	r, err := client.Reload(ctx)
	if err != nil {
		return answerError(err)
	}
	if err := a.printReload(r); err != nil {
		return err
	}
	if !r.OK {
		return &codeError{code: exitFailed, err: errors.New("not everything was taken over"), shown: a.json}
	}
	return nil
}

func (a *app) printReload(r *api.Reload) error {
	if a.json {
		return a.encode(r)
	}
	if len(r.Pipelines) == 0 {
		_, err := fmt.Fprintln(a.out, "the folder holds no pipelines")
		return err
	}
	t := &grid{heading: []string{"NAME", "RESULT"}}
	for _, name := range slices.Sorted(maps.Keys(r.Pipelines)) {
		t.add(plain(name), plain(r.Pipelines[name]))
	}
	return a.printLines(t.lines("", a.paint()))
}

// daemon is the one daemon that there is: that at the address, or the one of this user
// that serves a folder.
func (a *app) daemon(ctx context.Context) (*web.Client, error) {
	processes, err := a.processes(ctx)
	var found *web.Client
	for _, p := range processes {
		d, asked := p.client.Daemon(ctx)
		switch {
		case asked != nil:
			err = answerError(asked)
		case d.Folder == "":
		case found != nil:
			return nil, usageError(errors.New("several daemons of this user run: name one by --server, or its runtime_dir by ETL_RUNTIME_DIR"))
		default:
			found = p.client
		}
	}
	switch {
	case found != nil:
		return found, nil
	case err != nil:
		return nil, err
	}
	return nil, failed(fmt.Errorf("no daemon of this user serves a folder; looked in %s: start one by etl serve, or name another one by --server", a.where()))
}
