package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// chk is what retention has to know of one checkpoint of the job. It does not change once
// it is known: what has become of the checkpoint is another chk.
type chk struct {
	number    uint64
	id        ID
	kind      Kind
	complete  bool
	committed bool
	orphan    bool
	refs      map[string]bool // names in the shared folder; nil where the metadata cannot be read
}

// sharedRefs are the files in the job's shared folder that a checkpoint needs.
func sharedRefs(m *Metadata) map[string]bool {
	refs := map[string]bool{}
	for f := range m.files() {
		if name, ok := strings.CutPrefix(f.Path, "../"+sharedDir+"/"); ok {
			refs[name] = true
		}
	}
	return refs
}

// Retain removes what nobody needs any more. It keeps the newest complete
// checkpoints, as many as are retained, the newest proven one and everything above it,
// with the files they refer to, and pinned ones. The rest below the newest proven number goes:
// subsumed checkpoints, failed attempts, what a crash left. Before this process has
// proven a checkpoint nothing does. What could not be removed is found again by the next call.
func (j *Job) Retain(ctx context.Context) error {
	j.mu.Lock()
	proven := j.proven
	j.mu.Unlock()
	if proven == 0 {
		return nil
	}
	dirs, err := j.survey(ctx)
	if err != nil {
		return err
	}
	keep := j.kept(proven)
	if err := j.CheckOwner(ctx); err != nil {
		return err
	}
	j.forgetWriting(proven)
	var errs []error
	for _, n := range dirs {
		if n < proven && !slices.ContainsFunc(keep, func(c *chk) bool { return c.number == n }) {
			errs = append(errs, j.remove(ctx, n))
		}
	}
	errs = append(errs, j.sweep(ctx, keep, proven, func(ID) bool { return true }))
	errs = append(errs, j.settleClaims(ctx, keep), j.removeOwners(ctx, keep), j.dropUnfinished(ctx))
	return errors.Join(errs...)
}

