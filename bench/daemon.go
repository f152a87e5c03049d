package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// daemonName chooses the measurement of a daemon in -only.
const daemonName = "daemon"

const (
	idleWarm = 30 * time.Second // until pools, caches and the first checkpoints are as they stay
	idleTime = 2 * time.Minute  // that is measured

	idleGoalCPU    = 5  // percent of a core, for all pipelines
	idleGoalMemory = 10 // MiB for each pipeline beyond the first
)

// daemonRun is what a daemon with so many idle pipelines takes.
type daemonRun struct {
	pipelines int
	cpu       float64 // percent of a core
	rss       float64 // MiB
}

// measureDaemon runs `etl serve` with one pipeline and with o.pipelines, which read
// topics that nobody writes to and take checkpoints all the while.
func measureDaemon(ctx context.Context, o options, dir string) (runs []daemonRun, err error) {
	broker, err := newBroker(o.brokers)
	if err != nil {
		return nil, err
	}
	defer broker.close()
	for _, n := range []int{1, o.pipelines} {
		r, err := idleDaemon(ctx, o, broker, filepath.Join(dir, fmt.Sprintf("%s-%d", daemonName, n)), n)
		if err != nil {
			return nil, fmt.Errorf("a daemon with %d pipelines: %w", n, err)
		}
		fmt.Fprintf(os.Stderr, "daemon with %d idle pipelines: %.2f%% of a core, %.0f MiB\n", n, r.cpu, r.rss)
		runs = append(runs, r)
	}
	return runs, nil
}

func idleDaemon(ctx context.Context, o options, b *broker, dir string, n int) (r daemonRun, err error) {
	if err := idleFolder(ctx, o, b, dir, n); err != nil {
		return r, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, o.etl, "serve", filepath.Join(dir, "pipelines"), "--state-dir", filepath.Join(dir, "state"))
	cmd.Env = append(os.Environ(), "ETL_HTTP__LISTEN="+address, "ETL_RUNTIME_DIR="+dir, "ETL_LOG__LEVEL=warn")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return r, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if werr := cmd.Wait(); err == nil {
			err = werr
		}
	}()
	if err := awaitRunning(ctx, address, n); err != nil {
		return r, err
	}
	if err := pause(ctx, idleWarm); err != nil {
		return r, err
	}
	before, began := cpuOf(cmd.Process.Pid), time.Now()
	if err := pause(ctx, idleTime); err != nil {
		return r, err
	}
	took := time.Since(began)
	return daemonRun{n, 100 * (cpuOf(cmd.Process.Pid) - before).Seconds() / took.Seconds(), rssOf(cmd.Process.Pid)}, nil
}

// idleFolder writes the pipelines, each with topics of its own.
func idleFolder(ctx context.Context, o options, b *broker, dir string, n int) error {
	text, err := os.ReadFile(filepath.Join(o.workloads, "idle.yaml"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "pipelines"), 0o755); err != nil {
		return err
	}
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := range n {
		id := fmt.Sprintf("%s-%d", run, i)
		in, out := "bench-idle-in-"+id, "bench-idle-out-"+id
		for _, topic := range []string{in, out} {
			if err := b.createTopic(ctx, topic); err != nil {
				return err
			}
		}
		file := strings.NewReplacer("${BENCH_RUN}", id, "${KAFKA_BROKERS}", o.brokers[0], "${BENCH_TOPIC}", in, "${BENCH_OUT}", out, "${BENCH_DIR}", dir).Replace(string(text))
		if err := os.WriteFile(filepath.Join(dir, "pipelines", id+".yaml"), []byte(file), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String(), nil
}

// awaitRunning waits until n pipelines run and have taken a checkpoint.
func awaitRunning(ctx context.Context, address string, n int) error {
	for {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/pipelines", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // it does not listen yet
		}
		var all []struct {
			State      string `json:"state"`
			Failure    string `json:"failure"`
			Checkpoint *struct{}
		}
		err = json.NewDecoder(resp.Body).Decode(&all)
		_ = resp.Body.Close()
		if err != nil {
			return fmt.Errorf("read the pipelines: %w", err)
		}
		ready := 0
		for _, p := range all {
			if p.State == "failed" || p.State == "invalid" {
				return fmt.Errorf("a pipeline is %s: %s", p.State, p.Failure)
			}
			if p.State == "running" && p.Checkpoint != nil {
				ready++
			}
		}
		if ready == n {
			return nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cpuOf is the processor time that a running process has taken, user and system.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	const tick = time.Second / 100 // of Linux's user space, everywhere
	return time.Duration(user+system) * tick
}

// rssOf is the memory that a running process holds, in MiB.
func rssOf(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseFloat(fields[0], 64)
	return kib / 1024
}

// daemonTable writes the table of idle daemons, and gives how many goals are missed.
func daemonTable(runs []daemonRun) (table string, missed int) {
	if len(runs) < 2 {
		return "", 0
	}
	one, many := runs[0], runs[1]
	each := (many.rss - one.rss) / float64(max(many.pipelines-one.pipelines, 1))
	mark := func(v, goal float64, unit string) string {
		if v < goal {
			return fmt.Sprintf("%.2f%s", v, unit)
		}
		missed++
		return fmt.Sprintf("%.2f%s (over)", v, unit)
	}
	var b strings.Builder
	b.WriteString("\n| idle daemon | CPU, of a core | goal | memory MiB | MiB for each beyond the first | goal |\n|---|---|---|---|---|---|\n")
	fmt.Fprintf(&b, "| 1 pipeline | %.2f%% | | %.0f | | |\n", one.cpu, one.rss)
	fmt.Fprintf(&b, "| %d pipelines | %s | %d%% | %.0f | %s | %d |\n", many.pipelines, mark(many.cpu, idleGoalCPU, "%"), idleGoalCPU, many.rss, mark(each, idleGoalMemory, ""), idleGoalMemory)
	return b.String(), missed
}
