package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// child is the process that runs the pipeline.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	err    error         // how, once exited is closed
}

func (s *show) log() string { return filepath.Join(s.dir, "run.log") }

// start runs the pipeline in a process of its own.
func (s *show) start(ctx context.Context) (*child, error) {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the pipeline's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.opts.Program, "run", s.file)
	cmd.Env = append(os.Environ(), "DEMO_BROKER="+s.broker, "DEMO_DIR="+s.dir)
	cmd.Stdout, cmd.Stderr = log, log
	// Ctrl-C on the terminal is for the demo, which then stops the pipeline.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the pipeline: %w", err)
	}
	c := &child{cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(c.exited)
		c.err = cmd.Wait()
	}()
	s.say("  etl run %s, process %d", s.file, cmd.Process.Pid)
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends the process as a crash would.
func (c *child) kill() {
	if err := c.cmd.Process.Kill(); err == nil || errors.Is(err, os.ErrProcessDone) {
		<-c.exited
	}
}

// stop asks the process to end and waits for it.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the pipeline: %w", err)
	}
	select {
	case <-c.exited:
		if c.err != nil {
			return fmt.Errorf("the pipeline did not end well: %w", c.err)
		}
		return nil
	case <-time.After(45 * time.Second):
		c.kill()
		return errors.New("the pipeline did not end in 45 s")
	}
}