// dropUnfinished takes away what writers of earlier processes began in the shared folder
// and never closed: a storage may keep parts of a file that no list of files shows. It
// does so once, since the writers of this process take their own away.
func (j *Job) dropUnfinished(ctx context.Context) error {
	j.mu.Lock()
	dropped := j.dropped
	j.mu.Unlock()
	if dropped {
		return nil
	}
	dir := j.store.in(j.id, sharedDir)
	begun, err := j.store.fs.Staged(ctx, dir)
	if err != nil {
		return fmt.Errorf("look for unfinished files in %s: %w", dir, err)
	}
	for _, s := range begun {
		if id, ours := parseShared(path.Base(s.Name)); !ours || id.Generation >= j.generation {
			continue
		}
		if err := j.store.fs.Discard(ctx, s); err != nil {
			return fmt.Errorf("remove the unfinished %s: %w", s.Name, err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dropped = true
	return nil
}

// Abort removes what attempt n, which failed, left behind, unless a complete
// checkpoint refers to it. It does nothing before a later one is proven: until then
// sinks may hand over again what n prepared.
func (j *Job) Abort(ctx context.Context, n uint64) error {
	j.mu.Lock()
	proven := j.proven
	j.mu.Unlock()
	if n >= proven {
		return nil
	}
	if _, err := j.survey(ctx); err != nil {
		return err
	}
	keep := j.kept(proven)
	if slices.ContainsFunc(keep, func(c *chk) bool { return c.number == n }) {
		return nil
	}
	if err := j.CheckOwner(ctx); err != nil {
		return err
	}
	attempt := ID{Generation: j.generation, Number: n}
	return errors.Join(j.remove(ctx, n), j.sweep(ctx, keep, proven, func(id ID) bool { return id == attempt }))
}

// survey lists the numbers that have a folder and looks at those not known yet.
func (j *Job) survey(ctx context.Context) ([]uint64, error) {
	if err := j.readOwners(ctx); err != nil {
		return nil, err
	}
	dirs, err := j.store.fs.Dirs(ctx, j.store.in(j.id))
	if err != nil {
		return nil, fmt.Errorf("list checkpoints of job %s: %w", j.id, err)
	}
	numbers := chkNumbers(dirs)
	for _, n := range numbers {
		j.mu.Lock()
		known := j.known[n] != nil || j.claimed[n]
		j.mu.Unlock()
		if known {
			continue
		}
		if err := j.learn(ctx, n); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// learn looks at a checkpoint that another process took.
func (j *Job) learn(ctx context.Context, n uint64) error {
	found, err := j.store.look(ctx, j.id, n)
	if err != nil {
		return err
	}
	c := &chk{number: n, complete: found.Complete, committed: found.Committed}
	if found.Meta != nil {
		c.id, c.kind, c.refs = found.Meta.ID(), found.Meta.Kind, sharedRefs(found.Meta)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	c.orphan = found.Meta != nil && j.owners.Orphan(c.id)
	// A folder that is not complete may become so by an older process that does not
	// know yet that it is fenced.
	if found.Complete {
		j.known[n] = c
	}
	return nil
}

func (j *Job) readOwners(ctx context.Context) error {
	j.mu.Lock()
	known := j.owners != nil
	j.mu.Unlock()
	if known {
		return nil
	}
	sv := &Survey{Owners: Lineage{}, Damaged: map[string]error{}}
	if err := j.store.readOwners(ctx, sv); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.owners = sv.Owners
	return nil
}

// kept are the checkpoints that stay, of those known.
func (j *Job) kept(proven uint64) []*chk {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []*chk
	for _, c := range j.known {
		if c.complete && !c.orphan {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *chk) int { return cmp.Compare(b.number, a.number) })
	var keep []*chk
	whole := 0
	for _, c := range all {
		if whole < j.store.opts.Retained || c.number >= proven || j.pins[c.number] > 0 {
			keep = append(keep, c)
		}
		// One that cannot be read does not take the place of one that can.
		if c.refs != nil {
			whole++
		}
	}
	return keep
}

// remove drops a checkpoint's folder.
func (j *Job) remove(ctx context.Context, n uint64) error {
	if err := dropFolder(ctx, j.store.fs, j.dir(n)); err != nil {
		return fmt.Errorf("remove checkpoint %d: %w", n, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.known, n)
	delete(j.claimed, n)
	return nil
}

// sweep removes shared files of attempts that match, made by this or an earlier
// generation, that no kept checkpoint refers to and no pending one can.
func (j *Job) sweep(ctx context.Context, keep []*chk, proven uint64, match func(ID) bool) error {
	refs := map[string]bool{}
	for _, c := range keep {
		if c.refs == nil {
			return nil // what it needs is not known; it goes with time
		}
		for name := range c.refs {
			refs[name] = true
		}
	}
	return j.store.sweepShared(ctx, j.id, func(name string, id ID) bool {
		over := id.Generation < j.generation || id.Generation == j.generation && id.Number <= proven
		return over && match(id) && !refs[name]
	})
}

// sweepShared removes those of a job's shared files that match, of what this program wrote.
func (s *Store) sweepShared(ctx context.Context, job string, match func(name string, id ID) bool) error {
	dir := s.in(job, sharedDir)
	infos, err := s.fs.Files(ctx, dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	var gone []string
	for _, info := range infos {
		base := path.Base(info.Name)
		if id, ok := parseShared(base); ok && match(base, id) {
			gone = append(gone, info.Name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := s.fs.Remove(ctx, gone...); err != nil {
		return fmt.Errorf("remove %d files of %s: %w", len(gone), dir, err)
	}
	return nil
}

// removeOwners drops the records of owners older than every kept checkpoint, which no
// question about those needs. The files that take the generations stay for good: an old
// process that wakes must find the one after its own.
func (j *Job) removeOwners(ctx context.Context, keep []*chk) error {
	oldest := j.generation
	for _, c := range keep {
		if c.refs == nil {
			return nil
		}
		oldest = min(oldest, c.id.Generation)
	}
	j.mu.Lock()
	var old []uint64
	for g, o := range j.owners {
		if g < oldest && !j.claimOf(&o) {
			old = append(old, g)
		}
	}
	j.mu.Unlock()
	for _, g := range old {
		if err := j.store.fs.Remove(ctx, j.store.in(ownerRecord(g))); err != nil {
			return fmt.Errorf("remove %s: %w", ownerRecord(g), err)
		}
		j.mu.Lock()
		delete(j.owners, g)
		j.mu.Unlock()
	}
	return nil
}
