package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// FromNone asks for a new job that restores nothing.
const FromNone = "none"

// Request is what a start wants to restore.
type Request struct {
	// From is empty for the rules of a restart, FromNone, or a path: the folder of a
	// checkpoint or savepoint or its `_metadata`, as a URL or a local path.
	From string
	// AcceptDuplicates takes an older checkpoint also where what came after it has
	// been published.
	AcceptDuplicates bool
	// Claim makes what the path names the new job's own: it is removed once the job's
	// own checkpoints have taken its place. It does nothing where From is no path.
	Claim bool
	// Behind says why restoring a checkpoint would publish something twice, empty
	// where it would not. It is asked before an older checkpoint takes the place of a
	// newer one that cannot be read; nil means that no sink is exactly once.
	Behind func(ctx context.Context, r ID) (string, error)
	// Lost are checkpoints that cannot be gone on from, since output that they promised
	// can never be published, and why. The newest one before them is taken that Behind
	// finds nothing against.
	Lost map[ID]error
}

// Restore is what a start goes on from.
type Restore struct {
	Meta *Metadata // nil where nothing is restored. Committables that are not to be resolved are left out.
	Path string    // where it lies, as -s takes it
	// Files reads the files of Meta.
	Files connectors.CheckpointFiles
	Job   string
	// NewJob says that the job has no checkpoint of its own yet: it writes a first one
	// before a source reads.
	NewJob     bool
	NextNumber uint64
	ChosenBy   Chooser
	Origin     string // of the pipeline's folder, see Owner
	// Acknowledged is filled in by the caller, see Owner.
	Acknowledged []string
	Foreign      bool // of another pipeline or another storage
	Committed    bool // every commit of it was proven
	Claimed      bool // it becomes the job's own
	// Skipped are the newer checkpoints that were not taken, and why.
	Skipped []Skipped
}

// Skipped is a checkpoint that was not restored.
type Skipped struct {
	Number uint64
	Path   string
	Err    error
}

// Owner is the record of the choice, for WriteOwner.
func (r *Restore) Owner() Owner {
	o := Owner{Job: r.Job, ChosenBy: r.ChosenBy, Origin: r.Origin, Acknowledged: r.Acknowledged}
	if r.Meta != nil {
		id := r.Meta.ID()
		o.RestoredPath, o.RestoredJob, o.Restored, o.Foreign = r.Path, r.Meta.Job, &id, r.Foreign
		o.Claimed = r.Claimed
	}
	return o
}

// Errors of a start that is refused, for errors.Is. All of them are permanent.
var (
	// ErrFinished says that the job has read its bounded input to the end.
	ErrFinished = errors.New("finished")
	// ErrCancelled says that the job was cancelled and somebody has to say from where to go on.
	ErrCancelled = errors.New("cancelled")
	// ErrNoRestore says that nothing can be restored that may be.
	ErrNoRestore = errors.New("no checkpoint can be restored")
	// ErrBehind says that only a checkpoint can be read that is behind what sinks have published.
	ErrBehind = errors.New("behind what sinks have published")
)

// Check refuses what can be refused before a start writes anything.
func (s *Store) Check(ctx context.Context, sv *Survey, req Request) error {
	switch req.From {
	case FromNone:
		return nil
	case "":
		return s.checkByItself(sv)
	}
	_, err := s.asked(ctx, sv, req)
	return err
}

// asked is what the user's path names.
func (s *Store) asked(ctx context.Context, sv *Survey, req Request) (*candidate, error) {
	c, err := s.byHand(ctx, sv, req.From)
	if err == nil && req.Claim {
		err = s.checkClaim(c, req.From)
	}
	return c, err
}

// Choose decides what a start goes on from and verifies every byte of it. The survey
// must be one taken after this process took its generation. It writes nothing.
func (s *Store) Choose(ctx context.Context, sv *Survey, req Request) (*Restore, error) {
	r, err := s.choose(ctx, sv, req)
	if err == nil {
		r.Origin = cmp.Or(sv.Origin(), NewJobID())
		s.opts.Local.restored(sv.Highest, r.Meta)
	}
	return r, err
}

func (s *Store) choose(ctx context.Context, sv *Survey, req Request) (*Restore, error) {
	switch req.From {
	case FromNone:
		return &Restore{Job: NewJobID(), NewJob: true, NextNumber: 1, ChosenBy: ByUser}, nil
	case "":
		if err := s.checkByItself(sv); err != nil {
			return nil, err
		}
		return s.byItself(ctx, sv, req)
	}
	c, err := s.asked(ctx, sv, req)
	if err != nil {
		return nil, err
	}
	if err := c.verify(ctx, s.opts.Local); err != nil {
		return nil, refuseDamaged(req.From, err)
	}
	r := c.restore(s.opts.Local)
	r.Job, r.NewJob, r.NextNumber, r.ChosenBy = NewJobID(), true, r.Meta.Number+1, ByUser
	r.Claimed = req.Claim
	return r, nil
}

