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
	statisticsBudget = 256 << 10 // bytes that are written
	maxFailure       = 1 << 10   // bytes of a failure's reason that are kept
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

// fit encodes the document within the budget: the oldest tasks of failed ones go
// first, then the oldest entries, at last the checkpoint's own tasks.
func (d *statistics) fit() ([]byte, error) {
	data, err := seal(d)
	for i := len(d.History) - 1; i > 0 && err == nil && len(data) > statisticsBudget; i-- {
		if d.History[i].Tasks != nil {
			d.History[i].Tasks = nil
			data, err = seal(d)
		}
	}
	for len(d.History) > 1 && err == nil && len(data) > statisticsBudget {
		d.History = d.History[:(len(d.History)+1)/2]
		data, err = seal(d)
	}
	if err == nil && len(data) > maxStatistics {
		d.History[0].Tasks = nil
		data, err = seal(d)
	}
	return data, err
}

// Remember implements Log.
func (j *Job) Remember(ctx context.Context, n uint64, list []AttemptStats) error {
	d := statistics{Pipeline: j.store.pipeline, Job: j.id, Checkpoint: ID{Generation: j.generation, Number: n}, History: slices.Clone(list)}
	data, err := d.fit()
	if err != nil {
		return fmt.Errorf("encode the statistics of checkpoint %d: %w", n, err)
	}
	return writeOnce(ctx, j.store.fs, j.dir(n)+"/"+statisticsName, data)
}

// readStatistics reads what lies beside the metadata m; nil where nothing does.
func readStatistics(ctx context.Context, f storage.FS, dir string, id ID, job string) ([]AttemptStats, error) {
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
	if err == nil && (d.Job != job || d.Checkpoint != id || len(d.History) == 0) {
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
	if f.Meta == nil {
		return nil, nil
	}
	return readStatistics(ctx, s.fs, s.in(f.Job, chkName(f.Number)), f.Meta.ID(), f.Job)
}

// Statistics are what was measured of the checkpoint, as Store.Statistics says.
func (o *Opened) Statistics(ctx context.Context) ([]AttemptStats, error) {
	return readStatistics(ctx, o.files.fs, o.files.dir, o.Meta.ID(), o.Meta.Job)
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
	found, err := j.store.checkpoints(ctx, j.id, nil)
	if err != nil {
		j.store.log.Warn("what earlier checkpoints took is not known", "err", err)
		return nil
	}
	var past []AttemptStats
	for _, f := range found[:min(len(found), pastFiles)] {
		list, err := j.store.Statistics(ctx, f)
		if err != nil {
			j.store.log.Warn("what a checkpoint took cannot be read", "checkpoint", f.Path, "err", err)
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
