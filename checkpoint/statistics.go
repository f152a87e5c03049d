package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

// What was measured of a checkpoint lies beside its metadata, with the short story of
// the attempts before it, so that it survives restarts. No restore needs it: a file
// that is missing or damaged is no damage of the checkpoint.

const (
	maxStatistics    = 1 << 20   // bytes that are read
	statisticsBudget = 256 << 10 // bytes for what came before
	maxFailure       = 1 << 10   // bytes of a failure's reason that are kept
	leastTask        = 100       // bytes that an entry of a task takes at least
)

// statistics is the document in `_statistics`.
type statistics struct {
	Pipeline   string `json:"pipeline"`
	Job        string `json:"job"`
	Checkpoint ID     `json:"checkpoint"`
	// History has the checkpoint itself first, then those before it, the newest first.
	// Only the checkpoint itself and failed ones have their tasks: completed ones have
	// files of their own.
	History []AttemptStats `json:"history"`
}

// upTo lists e and what ended before it, for `_statistics`.
func (t *tracker) upTo(e *tracked) []AttemptStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := copyStats(&e.AttemptStats)
	list := []AttemptStats{own}
	at := slices.Index(t.history, e)
	for _, p := range slices.Backward(t.history[:max(at, 0)]) {
		if p.Status != InProgress && p.Status != Committing {
			list = append(list, brief(&p.AttemptStats))
		}
	}
	return list
}

func brief(s *AttemptStats) AttemptStats {
	out := copyStats(s)
	if len(out.Failure) > maxFailure {
		out.Failure = strings.ToValidUTF8(out.Failure[:maxFailure], "") + " …"
	}
	if out.Status != Failed {
		out.Tasks = nil
	}
	return out
}

// fit bounds the document: the entries of others share a budget, first all without
// their tasks, the newest first, then the tasks of as many as there is room for. The
// checkpoint's own tasks are left out where they alone are too large.
func (d *statistics) fit() error {
	own := d.History[0]
	n, err := encodedSize(&own)
	if n > maxStatistics/2 {
		own.Tasks = nil
	}
	history := []AttemptStats{own}
	room := statisticsBudget
	for _, e := range d.History[1:] {
		e.Tasks = nil
		short, shortErr := encodedSize(&e)
		if err = errors.Join(err, shortErr); short > room || err != nil {
			break
		}
		room -= short
		history = append(history, e)
	}
	for i := 1; i < len(history); i++ {
		tasks := d.History[i].Tasks
		if len(tasks)*leastTask > room {
			continue // without encoding what may be tens of thousands
		}
		size, sizeErr := encodedSize(tasks)
		if err = errors.Join(err, sizeErr); size <= room {
			room -= size
			history[i].Tasks = tasks
		}
	}
	d.History = history
	return err
}

func encodedSize(v any) (int, error) {
	data, err := json.Marshal(v)
	return len(data) + 1, err
}

// Remember implements Log.
func (j *Job) Remember(ctx context.Context, n uint64, list []AttemptStats) error {
	d := statistics{Pipeline: j.store.pipeline, Job: j.id, Checkpoint: ID{Generation: j.generation, Number: n}, History: list}
	err := d.fit()
	if err != nil {
		return fmt.Errorf("encode the statistics of checkpoint %d: %w", n, err)
	}
	data, err := seal(&d)
	if err != nil {
		return fmt.Errorf("encode the statistics of checkpoint %d: %w", n, err)
	}
	return writeOnce(ctx, j.store.fs, j.dir(n)+"/"+statisticsName, data)
}

// readStatistics reads what lies in the folder of checkpoint n of a job; nil where nothing does.
func readStatistics(ctx context.Context, f storage.FS, dir, job string, n uint64) ([]AttemptStats, error) {
	name := dir + "/" + statisticsName
	data, err := readWhole(ctx, f, name, maxStatistics)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	body, err := unsealed(data)
	var d statistics
	if err == nil {
		// What a newer program adds is passed over: nothing depends on it.
		err = json.Unmarshal(append(slices.Clip(body), '}'), &d)
	}
	if err == nil && (d.Job != job || d.Checkpoint.Number != n || len(d.History) == 0) {
		err = fmt.Errorf("it is that of checkpoint %d of job %s", d.Checkpoint.Number, d.Job)
	}
	if err != nil {
		return nil, &DamageError{File: name, Err: err}
	}
	for i := range d.History {
		if d.History[i].Tasks == nil {
			d.History[i].Tasks = []TaskStats{}
		}
	}
	return d.History, nil
}

// Statistics are what was measured of a checkpoint, and of those before it that the
// same file remembers, the newest first; nil where nothing is kept. Of completed ones
// before it, the tasks are only in their own files.
func (s *Store) Statistics(ctx context.Context, f Found) ([]AttemptStats, error) {
	return readStatistics(ctx, s.fs, s.in(f.Job, chkName(f.Number)), f.Job, f.Number)
}

// Statistics are what was measured of the checkpoint, as Store.Statistics says.
func (o *Opened) Statistics(ctx context.Context) ([]AttemptStats, error) {
	return readStatistics(ctx, o.files.fs, o.files.dir, o.Meta.Job, o.Meta.Number)
}

const (
	pastWithin = 10 * time.Second // how long a start waits for its past
	pastFiles  = 10               // files that are read for it
)

// Past is what is remembered of the job's checkpoints, for Config.Past: the newest
// file that can be read, completed by what the ones before it say of themselves. It is
// for people only, so that a failure makes it shorter and nothing else.
func (j *Job) Past(ctx context.Context) []AttemptStats {
	ctx, cancel := context.WithTimeout(ctx, pastWithin)
	defer cancel()
	dirs, err := j.store.fs.Dirs(ctx, j.store.in(j.id))
	if err != nil {
		j.store.log.Warn("what earlier checkpoints took is not known", "err", err)
		return nil
	}
	numbers := chkNumbers(dirs)
	slices.Reverse(numbers)
	var past []AttemptStats
	for _, n := range numbers[:min(len(numbers), pastFiles)] {
		list, err := readStatistics(ctx, j.store.fs, j.dir(n), j.id, n)
		if err != nil {
			j.store.log.Warn("what a checkpoint took cannot be read", "checkpoint", j.Path(n), "err", err)
		}
		if len(list) == 0 {
			continue
		}
		if past == nil {
			past = list
			continue
		}
		at := slices.IndexFunc(past, func(s AttemptStats) bool { return s.ID == list[0].ID })
		if at >= 0 {
			past[at] = list[0]
		}
	}
	return past
}

// settled closes what was in flight when the run before ended: the restored one was
// proven by the restart, everything else failed.
func settled(past []AttemptStats, restored *ID) []AttemptStats {
	past = slices.Clone(past)
	for i := range past {
		p := &past[i]
		switch {
		case p.Status != InProgress && p.Status != Committing:
		case restored != nil && p.ID == *restored:
			p.Status = Completed
		default:
			p.Status, p.Failure = Failed, "the tasks ended before it was complete"
		}
	}
	return past
}
