package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// stateFiles are the files that one attempt has begun for the state of steps. Unlike
// what sinks write, nothing later refers to them where the attempt fails.
type stateFiles struct {
	mu    sync.Mutex
	names []string
	gone  bool // the attempt has failed
}

var errAbandoned = errors.New("the checkpoint was given up meanwhile")

// add notes a file before it is begun.
func (s *stateFiles) add(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return errAbandoned
	}
	s.names = append(s.names, name)
	return nil
}

func (s *stateFiles) abandoned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// abandon makes later calls of add fail and returns what was begun so far.
func (s *stateFiles) abandon() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	return s.names
}

// forget drops the names of files that are gone.
func (s *stateFiles) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = nil
}

// StateFiles is Files for the state of steps: what an attempt writes there is removed
// as soon as the attempt fails, so no other checkpoint may refer to it.
func (j *Job) StateFiles(n uint64) connectors.CheckpointFiles {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.writing[n] == nil {
		j.writing[n] = &stateFiles{}
	}
	return j.store.opts.Local.wrap(&files{fs: j.store.fs, dir: j.dir(n), id: ID{Generation: j.generation, Number: n}, state: j.writing[n]})
}

// Abandon implements Log. It leaves alone an attempt whose metadata is there or may be.
func (j *Job) Abandon(ctx context.Context, n uint64) error {
	j.mu.Lock()
	state, unsure := j.writing[n], j.unsure[n]
	if j.known[n] != nil || unsure {
		j.mu.Unlock()
		return nil
	}
	if state == nil { // a task may still begin
		state = &stateFiles{}
		j.writing[n] = state
	}
	j.mu.Unlock()
	names := state.abandon()
	if len(names) == 0 {
		return nil
	}
	j.store.opts.Local.drop(names)
	if err := j.store.fs.Remove(ctx, names...); err != nil {
		return fmt.Errorf("remove %d state files of checkpoint %d: %w", len(names), n, err)
	}
	state.forget() // no proof may come for long
	return nil
}

// forgetWriting drops what is known of attempts before n.
func (j *Job) forgetWriting(n uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for m := range j.writing {
		if m < n {
			delete(j.writing, m)
		}
	}
}
