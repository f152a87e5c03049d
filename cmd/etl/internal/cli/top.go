package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
)

func (a *app) topCommand() *cobra.Command {
	var once bool
	var every time.Duration
	v := topView{by: 'n'}
	by := "name"
	c := &cobra.Command{
		Use:   "top [PIPELINE]",
		Short: "Shows rates, lag and checkpoints live on the terminal",
		Long: `Shows rates, lag and checkpoints of all pipelines live on the terminal, and of one its steps: what goes in and out of each in a
second, and how its tasks spend their time. The letters in the heading sort by a column, again the other way round; the arrows choose a pipeline,
Enter opens it and Escape goes back; q ends. Without a terminal, or with --once, it is printed once.`,
		Example: `  etl top
  etl top orders
  etl top --once --sort lag`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			key, ok := topColumns[by]
			switch {
			case !ok:
				return usageError(errors.New("--sort is name, state, read, written, lag or checkpoint"))
			case every <= 0:
				return usageError(errors.New("--every must be above 0s"))
			}
			v.by = key
			if len(args) > 0 {
				v.open = args[0]
			}
			return a.top(c.Context(), &v, every, once)
		},
	}
	f := c.Flags()
	f.BoolVar(&once, "once", false, "print it once")
	f.StringVar(&by, "sort", by, "name, state, read, written, lag or checkpoint")
	f.DurationVar(&every, "every", time.Second, "how often it is shown anew, and what rates of steps are measured over")
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions([]string{"name", "state", "read", "written", "lag", "checkpoint"}, cobra.ShellCompDirectiveNoFileComp))
	return a.steers(c)
}

// topColumns are the keys that sort, by the names of their columns.
var topColumns = map[string]byte{"name": 'n', "state": 's', "read": 'r', "written": 'w', "lag": 'l', "checkpoint": 'c'}

func (a *app) top(ctx context.Context, v *topView, every time.Duration, once bool) error {
	in, out := os.Stdin, a.out
	screen, ok := out.(*os.File)
	if once || a.json || !ok || !term.IsTerminal(int(screen.Fd())) || !term.IsTerminal(int(in.Fd())) {
		return a.topOnce(ctx, v, every)
	}
	ctx, release := untilSignal(ctx)
	defer release()
	s, err := openScreen(in, screen)
	if err != nil {
		return failed(err)
	}
	defer s.close()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		v.take(a.sampled(ctx, v.open))
		for {
			width, height := s.size()
			s.draw(v.lines(time.Now(), width, height, a.paint()))
			select {
			case <-ctx.Done():
				return nil
			case key, more := <-s.keys:
				if !more || v.press(key) {
					return nil
				}
				continue
			case <-ticker.C:
			}
			break
		}
	}
}

// topOnce prints what top shows, once. Of one pipeline that takes two looks.
func (a *app) topOnce(ctx context.Context, v *topView, every time.Duration) error {
	v.take(a.sampled(ctx, v.open))
	if v.fault != nil {
		return v.fault
	}
	if v.open != "" {
		timer := time.NewTimer(every)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		v.take(a.sampled(ctx, v.open))
		if v.fault != nil {
			return v.fault
		}
	}
	if !a.json {
		return a.printLines(v.lines(time.Now(), 0, 0, a.paint()))
	}
	v.sort()
	if v.open != "" {
		return a.encode(struct {
			Pipeline *api.Pipeline  `json:"pipeline"`
			Steps    []operatorRate `json:"steps"`
		}{v.opened(), v.rates()})
	}
	return a.encode(v.all)
}

// sample is what top has got at one time.
type sample struct {
	all  []api.Pipeline
	flow *flowAt
	err  error
}

// sampled asks for all pipelines, and for what flows through the one that is open.
func (a *app) sampled(ctx context.Context, open string) sample {
	processes, err := a.processes(ctx)
	switch {
	case len(processes) == 0 && err != nil:
		return sample{err: err}
	case len(processes) == 0:
		return sample{err: a.nobody()}
	}
	all, clients := everyPipeline(processes)
	s := sample{all: all}
	if open == "" {
		return s
	}
	client, ok := clients[open]
	if !ok {
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Name
		}
		s.err = a.notFound(open, names)
		return s
	}
	s.flow = flowOf(ctx, client, open)
	return s
}

// flowOf asks what flows; nothing where the pipeline has nothing to tell.
func flowOf(ctx context.Context, client *web.Client, name string) *flowAt {
	flow, err := client.Flow(ctx, name)
	if err != nil {
		return nil
	}
	d, err := client.Describe(ctx, name)
	if err != nil {
		return &flowAt{Flow: flow}
	}
	f := &flowAt{Flow: flow, chain: map[string]string{}}
	for _, o := range d.Operators {
		f.chain[o.Name] = o.Chain
	}
	return f
}
