package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// checkpointRun is one line of the table of checkpoints.
type checkpointRun struct {
	backend, store string
	taken          taken
	restored       restored
}

// pauseGoal is the longest that processing may stand still at a barrier, in milliseconds.
const pauseGoal = 50

// measureCheckpoints takes and restores checkpoints of much state with both backends, in
// each store.
func measureCheckpoints(ctx context.Context, o options, dir string) ([]checkpointRun, error) {
	var out []checkpointRun
	for _, store := range o.stores(dir) {
		for _, backend := range []string{"memory", "disk"} {
			r := checkpointRun{backend: backend, store: store.name}
			if !strings.Contains("checkpoint-"+r.backend+"-"+r.store, o.only) {
				continue
			}
			address := store.address + "/" + backend + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
			args := []string{"-backend", backend, "-storage", address, "-dir", filepath.Join(dir, "state"), "-keys", strconv.FormatInt(o.state/keyBytes, 10)}
			if err := child(ctx, &r.taken, takeCommand, args); err != nil {
				return nil, fmt.Errorf("take a checkpoint with %s in %s: %w", backend, store.name, err)
			}
			if err := child(ctx, &r.restored, restoreCommand, args); err != nil {
				return nil, fmt.Errorf("restore a checkpoint with %s from %s: %w", backend, store.name, err)
			}
			fmt.Fprintf(os.Stderr, "checkpoint-%s-%s: %d MB, pause %.0f ms, %.0f MB/s against %.0f bare, restored in %.1f s\n", backend, store.name,
				r.taken.Bytes/1e6, r.taken.Pause, r.taken.Quiet, r.taken.Bare, r.restored.Seconds)
			out = append(out, r)
		}
	}
	return out, nil
}

// place is where checkpoints are kept.
type place struct{ name, address string }

// stores are the places that are measured: a local folder, and a bucket if there is one.
func (o options) stores(dir string) []place {
	out := []place{{"file", "file://" + filepath.Join(dir, "checkpoints")}}
	if o.bucket != "" {
		out = append(out, place{"s3", strings.TrimSuffix(o.bucket, "/") + "/bench"})
	}
	return out
}

// child runs a subcommand of this program in a process of its own and reads what it measured.
func child(ctx context.Context, into any, command string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{command}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, lastLines(stderr.Bytes()))
	}
	return json.Unmarshal(stdout.Bytes(), into)
}

// checkpointTable is the table of checkpoints, which is Markdown too, and how many goals are missed.
func checkpointTable(runs []checkpointRun, state int64) (table string, missed int) {
	if len(runs) == 0 {
		return "", 0
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n| checkpoint of %d MiB | stored MB | pause at the barrier ms (longest gap before, while written) | sync ms | records/s beside it | upload MB/s | bare | restore s | CPU s | bare | peak MiB | restoring |\n", state>>20)
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range runs {
		t, re := r.taken, r.restored
		pause := fmt.Sprintf("%.0f (%.0f, %.0f)", t.Pause, t.Gap, t.Longest)
		if t.Pause > pauseGoal {
			pause += " (over)"
			missed++
		}
		fmt.Fprintf(&b, "| %s, %s | %d | %s | %.1f | %.0f of %.0f | %.0f | %.0f | %.1f | %.1f | %.1f, CPU %.1f | %d | %d |\n", r.backend, r.store, t.Bytes/1e6,
			pause, t.Sync, t.Beside, t.Rate, t.Quiet, t.Bare, re.Seconds, re.CPU, re.Bare, re.BareCPU, t.PeakRSS>>20, re.PeakRSS>>20)
	}
	return b.String(), missed
}
