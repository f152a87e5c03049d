package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// How tells in which way a job ended.
type How string

// The ways a job ends for good.
const (
	Finished  How = "finished"  // its bounded input was read to the end
	Stopped   How = "stopped"   // by `stop`; the next run goes on from what it left
	Cancelled How = "cancelled" // by `cancel`; the next run has to say from where
)

// Ended is how a job ended, and what the next one can go on from.
type Ended struct {
	Generation uint64 `json:"generation"`
	Job        string `json:"job"`
	How        How    `json:"how"`
	// Path is the savepoint or last checkpoint, as -s takes it; empty for none.
	Path string    `json:"path,omitempty"`
	Time time.Time `json:"time"`
}

func (e *Ended) validate() error {
	if e.How != Finished && e.How != Stopped && e.How != Cancelled {
		return fmt.Errorf("a job cannot be %q", e.How)
	}
	return nil
}

// readEnded fills in how the current job ended. A record that a later owner of the
// same job has gone on after is void.
func (s *Store) readEnded(ctx context.Context, sv *Survey) error {
	var e Ended
	name := s.in(sv.Job, endedName)
	err := readRecord(ctx, s.fs, name, &e)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && (e.Job != sv.Job || e.validate() != nil) {
		err = &DamageError{File: name, Err: fmt.Errorf("it says that job %s is %q", e.Job, e.How)}
	}
	if isDamage(err) {
		sv.Damaged[sv.Job+"/"+endedName], sv.endedErr = err, err
		return nil
	}
	if err != nil {
		return err
	}
	for g, o := range sv.Owners {
		if g > e.Generation && o.Job == e.Job {
			return nil
		}
	}
	sv.Ended = &e
	return nil
}

// End records that the job is over, after a look for a newer owner. Everything of
// its last checkpoint must be proven. A record that an earlier generation left and
// that is void is replaced.
func (j *Job) End(ctx context.Context, e Ended) error {
	e.Generation, e.Job = j.generation, j.id
	if e.Time.IsZero() {
		e.Time = j.store.opts.Now().UTC()
	}
	if err := e.validate(); err != nil {
		return fmt.Errorf("end job %s: %w", j.id, err)
	}
	if err := j.CheckOwner(ctx); err != nil {
		return err
	}
	data, err := seal(&e)
	if err != nil {
		return fmt.Errorf("end job %s: %w", j.id, err)
	}
	return j.store.durable("ended", func() error { return j.writeEnded(ctx, data) })
}

func (j *Job) writeEnded(ctx context.Context, data []byte) error {
	name := j.store.in(j.id, endedName)
	err := j.store.write(ctx, name, data)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	var old Ended
	readErr := readRecord(ctx, j.store.fs, name, &old)
	switch {
	case readErr != nil && !isDamage(readErr):
		return readErr
	case readErr == nil && old.Generation == j.generation:
		return nil // an earlier try of its own, at another time
	case readErr == nil && old.Generation > j.generation: // written since the look for a newer owner
		return j.store.fenced(ctx, old.Generation)
	}
	if err := j.store.fs.Remove(ctx, name); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return j.store.write(ctx, name, data)
}

// Discard removes all checkpoints of the job, which this process has recorded as ended,
// after a look for a newer owner. The record of the end and those of the owners stay,
// so that the next start can say what happened. It can be repeated. What a complete
// checkpoint has promised to publish is nowhere else: where it is not proven, nothing
// is removed.
func (j *Job) Discard(ctx context.Context) error {
	var e Ended
	if err := readRecord(ctx, j.store.fs, j.store.in(j.id, endedName), &e); err != nil {
		return fmt.Errorf("discard the checkpoints of job %s, which must have ended: %w", j.id, err)
	}
	if e.Generation != j.generation {
		return fmt.Errorf("discard the checkpoints of job %s: its end was recorded by generation %d, not by this one, %d", j.id, e.Generation, j.generation)
	}
	j.mu.Lock()
	pinned := len(j.pins)
	j.mu.Unlock()
	if pinned > 0 {
		return fmt.Errorf("discard the checkpoints of job %s: %d of them are being copied", j.id, pinned)
	}
	if err := j.readOwners(ctx); err != nil {
		return err
	}
	j.mu.Lock()
	owners := maps.Clone(j.owners)
	j.mu.Unlock()
	found, err := j.store.checkpoints(ctx, j.id, owners)
	if err != nil {
		return err
	}
	if err := unpublished(found); err != nil {
		return err
	}
	if err := j.CheckOwner(ctx); err != nil {
		return err
	}
	for _, c := range slices.Backward(found) { // the newest is whole until the last
		if err := j.remove(ctx, c.Number); err != nil {
			return err
		}
	}
	return j.store.sweepShared(ctx, j.id, func(_ string, id ID) bool { return id.Generation <= j.generation })
}

// unpublished is why checkpoints, the newest first, cannot go: one above the newest
// proven one holds what sinks have prepared.
func unpublished(found []Found) error {
	for _, c := range found {
		switch {
		case c.Committed:
			return nil
		case c.Orphan, !c.Complete:
		case c.Err != nil:
			return fmt.Errorf("what checkpoint %s has promised to publish is not known: %w", c.Path, c.Err)
		case slices.ContainsFunc(c.Meta.Committables, func(m connectors.Committable) bool { return !m.Empty }):
			return fmt.Errorf("what checkpoint %s has promised is not proven to be published: -s %s publishes it", c.Path, c.Path)
		}
	}
	return nil
}
