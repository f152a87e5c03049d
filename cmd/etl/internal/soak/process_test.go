//go:build integration

package soak

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// etl is the program under test, built with its named crash points.
var etl string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "etl-soak-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		etl = filepath.Join(dir, "etl")
		build := exec.Command("go", "build", "-buildvcs=false", "-tags", "failpoint", "-o", etl, "github.com/sluice-etl/sluice/cmd/etl")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, out)
			return 1
		}
		defer func() {
			_ = ownKafka("clean")
			_ = ownHDFS("clean")
		}()
		return m.Run()
	}())
}

// process is one life of the program.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	code   int // after exited is closed: the exit code, or killed
}

// killed is the code of a process that a signal ended.
const killed = -1

// start runs the pipeline file in a new process. Further arguments follow it,
// those with = before any - are variables.
func (j *job) start(t *testing.T, args ...string) *process {
	t.Helper()
	return j.startCommand(t, []string{"run", j.file}, args...)
}

// startCommand runs another command in a new process.
func (j *job) startCommand(t *testing.T, command []string, args ...string) *process {
	t.Helper()
	j.lives++
	p := &process{t: t, log: filepath.Join(j.dir, fmt.Sprintf("etl-%d.log", j.lives)), exited: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(etl, command...)
	p.cmd.Env = append(os.Environ(), j.env...)
	for _, a := range args {
		if i := strings.IndexByte(a, '='); i > 0 && a[0] != '-' {
			p.cmd.Env = append(p.cmd.Env, a)
		} else {
			p.cmd.Args = append(p.cmd.Args, a)
		}
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		defer out.Close()
		err := p.cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) || err == nil {
			p.code = p.cmd.ProcessState.ExitCode()
		}
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.exited
	})
	return p
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// pause stops the process with SIGSTOP, and returns once none of its threads does
// anything any more.
func (p *process) pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	p.until(patience, "it stood still", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		for _, name := range threads {
			text, readErr := os.ReadFile(name)
			_, state, _ := bytes.Cut(text, []byte(") "))
			if readErr != nil || !bytes.HasPrefix(state, []byte("T")) {
				return false
			}
		}
		return err == nil && len(threads) > 0
	})
}

// killAfter lets the process run for a while and kills it with SIGKILL. It
// reports whether it was still alive then.
func (p *process) killAfter(d time.Duration) bool {
	p.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return false
	case <-timer.C:
		p.signal(syscall.SIGKILL)
		<-p.exited
		return p.code == killed
	}
}

// begun reports whether the process has chosen what to restore.
func (p *process) begun() bool {
	text, err := os.ReadFile(p.log)
	return err == nil && (bytes.Contains(text, []byte("msg=restoring")) || bytes.Contains(text, []byte("starting fresh")))
}

// wait waits for the process to end by itself and checks its exit code.
func (p *process) wait(within time.Duration, want int) {
	p.t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.exited:
		if p.code != want {
			p.t.Fatalf("exit code %d, want %d (%d is a signal)\n%s", p.code, want, killed, p.tail())
		}
	case <-timer.C:
		p.t.Fatalf("it still runs after %v\n%s", within, p.tail())
	}
}

// end stops the process in peace, once it has begun.
func (p *process) end() {
	p.t.Helper()
	p.until(patience, "it had begun", p.begun)
	p.signal(syscall.SIGTERM)
	p.wait(patience, 0)
}

// until waits until ok holds, as long as the process lives. A process that hangs
// is asked for its goroutines.
func (p *process) until(within time.Duration, what string, ok func() bool) {
	p.t.Helper()
	p.poll(within, 20*time.Millisecond, what, ok)
}

// poll is until, asking less often, where that is dear.
func (p *process) poll(within, every time.Duration, what string, ok func() bool) {
	p.t.Helper()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	deadline := time.After(within)
	for !ok() {
		select {
		case <-ticker.C:
		case <-p.exited:
			p.t.Fatalf("it ended with exit code %d before %s\n%s", p.code, what, p.tail())
		case <-deadline:
			p.signal(syscall.SIGQUIT)
			<-p.exited
			p.t.Fatalf("not within %v: %s\n%s", within, what, p.tail())
		}
	}
}

// tail is the end of what the process printed.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const keep = 4000
	if len(text) > 8*keep {
		text = slices.Concat(text[:4*keep], []byte("\n…\n"), text[len(text)-4*keep:])
	}
	return string(text)
}

// eventually waits until ok holds.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(within)
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
