package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// Job is a running job's way to its checkpoints: a Log for the coordinator. It
// belongs to the owner of one generation and is safe for concurrent use.
type Job struct {
	store      *Store
	id         string
	generation uint64

	mu      sync.Mutex
	claimed map[uint64]bool // numbers whose claims this process created
	proven  uint64          // the highest number that it has marked
	known   map[uint64]*chk // what Retain knows of the job's complete checkpoints
	owners  Lineage         // read by the first Retain
	pins    map[uint64]int  // numbers that stay, by how often they are pinned
	left    map[uint64]bool // owners whose claims this process cannot settle
	writing map[uint64]*stateFiles
	unsure  map[uint64]bool // whether their metadata is there is not known
	dropped bool            // what earlier processes never closed is gone
}

var _ Log = (*Job)(nil)

// Job makes the handle of the owner of generation g on a job, after WriteOwner.
func (s *Store) Job(id string, g uint64) *Job {
	return &Job{
		store: s, id: id, generation: g, claimed: map[uint64]bool{}, known: map[uint64]*chk{}, pins: map[uint64]int{},
		writing: map[uint64]*stateFiles{}, unsure: map[uint64]bool{}, left: map[uint64]bool{},
	}
}

// ID is the job's id.
func (j *Job) ID() string { return j.id }

// Generation is that of the process.
func (j *Job) Generation() uint64 { return j.generation }

// Path is where checkpoint n lies, as -s takes it.
func (j *Job) Path(n uint64) string { return j.store.address(j.dir(n)) }

func (j *Job) dir(n uint64) string { return j.store.in(j.id, chkName(n)) }

// Claim takes number n for good. false says that the number is taken, also by an
// attempt of its own whose outcome is unknown: the caller goes on with the next. It
// looks for a newer owner first, since one that has gone far ahead may have removed
// this number with its claim.
func (j *Job) Claim(ctx context.Context, n uint64) (bool, error) {
	if n == 0 {
		return false, errors.New("claim a checkpoint: numbers begin at 1")
	}
	if err := j.CheckOwner(ctx); err != nil {
		return false, err
	}
	err := j.store.durable("claim", func() error { return j.store.fs.Claim(ctx, j.dir(n)+"/"+claimName) })
	switch {
	case err == nil:
		j.mu.Lock()
		j.claimed[n] = true
		j.mu.Unlock()
		return true, nil
	case errors.Is(err, fs.ErrExist):
		return false, nil
	}
	return false, fmt.Errorf("claim checkpoint %d: %w", n, err)
}

// Files writes and reads the files of checkpoint n, whose claim this process has.
func (j *Job) Files(n uint64) connectors.CheckpointFiles {
	return j.store.opts.Local.wrap(&files{fs: j.store.fs, dir: j.dir(n), id: ID{Generation: j.generation, Number: n}})
}

// Complete makes checkpoint m complete by writing its metadata in one atomic step.
// It can be repeated with the same metadata, which resolves an unknown outcome.
// ErrNotWritten says that the metadata is certainly not there and never will be.
func (j *Job) Complete(ctx context.Context, m *Metadata) error {
	j.mu.Lock()
	mine := j.claimed[m.Number]
	j.mu.Unlock()
	if !mine || m.Generation != j.generation || m.Job != j.id || m.Pipeline != j.store.pipeline {
		return fmt.Errorf("complete checkpoint %d of generation %d: this process does not own it: %w", m.Number, m.Generation, ErrNotWritten)
	}
	data, err := m.Encode()
	if err != nil {
		return connectors.Permanent(fmt.Errorf("%w: %w", ErrNotWritten, err))
	}
	j.mu.Lock()
	j.unsure[m.Number] = true
	j.mu.Unlock()
	name := j.dir(m.Number) + "/" + metadataName
	err = j.store.durable("metadata", func() error { return j.store.write(ctx, name, data) })
	if errors.Is(err, fs.ErrExist) {
		j.mu.Lock()
		delete(j.unsure, m.Number)
		j.mu.Unlock()
		// Only the owner of the claim writes, so somebody broke in by hand.
		return connectors.Permanent(fmt.Errorf("complete checkpoint %d: %w: %w", m.Number, ErrNotWritten, err))
	}
	if err != nil {
		return fmt.Errorf("complete checkpoint %d: %w", m.Number, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known[m.Number] = &chk{number: m.Number, complete: true, id: m.ID(), kind: m.Kind, refs: sharedRefs(m)}
	delete(j.unsure, m.Number)
	delete(j.writing, m.Number)
	return nil
}

// CheckOwner returns a *FencedError when a newer generation exists.
func (j *Job) CheckOwner(ctx context.Context) error { return j.store.CheckOwner(ctx, j.generation) }

// Proven marks checkpoint n as published by every sink, after a look for a newer
// owner. It can be repeated.
func (j *Job) Proven(ctx context.Context, n uint64) error {
	if err := j.CheckOwner(ctx); err != nil {
		return err
	}
	name := j.dir(n) + "/" + committedName
	err := j.store.durable("committed", func() error { return j.store.fs.Claim(ctx, name) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("mark checkpoint %d as committed: %w", n, err)
	}
	j.mu.Lock()
	j.proven = max(j.proven, n)
	c := j.known[n]
	if c != nil {
		proven := *c // Retain may be looking at the other
		proven.committed = true
		c, j.known[n] = &proven, &proven
	}
	j.mu.Unlock()
	if c != nil {
		j.store.opts.Local.proven(c.id, c.refs)
	}
	return nil
}
