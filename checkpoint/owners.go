package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// ErrTaken says that another process has taken a generation.
var ErrTaken = errors.New("the generation is taken")

// FencedError says that a newer process has the pipeline. It matches connectors.ErrFenced.
type FencedError struct {
	Pipeline   string
	Generation uint64 // the newer one; 0 where this process's own file is gone
	By         *Owner // what its owner said; nil where it has not yet
}

func (e *FencedError) Error() string {
	if e.Generation == 0 {
		return fmt.Sprintf("the file that makes this process the owner of pipeline %s is gone from storage: somebody removed the pipeline's checkpoints while it ran; it has stopped and commits nothing more", e.Pipeline)
	}
	s := fmt.Sprintf("pipeline %s has been taken over by a newer process, generation %d", e.Pipeline, e.Generation)
	if e.By != nil {
		s += fmt.Sprintf(", on host %s, process %d, at %s", e.By.Host, e.By.PID, e.By.Time.Format(time.RFC3339))
	}
	return s + "; this one has stopped and commits nothing more"
}

// Unwrap makes the error match connectors.ErrFenced.
func (e *FencedError) Unwrap() error { return connectors.ErrFenced }

// claimTries is how often a generation whose outcome is unknown is tried again.
const claimTries = 5

// maxTaken bounds the generations that a start finds taken one after the other.
const maxTaken = 1000

// TakeGeneration takes generation g, which exactly one process can. ErrTaken says
// that another has it; after any other error it may be taken.
func (s *Store) TakeGeneration(ctx context.Context, g uint64) error {
	if g == 0 {
		return errors.New("take generation: they begin at 1")
	}
	name := s.in(ownerName(g))
	err := s.durable("owner", func() error { return s.fs.Claim(ctx, name) })
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("take generation %d: %w", g, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("take generation %d: %w", g, err)
	}
	return nil
}

// take settles generation g: taken by this process, taken by another, or taken by
// nobody knows whom, as an earlier try of its own may have succeeded. It never
// leaves g free, since generations have no gaps.
func (s *Store) take(ctx context.Context, g uint64) (mine, unknown bool, err error) {
	for range claimTries {
		err = s.TakeGeneration(ctx, g)
		if err == nil {
			return true, unknown, nil
		}
		if errors.Is(err, ErrTaken) {
			return false, unknown, nil
		}
		if ctx.Err() != nil {
			return false, true, err
		}
		unknown = true
	}
	return false, true, err
}

// TakeNext takes the generation of a start: the first free one above those that the
// survey found.
func (s *Store) TakeNext(ctx context.Context, sv *Survey) (uint64, error) {
	for g := sv.Highest + 1; g <= sv.Highest+maxTaken; g++ {
		mine, _, err := s.take(ctx, g)
		if err != nil {
			return 0, err
		}
		if mine {
			return g, nil
		}
	}
	return 0, fmt.Errorf("take generation: %d to %d are all taken by other processes", sv.Highest+1, sv.Highest+maxTaken)
}

// TakeAfter takes the generation of a restart within the process that owns
// generation g: g + 1 and no other. Where it exists the process is fenced, unless
// it may be its own by a try of unknown outcome: then the next free one.
func (s *Store) TakeAfter(ctx context.Context, g uint64) (uint64, error) {
	next := g + 1
	mine, unknown, err := s.take(ctx, next)
	switch {
	case err != nil:
		return 0, err
	case mine:
		return next, nil
	case !unknown:
		return 0, s.fenced(ctx, next)
	}
	return s.TakeNext(ctx, &Survey{Highest: next})
}

// CheckOwner returns a *FencedError when a generation newer than g exists. Since
// generations have no gaps and their files are never removed, one look is enough.
func (s *Store) CheckOwner(ctx context.Context, g uint64) error {
	exists, err := s.exists(ctx, ownerName(g+1))
	if err != nil {
		return fmt.Errorf("look for a newer owner: %w", err)
	}
	if exists {
		return s.fenced(ctx, g+1)
	}
	exists, err = s.exists(ctx, ownerName(g))
	if err != nil {
		return fmt.Errorf("look for a newer owner: %w", err)
	}
	if !exists {
		return &FencedError{Pipeline: s.pipeline}
	}
	return nil
}

