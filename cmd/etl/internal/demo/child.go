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
	exited chan error
}

func (s *show) log() string { return filepath.Join(s.dir, "run.log") }

// start runs the pipeline in a process of its own.
func (s *show) start(ctx context.Context) (*child, error) {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the pipeline's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.opts.Program, "run", s.file) //nolint:gosec // this program itself
	cmd.Env = append(os.Environ(), "DEMO_BROKER="+s.broker, "DEMO_DIR="+s.dir)
	cmd.Stdout, cmd.Stderr = log, log
	// Ctrl-C on the terminal is for the demo, which then stops the pipeline.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the pipeline: %w", err)
	}
	c := &child{cmd: cmd, exited: make(chan error, 1)}
	go func() { c.exited <- cmd.Wait() }()
	s.say("  etl run %s, process %d", s.file, cmd.Process.Pid)
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends the process as a crash would.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// stop asks the process to end and waits for it.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-c.exited:
		if err != nil {
			return fmt.Errorf("the pipeline did not end well: %w", err)
		}
		return nil
	case <-time.After(45 * time.Second):
		c.kill()
		return errors.New("the pipeline did not end in 45 s")
	}
}
