// Package cli is the commands of the program, one file each.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/cmd/etl/internal/daemon"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format/registry"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// The exit codes.
const (
	exitFine   = 0
	exitFailed = 1 // it did not work; trying again may help
	exitUsage  = 2 // wrong use, or an invalid file
	exitPerson = 3 // somebody has to act before it can go on
	exitFenced = 4 // a newer process has taken the pipeline over
)

// codeError is an error with its exit code. Its text has been printed already if shown.
type codeError struct {
	code  int
	err   error
	shown bool
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

func usageError(err error) error { return &codeError{code: exitUsage, err: err} }

// app is what the commands have in common.
type app struct {
	version  string
	out, err io.Writer
	settings daemon.Settings
	log      *slog.Logger

	configFile string
	logLevel   string
	logFormat  string
	json       bool
	remote     remote
}

// Main runs the program with its arguments and returns the exit code.
func Main(version string, args []string) int {
	a := &app{version: version, out: os.Stdout, err: os.Stderr}
	return a.run(context.Background(), args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitFine
	}
	var coded *codeError
	if !errors.As(err, &coded) {
		coded = &codeError{code: exitUsage, err: err}
	}
	if !coded.shown {
		_, _ = fmt.Fprintln(a.err, "error:", coded.err)
	}
	return coded.code
}

// exitOf is the exit code for how a pipeline ended.
func exitOf(err error) int {
	switch {
	case err == nil:
		return exitFine
	case errors.Is(err, connectors.ErrFenced):
		return exitFenced
	case connectors.IsPermanent(err):
		return exitPerson
	}
	return exitFailed
}

func (a *app) root() *cobra.Command {
	c := &cobra.Command{
		Use:           "etl",
		Short:         "Streaming ETL, driven by configuration, exactly once",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			return a.configure(c)
		},
	}
	f := c.PersistentFlags()
	f.StringVar(&a.configFile, "config", "", "settings file (default: none); see configs/etl.yaml")
	f.StringVar(&a.logLevel, "log-level", "", "debug, info, warn or error")
	f.StringVar(&a.logFormat, "log-format", "", "text or json")
	f.BoolVar(&a.json, "json", false, "print results as JSON")
	c.AddCommand(a.runCommand(), a.serveCommand(), a.validateCommand(), a.planCommand(), a.doctorCommand(), a.demoCommand(), a.checkpointCommand(), a.savepointCommand(), a.stopCommand(), a.cancelCommand(), a.stateCommand(), a.txnCommand(), a.dlqCommand(), a.listCommand(), a.explainCommand(), a.versionCommand())
	c.AddCommand(a.psCommand(), a.statusCommand(), a.topCommand(), a.tapCommand(), a.logsCommand(), a.eventsCommand(), a.startCommand(), a.pauseCommand(), a.resumeCommand(), a.restartCommand(), a.skipCommand(), a.reloadCommand(), a.manCommand())
	completeFiles(c)
	completionExamples(c)
	c.InitDefaultHelpCmd()
	if help, _, err := c.Find([]string{"help"}); err == nil {
		help.Short = "Shows the help of a command"
	}
	return c
}

// wantFiles refuses a command line without a file.
func wantFiles(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name at least one pipeline file, such as pipeline.yaml")
	}
	return nil
}

// settingFlags are the settings that flags of a command give, by key.
func settingFlags(c *cobra.Command) map[string]string {
	flags := map[string]string{}
	for flag, key := range map[string]string{"log-level": "log.level", "log-format": "log.format", "memory": "memory", "state-dir": "state_dir"} {
		if f := c.Flags().Lookup(flag); f != nil && f.Changed {
			flags[key] = f.Value.String()
		}
	}
	return flags
}

// configure reads the settings: defaults, file, environment, flags.
func (a *app) configure(c *cobra.Command) error {
	s, err := daemon.LoadSettings(a.configFile, settingsOnly(os.Environ()), settingFlags(c))
	if err != nil {
		return usageError(err)
	}
	a.settings = s
	a.log = s.Logger(a.err)
	return nil
}

// load reads a pipeline file, cuts it into a plan, and prints what is wrong with it.
func (a *app) load(path string, set []string) (*pipeline.Plan, error) {
	p, _ := spec.Load(path, spec.Options{Set: set, ReadSchema: registry.Read})
	plan := pipeline.NewPlan(p)
	faults := p.Diagnostics()
	if len(faults) > 0 {
		if err := faults.Print(a.err, a.color()); err != nil {
			return nil, err
		}
	}
	if faults.HasErrors() {
		return nil, &codeError{code: exitUsage, err: fmt.Errorf("%s is not valid", path), shown: true}
	}
	return plan, nil
}

// color reports whether messages go to a terminal that wants colour.
func (a *app) color() bool { return terminal(a.err) }

// stopSignals closes stop at the first SIGTERM or SIGINT and ends the process at the second.
func stopSignals(log *slog.Logger) (stop chan struct{}, release func()) {
	stop = make(chan struct{})
	ch := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		select {
		case s := <-ch:
			log.Info("stopping after a last checkpoint; a second signal ends at once", "signal", s.String())
			close(stop)
		case <-done:
			return
		}
		select {
		case s := <-ch:
			log.Warn("ended at once by a second signal; the next start goes on from the last checkpoint", "signal", s.String())
			os.Exit(128 + int(s.(syscall.Signal)))
		case <-done:
		}
	}()
	return stop, func() {
		signal.Stop(ch)
		close(done)
	}
}