func (s *Store) exists(ctx context.Context, name string) (bool, error) {
	_, err := s.fs.Stat(ctx, s.in(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// fenced describes the newest owner, of generation g or later.
func (s *Store) fenced(ctx context.Context, g uint64) error {
	e := &FencedError{Pipeline: s.pipeline, Generation: g}
	sv := &Survey{Owners: Lineage{}, Damaged: map[string]error{}}
	if err := s.readOwners(ctx, sv); err == nil && sv.Highest >= g {
		e.Generation = sv.Highest
		if o, ok := sv.Owners[sv.Highest]; ok {
			e.By = &o
		}
	}
	return e
}

// WriteOwner records what the owner of generation g restored. Generation, pipeline,
// and where they are not set time, host and process are filled in. It can be repeated.
func (s *Store) WriteOwner(ctx context.Context, g uint64, o Owner) error {
	o.Generation, o.Pipeline = g, s.pipeline
	if o.Time.IsZero() {
		o.Time = s.opts.Now().UTC()
	}
	if o.Host == "" {
		o.Host, _ = os.Hostname()
	}
	if o.PID == 0 {
		o.PID = os.Getpid()
	}
	if err := o.validate(); err != nil {
		return fmt.Errorf("write owner %d: %w", g, err)
	}
	data, err := seal(&o)
	if err != nil {
		return fmt.Errorf("write owner %d: %w", g, err)
	}
	return s.durable("owner-json", func() error { return s.write(ctx, s.in(ownerRecord(g)), data) })
}

func (o *Owner) validate() error {
	if !isJobID(o.Job) {
		return fmt.Errorf("job id %q is not 32 hex digits", o.Job)
	}
	if o.ChosenBy != ByItself && o.ChosenBy != ByUser {
		return fmt.Errorf("it is chosen by %q, which is neither %s nor %s", o.ChosenBy, ByItself, ByUser)
	}
	if o.Restored != nil && o.Restored.Number == 0 {
		return errors.New("the number of the restored checkpoint begins at 1")
	}
	return nil
}

// readOwners fills in the owners and the current job.
func (s *Store) readOwners(ctx context.Context, sv *Survey) error {
	infos, err := s.fs.Files(ctx, s.pipeline)
	if err != nil {
		return fmt.Errorf("list owners of pipeline %s: %w", s.pipeline, err)
	}
	var records []uint64
	for _, info := range infos {
		g, record, ok := parseOwner(path.Base(info.Name))
		if !ok {
			continue
		}
		sv.Highest = max(sv.Highest, g)
		if record {
			records = append(records, g)
		}
	}
	slices.Sort(records)
	for i, g := range records {
		o, err := s.readOwner(ctx, g)
		if err != nil && !isDamage(err) {
			return err
		}
		last := i == len(records)-1
		switch {
		case err == nil:
			sv.Owners[g] = o
			if last {
				sv.Job = o.Job
			}
		case errors.Is(err, fs.ErrNotExist): // removed since it was listed
		default:
			sv.Damaged[ownerRecord(g)] = err
			if last {
				sv.currentErr = err
			}
		}
	}
	return nil
}

func (s *Store) readOwner(ctx context.Context, g uint64) (Owner, error) {
	var o Owner
	name := s.in(ownerRecord(g))
	if err := readRecord(ctx, s.fs, name, &o); err != nil {
		return o, err
	}
	if err := o.validate(); err != nil {
		return o, &DamageError{File: name, Err: err}
	}
	if o.Generation != g || o.Pipeline != s.pipeline {
		return o, &DamageError{File: name, Err: fmt.Errorf("it is that of generation %d of pipeline %s", o.Generation, o.Pipeline)}
	}
	return o, nil
}