// refuseDamaged is the error of a path that a person named: it is never replaced.
func refuseDamaged(from string, err error) error {
	if isDamage(err) || isVersion(err) {
		return connectors.Permanent(fmt.Errorf("restore %s: %w", from, err))
	}
	return fmt.Errorf("restore %s: %w", from, err)
}

// checkByItself refuses a start that names nothing where somebody has to.
func (s *Store) checkByItself(sv *Survey) error {
	for _, err := range []error{sv.currentErr, sv.endedErr} {
		if err != nil {
			return connectors.Permanent(fmt.Errorf("pipeline %s cannot go on by itself: %w; name what to restore with -s PATH or --from none", s.pipeline, err))
		}
	}
	if sv.Ended == nil {
		return nil
	}
	hint := "--from none starts anew"
	if path := sv.Last(); path != "" {
		hint = fmt.Sprintf("-s %s goes on from its last checkpoint, %s", path, hint)
	}
	switch sv.Ended.How {
	case Finished:
		return connectors.Permanent(fmt.Errorf("pipeline %s has %w: its input was read to the end; %s", s.pipeline, ErrFinished, hint))
	case Cancelled:
		return connectors.Permanent(fmt.Errorf("pipeline %s was %w; %s", s.pipeline, ErrCancelled, hint))
	}
	return nil
}

// Last is the path of what the current job goes on from, or has left; empty for nothing.
func (sv *Survey) Last() string {
	if sv.Ended != nil && sv.Ended.Path != "" {
		return sv.Ended.Path
	}
	for _, f := range sv.Checkpoints {
		if f.Meta != nil && !f.Orphan {
			return f.Path
		}
	}
	return ""
}

// Began is the path of what the current job was begun with, empty for nothing.
func (sv *Survey) Began() string {
	for _, g := range sv.Owners.generations() {
		if o := sv.Owners[g]; o.Job == sv.Job && o.Restored != nil && o.RestoredJob != sv.Job {
			return o.RestoredPath
		}
	}
	return ""
}

// byItself goes on with the current job, or from what it left when it was stopped.
func (s *Store) byItself(ctx context.Context, sv *Survey, req Request) (*Restore, error) {
	job, goesOn := sv.Job, sv.Job != "" && sv.Ended == nil
	if !goesOn {
		job = NewJobID()
	}
	candidates, err := s.candidates(ctx, sv)
	if err != nil {
		return nil, err
	}
	begun := goesOn && len(candidates) > 0
	if len(candidates) == 0 {
		if candidates, err = s.inherited(ctx, sv); err != nil {
			return nil, err
		}
	}
	r, err := s.newest(ctx, candidates, req)
	if err != nil {
		return nil, err
	}
	r.Job, r.NewJob, r.ChosenBy, r.NextNumber = job, !begun, ByItself, 1
	if r.Meta != nil {
		r.NextNumber = r.Meta.Number + 1
	}
	// A number is never used twice, also where its folder is damaged or incomplete.
	if goesOn && len(sv.Checkpoints) > 0 {
		r.NextNumber = max(r.NextNumber, sv.Checkpoints[0].Number+1)
	}
	return r, nil
}

