package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
)

// keptCheckpoints is how many checkpoints of a pipeline are remembered.
const keptCheckpoints = 1000

// history are the checkpoints of a pipeline that have ended, across restarts of the
// daemon: a file with a line for each, the newest last.
type history struct {
	path string
	list []checkpoint.AttemptStats // oldest first
	// lines are in the file; it is written anew once there are twice as many as are kept.
	lines int
}

func (s *store) historyOf(name string) (*history, error) {
	h := &history{path: filepath.Join(s.dir, name+".checkpoints.jsonl")}
	f, err := os.Open(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("read the history of checkpoints: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	whole := 0
	for lines.Scan() {
		var one checkpoint.AttemptStats
		if json.Unmarshal(lines.Bytes(), &one) == nil { // a crash can leave a part of a line
			h.list = append(h.list, one)
			whole++
		}
		h.lines++
	}
	h.list = h.list[max(0, len(h.list)-keptCheckpoints):]
	if err := lines.Err(); err != nil {
		return h, fmt.Errorf("read the history of checkpoints: %w", err)
	}
	if whole < h.lines {
		return h, h.rewrite() // the next line would be appended to the part
	}
	return h, nil
}

// add remembers checkpoints that have ended, oldest first.
func (h *history) add(list []checkpoint.AttemptStats) error {
	h.list = append(h.list, list...)
	h.list = slices.Clone(h.list[max(0, len(h.list)-keptCheckpoints):])
	if h.lines+len(list) > 2*keptCheckpoints {
		return h.rewrite()
	}
	data, err := linesOf(list)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	h.lines += len(list)
	return errors.Join(err, f.Close())
}

func (h *history) rewrite() error {
	data, err := linesOf(h.list)
	if err != nil {
		return err
	}
	h.lines = len(h.list)
	return writeDurably(h.path, data, 0o600)
}

func linesOf(list []checkpoint.AttemptStats) ([]byte, error) {
	var out []byte
	for i := range list {
		line, err := json.Marshal(&list[i])
		if err != nil {
			return nil, err
		}
		out = append(append(out, line...), '\n')
	}
	return out, nil
}

// remove forgets all of it.
func (h *history) remove() error {
	h.list, h.lines = nil, 0
	if err := os.Remove(h.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// earlier are those triggered before a time, newest first, but for those in recent.
func (h *history) earlier(recent []checkpoint.AttemptStats) []checkpoint.AttemptStats {
	seen := map[checkpoint.ID]bool{}
	for i := range recent {
		seen[recent[i].ID] = true
	}
	out := make([]checkpoint.AttemptStats, 0, len(h.list))
	for i := range slices.Backward(h.list) {
		if !seen[h.list[i].ID] {
			out = append(out, h.list[i])
		}
	}
	return out
}

// remember takes over the checkpoints of a run that have ended since the last time, and
// tells of them.
func (u *unit) remember(r *run, stats *checkpoint.Stats) {
	u.past.Lock()
	defer u.past.Unlock()
	var fresh []checkpoint.AttemptStats
	for i := range slices.Backward(stats.History) {
		h := stats.History[i]
		ended := h.Status == checkpoint.Completed || h.Status == checkpoint.Failed || h.Status == checkpoint.Subsumed
		if !ended || h.Triggered.Before(r.began) || r.told[h.ID] {
			continue
		}
		r.told[h.ID] = true
		fresh = append(fresh, h)
		u.tellCheckpoint(r, &h)
	}
	if len(fresh) == 0 || u.past.history == nil {
		return
	}
	if err := u.past.add(fresh); err != nil {
		u.d.log.Warn("the history of checkpoints could not be written", pipelineKey, u.name, "err", err)
	}
}

// tellCheckpoint tells of checkpoints that fail, and of the first one that does not.
func (u *unit) tellCheckpoint(r *run, h *checkpoint.AttemptStats) {
	switch h.Status {
	case checkpoint.Completed:
		if !r.completes {
			u.tell("checkpoint", levelInfo, fmt.Sprintf("checkpoint %d completed in %s, %d bytes", h.ID.Number, h.Duration.Round(time.Millisecond), h.Size), "")
		}
		r.completes = true
	case checkpoint.Failed:
		r.completes = false
		u.tell("checkpoint_failed", levelWarning, fmt.Sprintf("checkpoint %d failed: %s", h.ID.Number, firstLine(h.Failure)), "")
	default:
	}
}

// pastCheckpoints is the history with its lock.
type pastCheckpoints struct {
	sync.Mutex
	*history
}
