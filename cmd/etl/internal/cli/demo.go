package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/cmd/etl/internal/demo"
)

// demoDeadline ends a demo that does not get to its end.
const demoDeadline = 3 * time.Minute

func (a *app) demoCommand() *cobra.Command {
	opts := demo.Options{Records: 120_000, Rate: 12_000}
	c := &cobra.Command{
		Use:     "demo",
		Short:   "Shows exactly-once over a crash, with a broker of its own and no services",
		Example: "  etl demo --once",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return a.demo(ctx, opts)
		},
	}
	c.Flags().BoolVar(&opts.Once, "once", false, "end when every record is checked; exit 0 only if all came out exactly once")
	return c
}

func (a *app) demo(ctx context.Context, opts demo.Options) error {
	program, err := os.Executable()
	if err != nil {
		return &codeError{code: exitFailed, err: fmt.Errorf("find this program: %w", err)}
	}
	opts.Program, opts.Out = program, a.out
	if opts.Once {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, demoDeadline)
		defer cancel()
	}
	if err := demo.Run(ctx, opts); err != nil {
		return &codeError{code: exitFailed, err: err}
	}
	return nil
}
