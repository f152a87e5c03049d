package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// With claim: yes, what -s restored belongs to the new job: it is removed once as many
// of the job's own checkpoints are complete as are retained. That it is claimed stands
// in the record of the owner, and what a removal that was cut off has left is found
// from there again. Another start that restores the same path at that time finds it gone.

// checkClaim refuses to claim what may not be removed later.
func (s *Store) checkClaim(c *candidate, from string) error {
	base := path.Base(c.dir)
	_, isChk := parseChk(base)
	var reason string
	switch {
	case c.savepoint && isSavepointName(base), isChk && !c.foreign && c.job() == c.meta.Job:
		return nil
	case c.savepoint:
		reason = fmt.Sprintf("the folder of a savepoint is called savepoint-, 6 and 12 hex digits, and this one %s: it may hold other things", base)
	case c.meta.Pipeline != s.pipeline:
		reason = fmt.Sprintf("it is a checkpoint of pipeline %s, which may be running on it", c.meta.Pipeline)
	default:
		reason = "it is a checkpoint in another place than its pipeline's own folder, and what else needs its files cannot be told"
	}
	return connectors.Permanent(fmt.Errorf("claim %s: %s; restore it with claim: no", from, reason))
}

// job is the folder above that of a checkpoint.
func (c *candidate) job() string { return path.Base(path.Dir(c.dir)) }

// settleClaims removes what the job has claimed and its own checkpoints have subsumed.
func (j *Job) settleClaims(ctx context.Context, keep []*chk) error {
	own := 0
	for _, c := range keep {
		// The first one is left out: until the next is proven, sinks still read what was restored.
		if c.refs != nil && c.committed && c.kind != Initial {
			own++
		}
	}
	if own < j.store.opts.Retained {
		return nil
	}
	var errs []error
	for g, o := range j.claims() {
		err := j.CheckOwner(ctx)
		if err == nil {
			err = j.removeClaimed(ctx, &o)
		}
		switch {
		case isFenced(err):
			return err
		case isDamage(err), isVersion(err), errors.Is(err, errNotClaimable):
			// The record stays, so that a later start looks again.
			j.store.log.Warn("what this job has claimed stays where it is", "path", o.RestoredPath, "err", err)
			j.settle(g, false)
		case err != nil:
			errs = append(errs, fmt.Errorf("remove the claimed %s: %w", o.RestoredPath, err))
		default:
			j.store.log.Info("removed what this job had claimed", "path", o.RestoredPath)
			j.settle(g, true)
		}
	}
	return errors.Join(errs...)
}

// claims are the job's owners whose claims are to be settled.
func (j *Job) claims() map[uint64]Owner {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[uint64]Owner{}
	for g, o := range j.owners {
		if j.claimOf(&o) && !j.left[g] {
			out[g] = o
		}
	}
	return out
}

// claimOf reports whether the job has claimed what o restored and not settled it.
func (j *Job) claimOf(o *Owner) bool {
	return o.Claimed && o.Job == j.id && o.Restored != nil && o.RestoredJob != j.id
}

// settle notes that the claim of owner g is over, for good or for this process.
func (j *Job) settle(g uint64, removed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !removed {
		j.left[g] = true
		return
	}
	o := j.owners[g]
	o.Claimed = false
	j.owners[g] = o
}

// errNotClaimable says that something else lies where the claimed checkpoint was.
var errNotClaimable = errors.New("it is not what was restored from there")

func (j *Job) removeClaimed(ctx context.Context, o *Owner) error {
	u, err := storage.Parse(o.RestoredPath)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotClaimable, err)
	}
	folder(u)
	at, own, err := j.store.placeOf(u)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotClaimable, err)
	}
	base := path.Base(at.dir)
	n, isChk := parseChk(base)
	switch {
	case isSavepointName(base):
		return removeSavepoint(ctx, at, o)
	case isChk && own && n == o.Restored.Number && at.dir == j.store.in(o.RestoredJob, base):
		return j.store.removeSubsumed(ctx, o.RestoredJob, *o.Restored)
	}
	return errNotClaimable
}

// placeOf finds the folder that an address names. own says that it lies in the store.
func (s *Store) placeOf(u *url.URL) (at place, own bool, err error) {
	own, name := s.within(u)
	if own {
		return place{fs: s.fs, dir: name}, true, nil
	}
	at, err = outside(u)
	return at, false, err
}

// removeSavepoint removes a claimed savepoint's folder, if it is still the one.
func removeSavepoint(ctx context.Context, at place, o *Owner) error {
	m, err := readMetadata(ctx, at.fs, at.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist): // what a removal that was cut off has left
	case err != nil:
		return err
	case m.Job != o.RestoredJob || m.ID() != *o.Restored || !m.selfContained():
		return errNotClaimable
	}
	return dropFolder(ctx, at.fs, at.dir)
}

// removeSubsumed removes checkpoint id of an older job of the pipeline, and those files
// of it and of attempts before it that no other checkpoint of that job refers to. An
// older job's process is fenced by the generation: it completes nothing that counts.
func (s *Store) removeSubsumed(ctx context.Context, job string, id ID) error {
	found, err := s.checkpoints(ctx, job, nil)
	if err != nil {
		return err
	}
	refs := map[string]bool{}
	for _, f := range found {
		switch {
		case f.Err != nil:
			return fmt.Errorf("what checkpoint %s needs is not known: %w", f.Path, f.Err)
		case f.Meta == nil:
		case f.Number != id.Number:
			for name := range sharedRefs(f.Meta) {
				refs[name] = true
			}
		case f.Meta.ID() != id:
			return errNotClaimable
		}
	}
	if err := dropFolder(ctx, s.fs, s.in(job, chkName(id.Number))); err != nil {
		return err
	}
	return s.sweepShared(ctx, job, func(name string, of ID) bool { return of.Number <= id.Number && !refs[name] })
}