// candidates are what the current job left that a start by itself may restore, the best first.
func (s *Store) candidates(ctx context.Context, sv *Survey) ([]*candidate, error) {
	var out []*candidate
	if sv.Ended != nil && sv.Ended.Path != "" {
		c, err := s.named(ctx, sv, sv.Ended.Path)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	for _, f := range sv.Checkpoints {
		if f.Orphan || !f.Complete && !f.Committed {
			continue
		}
		if len(out) > 0 && out[0].path == f.Path {
			continue
		}
		c := &candidate{place: place{fs: s.fs, dir: s.in(f.Job, chkName(f.Number))}, path: f.Path, number: f.Number, meta: f.Meta, committed: f.Committed, err: f.Err}
		if !f.Complete {
			c.err = &DamageError{File: c.dir + "/" + metadataName, Err: errors.New("it is missing, though the checkpoint was committed")}
		}
		out = append(out, c)
	}
	return out, nil
}

// inherited is what the current job's newest owner that a user chose for, or else any,
// has restored: the job has no complete checkpoint of its own yet.
func (s *Store) inherited(ctx context.Context, sv *Survey) ([]*candidate, error) {
	var from *Owner
	for _, g := range sv.Owners.generations() {
		o := sv.Owners[g]
		if o.Job == sv.Job && (from == nil || o.ChosenBy == ByUser && from.ChosenBy != ByUser) {
			from = &o
		}
	}
	if from == nil || from.RestoredPath == "" {
		return nil, nil
	}
	c, err := s.named(ctx, sv, from.RestoredPath)
	if err != nil {
		return nil, err
	}
	return []*candidate{c}, nil
}

// named is byHand for a path that a record holds: damage is left to the choice.
func (s *Store) named(ctx context.Context, sv *Survey, path string) (*candidate, error) {
	path, err := s.relocated(ctx, path)
	if err != nil {
		return nil, err
	}
	c, err := s.byHand(ctx, sv, path)
	if err != nil && (isDamage(err) || isVersion(err)) {
		return &candidate{path: path, err: err}, nil
	}
	return c, err
}

// newest is the first candidate that is whole. One after a damaged one is taken only
// where it is not behind what sinks have published.
func (s *Store) newest(ctx context.Context, candidates []*candidate, req Request) (*Restore, error) {
	var skipped []Skipped
	for _, c := range candidates {
		if len(skipped) > 0 && c.err == nil {
			err := s.checkBehind(ctx, c, skipped, req)
			if errors.Is(err, ErrBehind) && len(req.Lost) > 0 {
				s.log.Warn("a sink has published more than a checkpoint, the one before it is tried", "checkpoint", c.path, "err", err)
				skipped = append(skipped, Skipped{Number: c.number, Path: c.path, Err: err})
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		err := c.err
		if lost := req.lost(c); lost != nil {
			s.log.Warn("output of a checkpoint is lost, the one before it is tried", "checkpoint", c.path, "err", lost)
			skipped = append(skipped, Skipped{Number: c.number, Path: c.path, Err: lost})
			continue
		}
		if err == nil {
			err = c.verify(ctx, s.opts.Local)
		}
		if err == nil {
			r := c.restore(s.opts.Local)
			r.Skipped = skipped
			return r, nil
		}
		if !isDamage(err) {
			return nil, refuseDamaged(c.path, err)
		}
		s.log.Warn("a checkpoint cannot be restored, the one before it is tried", "checkpoint", c.path, "err", err)
		skipped = append(skipped, Skipped{Number: c.number, Path: c.path, Err: err})
	}
	if len(skipped) == 0 {
		return &Restore{}, nil
	}
	if len(req.Lost) > 0 {
		return nil, connectors.Permanent(&NoRewindError{Skipped: skipped})
	}
	return nil, connectors.Permanent(fmt.Errorf("pipeline %s: %w: %s: %w; name another with -s PATH, or start anew with --from none",
		s.pipeline, ErrNoRestore, skipped[0].Path, skipped[0].Err))
}

// lost is why a candidate cannot be gone on from though it is whole.
func (r *Request) lost(c *candidate) error {
	if c.meta == nil {
		return nil
	}
	return r.Lost[c.meta.ID()]
}

// NoRewindError says that output of a checkpoint is lost and none before it can be gone
// on from. It matches ErrNoRestore.
type NoRewindError struct {
	Skipped []Skipped // the lost one, then those before it, with what is against them
}

func (e *NoRewindError) Error() string {
	text := e.Skipped[0].Err.Error()
	if len(e.Skipped) == 1 {
		return text + "; there is no checkpoint before it to go back to"
	}
	var b strings.Builder
	b.WriteString(text + "; none before it can be gone back to")
	for _, s := range e.Skipped[1:] {
		fmt.Fprintf(&b, ": checkpoint %d: %v", s.Number, s.Err)
	}
	return b.String()
}

func (e *NoRewindError) Unwrap() error { return ErrNoRestore }

func (s *Store) checkBehind(ctx context.Context, c *candidate, skipped []Skipped, req Request) error {
	if req.Behind == nil {
		return nil
	}
	reason, err := req.Behind(ctx, c.meta.ID())
	if err != nil {
		return fmt.Errorf("look what sinks have published since checkpoint %d: %w", c.number, err)
	}
	if reason == "" {
		return nil
	}
	if req.AcceptDuplicates {
		s.log.Warn("an older checkpoint is restored though its successors were published", "checkpoint", c.path, "reason", reason)
		return nil
	}
	if len(req.Lost) > 0 {
		return fmt.Errorf("it is %w: %s", ErrBehind, reason)
	}
	return connectors.Permanent(fmt.Errorf("pipeline %s: checkpoint %d cannot be read (%w), and checkpoint %d before it is %w: %s; --accept-duplicates takes it all the same",
		s.pipeline, skipped[0].Number, skipped[0].Err, c.number, ErrBehind, reason))
}

// candidate is a checkpoint that may be restored.
type candidate struct {
	place
	path      string
	number    uint64
	meta      *Metadata
	committed bool
	foreign   bool
	savepoint bool
	err       error // why it cannot be
}

// place is a folder on some storage.
type place struct {
	fs  storage.FS
	dir string
}

func (c *candidate) files(l *Local) checkedFiles { return l.wrap(&files{fs: c.fs, dir: c.dir}) }

// verify reads every byte of every file that the checkpoint refers to.
func (c *candidate) verify(ctx context.Context, l *Local) error {
	errs := verifyFiles(ctx, c.files(l), c.meta.Files(), true)
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

func (c *candidate) restore(l *Local) *Restore {
	m := *c.meta
	if c.foreign {
		m.Committables = nil
	}
	return &Restore{Meta: &m, Path: c.path, Files: c.files(l), Foreign: c.foreign, Committed: c.committed}
}
