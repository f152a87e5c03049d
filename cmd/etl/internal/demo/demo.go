// Package demo shows the program's promise within a minute and without any
// service: a broker inside the process, a pipeline in a second process that is
// killed while it works, and the counts that come out exact all the same.
package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

//go:embed pipeline.yaml
var pipelineYAML []byte

// Options say how the demo is run.
type Options struct {
	Out io.Writer
	// Program is the path of this program, run again for the pipeline.
	Program string
	// Once ends the demo when all records are checked; otherwise it goes on until ctx ends.
	Once bool
	// Records is how many are sent in all, Rate how many a second.
	Records, Rate int
}

const partitions = 4

// Run runs the demo. It returns an error unless every record has come out exactly once.
func Run(ctx context.Context, opts Options) error {
	dir, err := os.MkdirTemp("", "etl-demo-")
	if err != nil {
		return fmt.Errorf("make the demo's folder: %w", err)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "bids", "dear-bids"))
	if err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	defer broker.Close()
	file := filepath.Join(dir, "pipeline.yaml")
	if err := os.WriteFile(file, pipelineYAML, 0o600); err != nil {
		return fmt.Errorf("write the demo's pipeline: %w", err)
	}
	s := &show{opts: opts, dir: dir, broker: broker.ListenAddrs()[0], file: file}
	err = s.play(ctx)
	if err == nil && opts.Once {
		return os.RemoveAll(dir)
	}
	s.say("\nEverything is still there to look at: %s", dir)
	return err
}

// show is a demo in progress.
type show struct {
	opts   Options
	dir    string
	broker string
	file   string
	sent   ledger
}

func (s *show) say(format string, args ...any) { _, _ = fmt.Fprintf(s.opts.Out, format+"\n", args...) }

func (s *show) play(ctx context.Context) error {
	s.say("An embedded broker listens on %s, with the topic bids in %d partitions.", s.broker, partitions)
	s.say("The pipeline, %s:\n\n%s", s.file, pipelineYAML)
	sending, stopSending := context.WithCancel(ctx)
	defer stopSending()
	sent := make(chan error, 1)
	go func() { sent <- s.send(sending) }()

	run, err := s.start(ctx)
	if err != nil {
		return err
	}
	if err := s.watchUntil(ctx, run, func(p progress) bool { return p.files >= s.opts.Records/4 }); err != nil {
		return s.end(run, err)
	}
	s.say("\n  kill -9 %d, in the middle of its work", run.pid())
	run.kill()
	s.say("  the same command again: it goes on from the last checkpoint\n")
	if run, err = s.start(ctx); err != nil {
		return err
	}
	err = s.watchUntil(ctx, run, func(p progress) bool { return p.sent >= s.opts.Records && p.files >= p.sent })
	if err == nil && !s.opts.Once {
		s.say("\nAll records are through. Ctrl-C ends the demo.")
		<-ctx.Done()
	}
	stopSending()
	if sendErr := <-sent; sendErr != nil && !errors.Is(sendErr, context.Canceled) {
		return s.end(run, sendErr)
	}
	if err := s.end(run, err); err != nil {
		return err
	}
	return s.verify(context.WithoutCancel(ctx))
}

// end stops the pipeline as a service manager would, and waits.
func (s *show) end(run *child, err error) error {
	if stopErr := run.stop(); err == nil {
		return stopErr
	}
	return err
}

// watchUntil prints the progress each second until done says so.
func (s *show) watchUntil(ctx context.Context, run *child, done func(progress) bool) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if s.opts.Once {
				return context.Cause(ctx)
			}
			return nil
		case <-run.exited:
			return fmt.Errorf("the pipeline ended by itself: %w; its log is %s", run.err, s.log())
		case <-tick.C:
		}
		p, err := s.progress()
		if err != nil {
			return err
		}
		s.say("  sent %7d   published in files %7d   checkpoints kept %d", p.sent, p.files, p.checkpoints)
		if done(p) {
			return nil
		}
	}
}
