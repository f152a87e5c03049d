package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"

	"github.com/sluice-etl/sluice/storage"
)

// RefusedError says why a checkpoint is not removed.
type RefusedError struct {
	Path   string
	Reason string
	Force  bool // whether it can be forced
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("%s is not removed: %s", e.Path, e.Reason)
	if e.Force {
		s += "; --force removes it all the same"
	}
	return s
}

// Removed is what Remove did.
type Removed struct {
	Path  string   `json:"path"`
	Files int      `json:"files"`
	Bytes int64    `json:"bytes"`
	Left  []string `json:"left,omitempty"` // what stays and why, in words
}

// Remove removes the checkpoint or savepoint that a path names: its metadata first, then
// its folder, then the files that only it referred to. A *RefusedError says that
// something needs it; force overrides where that is sane. It needs no daemon, and
// one may be running.
func Remove(ctx context.Context, address string, force bool) (*Removed, error) {
	u, err := storage.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("remove %s: %w", address, err)
	}
	folder(u)
	at, err := outside(u)
	if err != nil {
		return nil, fmt.Errorf("remove %s: %w", address, err)
	}
	r := &removal{place: at, path: u.String(), force: force, out: &Removed{Path: u.String()}}
	r.meta, err = readMetadata(ctx, at.fs, at.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noMetadata(ctx, at, "remove "+address, err)
	case err != nil && !isDamage(err) && !isVersion(err):
		return nil, fmt.Errorf("remove %s: %w", address, err)
	case err != nil && !force:
		return nil, r.refuse(true, "its metadata cannot be used, so it is not known what belongs to it: %v", err)
	}
	if r.store, r.job, r.number, err = storeOf(u); err != nil {
		return nil, fmt.Errorf("remove %s: %w", address, err)
	}
	if r.store != nil {
		if err := r.check(ctx); err != nil {
			return nil, err
		}
	}
	return r.out, r.do(ctx)
}

// removal is one Remove under way.
type removal struct {
	place
	path   string
	force  bool
	meta   *Metadata // nil where it cannot be used
	out    *Removed
	store  *Store // nil where the checkpoint is in no job's folder: a savepoint or a copy
	job    string
	number uint64

	highest   uint64
	goesOn    bool // the job is the current one and has not ended
	keepClaim bool // its number must stay taken
}

// storeOf is the store that a checkpoint's folder is in, where its path is that of one:
// STORAGE/PIPELINE/JOB/chk-N.
func storeOf(u *url.URL) (*Store, string, uint64, error) {
	n, isChk := parseChk(path.Base(u.Path))
	job := path.Base(path.Dir(u.Path))
	above := path.Dir(path.Dir(u.Path))
	if !isChk || !isJobID(job) || !isPipeline(path.Base(above)) {
		return nil, "", 0, nil
	}
	up := *u
	up.Path = path.Dir(above)
	f, err := storage.Open(up.String())
	if err != nil {
		return nil, "", 0, err
	}
	s, err := NewStore(f, path.Base(above), StoreOptions{})
	return s, job, n, err
}

func isPipeline(name string) bool { return CheckPipeline(name) == nil }

func (r *removal) refuse(force bool, reason string, args ...any) error {
	return &RefusedError{Path: r.path, Reason: fmt.Sprintf(reason, args...), Force: force}
}

// check refuses what a start or the running process needs.
func (r *removal) check(ctx context.Context) error {
	sv, err := r.store.Survey(ctx)
	if err != nil {
		return err
	}
	r.highest = sv.Highest
	switch _, said := sv.Owners[sv.Highest]; {
	case r.force:
	case sv.currentErr != nil:
		return r.refuse(true, "it is not known which job is the current one: %v", sv.currentErr)
	case !said:
		return r.refuse(true, "a process of generation %d is starting and has not said yet what it restores", sv.Highest)
	}
	// Where it is not known which job is the current one, it may be this one.
	r.goesOn = (sv.Job == r.job || sv.currentErr != nil) && sv.Ended == nil
	last, first := newestProven(sv.Checkpoints)
	for g, o := range sv.Owners {
		switch restored := o.Job == sv.Job && o.RestoredJob == r.job && o.Restored != nil && o.Restored.Number == r.number; {
		case restored && last == 0:
			return r.refuse(false, "the owner of generation %d restored it, and its job has no checkpoint of its own yet", g)
		case restored && first && sv.Ended == nil && !r.force && r.job != sv.Job:
			return r.refuse(true, "the owner of generation %d restored it, and until a checkpoint of its job after the first one is proven, running sinks may read it", g)
		}
	}
	if sv.Job != r.job {
		return nil
	}
	return r.checkCurrent(sv, last)
}

// checkCurrent is check for a checkpoint of the current job, whose newest proven one is last.
func (r *removal) checkCurrent(sv *Survey, last uint64) error {
	r.keepClaim = r.goesOn && r.number >= last
	switch {
	case r.goesOn && r.number == last:
		return r.refuse(false, "it is the newest proven checkpoint of the current job, which goes on from it; once a newer one is proven, or with a new job (--from none), it can go")
	case r.goesOn && r.number > last && r.meta != nil:
		return r.refuse(false, "it is not proven yet: what it holds for the sinks must be published first")
	case r.force:
	case sv.Ended != nil && samePlace(sv.Ended.Path, r.path):
		return r.refuse(true, "the job was %s with it, and the next start goes on from it", sv.Ended.How)
	case r.number == last:
		return r.refuse(true, "it is the newest proven checkpoint of the current job")
	}
	return nil
}

// newestProven is the number of the newest proven one, 0 for none, and whether that is
// the job's first.
func newestProven(all []Found) (n uint64, first bool) {
	for _, f := range all { // the newest first
		if f.Meta != nil && f.Committed && !f.Orphan {
			return f.Number, f.Meta.Kind == Initial
		}
	}
	return 0, false
}

// samePlace compares what records and users write for one folder.
func samePlace(a, b string) bool {
	if a == "" {
		return false
	}
	ua, err := storage.Parse(a)
	if err != nil {
		return false
	}
	ub, err := storage.Parse(b)
	if err != nil {
		return false
	}
	folder(ua)
	folder(ub)
	return ua.Scheme == ub.Scheme && ua.Host == ub.Host && realPath(ua) == realPath(ub)
}
