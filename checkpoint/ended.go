package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
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
	if readErr == nil && old.Generation == j.generation {
		return nil // an earlier try of its own, at another time
	}
	if readErr != nil && !isDamage(readErr) {
		return readErr
	}
	if err := j.store.fs.Remove(ctx, name); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return j.store.write(ctx, name, data)
}

// Discard removes all checkpoints of the job, which is recorded as ended, after a look
// for a newer owner. The record of the end and those of the owners stay, so that the
// next start can say what happened. It can be repeated.
func (j *Job) Discard(ctx context.Context) error {
	var e Ended
	if err := readRecord(ctx, j.store.fs, j.store.in(j.id, endedName), &e); err != nil {
		return fmt.Errorf("discard the checkpoints of job %s, which must have ended: %w", j.id, err)
	}
	j.mu.Lock()
	pinned := len(j.pins)
	j.mu.Unlock()
	if pinned > 0 {
		return fmt.Errorf("discard the checkpoints of job %s: %d of them are being copied", j.id, pinned)
	}
	dirs, err := j.store.fs.Dirs(ctx, j.store.in(j.id))
	if err != nil {
		return fmt.Errorf("list checkpoints of job %s: %w", j.id, err)
	}
	if err := j.CheckOwner(ctx); err != nil {
		return err
	}
	for _, n := range chkNumbers(dirs) { // the newest is whole until the last
		if err := j.remove(ctx, n); err != nil {
			return err
		}
	}
	return j.store.sweepShared(ctx, j.id, func(_ string, id ID) bool { return id.Generation <= j.generation })
}
