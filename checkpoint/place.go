package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// byHand finds the checkpoint that a path names and refuses what may not be restored.
// Its state files are not verified yet.
func (s *Store) byHand(ctx context.Context, sv *Survey, from string) (*candidate, error) {
	u, err := storage.Parse(from)
	if err != nil {
		return nil, connectors.Permanent(fmt.Errorf("restore %s: %w", from, err))
	}
	folder(u)
	at, own, err := s.placeOf(u)
	if err != nil {
		return nil, connectors.Permanent(fmt.Errorf("restore %s: %w", from, err))
	}
	name := at.dir
	m, err := readMetadata(ctx, at.fs, at.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noMetadata(ctx, at, "restore "+from, err)
	}
	if err != nil {
		return nil, refuseDamaged(from, err)
	}
	committed, err := storage.Exists(ctx, at.fs, at.dir+"/"+committedName)
	if err != nil {
		return nil, fmt.Errorf("restore %s: %w", from, err)
	}
	c := &candidate{place: at, path: u.String(), number: m.Number, meta: m, committed: committed}
	inPlace := own && name == s.in(m.Job, chkName(m.Number))
	c.savepoint = !inPlace && m.selfContained()
	if job := path.Base(path.Dir(name)); own && !c.savepoint && path.Dir(path.Dir(name)) == s.pipeline && isJobID(job) {
		if err := s.belongs(m, job, m.Number, name); err != nil {
			return nil, refuseDamaged(from, err)
		}
	}
	// A generation that nobody has taken here was counted on another storage.
	c.foreign = m.Pipeline != s.pipeline || m.Generation > sv.Highest || !c.savepoint && !inPlace
	return c, s.checkByHand(sv, c, from)
}

// checkByHand refuses a checkpoint whose commits are not proven where this pipeline
// may not finish them.
func (s *Store) checkByHand(sv *Survey, c *candidate, from string) error {
	if c.committed || c.savepoint {
		return nil
	}
	if c.foreign {
		return connectors.Permanent(fmt.Errorf("restore %s: it is checkpoint %d of pipeline %s in another place than that pipeline's own folder, and has no %s: its commits may be unfinished and cannot be finished from here; take one that is committed, or a savepoint",
			from, c.number, c.meta.Pipeline, committedName))
	}
	if sv.Owners.Orphan(c.meta.ID()) {
		return connectors.Permanent(fmt.Errorf("restore %s: a newer process went on from an older checkpoint, and this one has no %s: what it prepared has been taken away; take one that is committed",
			from, committedName))
	}
	return nil
}

const whereCheckpointsAre = "; a path leads to the folder of a checkpoint, such as STORAGE/PIPELINE/JOB/chk-12: etl checkpoint list shows them"

// noMetadata says what is there instead.
func noMetadata(ctx context.Context, at place, what string, err error) error {
	hint := ""
	if dirs, listErr := at.fs.Dirs(ctx, at.dir); listErr == nil {
		var inside []string
		for _, n := range chkNumbers(dirs) {
			inside = append(inside, chkName(n))
		}
		for _, d := range dirs {
			if strings.HasPrefix(d, "savepoint-") {
				inside = append(inside, d)
			}
		}
		if len(inside) > 0 {
			hint = "; the folder holds " + strings.Join(inside[max(0, len(inside)-5):], ", ") + ": name one of them"
		}
	}
	if hint == "" {
		hint = whereCheckpointsAre
	}
	return connectors.Permanent(&noCheckpointError{text: what + ": there is no checkpoint" + hint, err: err})
}

// noCheckpointError is a path without a checkpoint, in words for a person.
type noCheckpointError struct {
	text string
	err  error
}

func (e *noCheckpointError) Error() string { return e.text }
func (e *noCheckpointError) Unwrap() error { return e.err }

// folder strips the name of the metadata off an address.
func folder(u *url.URL) {
	u.Path = strings.TrimRight(u.Path, "/")
	u.Path = strings.TrimRight(strings.TrimSuffix(u.Path, "/"+metadataName), "/")
	u.RawPath = ""
}

// within reports whether an address lies in the store's own file system, and its name there.
func (s *Store) within(u *url.URL) (bool, string) {
	root, err := storage.Parse(s.fs.URL())
	if err != nil || root.Scheme != u.Scheme || root.Host != u.Host {
		return false, ""
	}
	name, ok := strings.CutPrefix(realPath(u), strings.TrimRight(realPath(root), "/")+"/")
	return ok && storage.CheckName(name) == nil, name
}

// relocated is where a checkpoint of this pipeline lies now that a record names: the
// pipeline's folder may have been copied or moved since, with all that is in it.
func (s *Store) relocated(ctx context.Context, address string) (string, error) {
	u, err := storage.Parse(address)
	if err != nil {
		return address, nil //nolint:nilerr // that it is no address is said where it is used
	}
	folder(u)
	if own, _ := s.within(u); own {
		return address, nil
	}
	job, chk := path.Base(path.Dir(u.Path)), path.Base(u.Path)
	if _, isChk := parseChk(chk); !isChk || !isJobID(job) || path.Base(path.Dir(path.Dir(u.Path))) != s.pipeline {
		return address, nil
	}
	here, err := storage.Exists(ctx, s.fs, s.in(job, chk, metadataName))
	if err != nil {
		return "", fmt.Errorf("look for %s in the pipeline's folder: %w", address, err)
	}
	if !here {
		return address, nil
	}
	return s.address(s.in(job, chk)), nil
}

// realPath is the path of an address with local links followed.
func realPath(u *url.URL) string {
	if u.Scheme == "file" {
		if p, err := filepath.EvalSymlinks(filepath.FromSlash(u.Path)); err == nil {
			return filepath.ToSlash(p)
		}
	}
	return u.Path
}

// outside opens the folder above an address, since a checkpoint's files may lie in
// the folder beside it.
func outside(u *url.URL) (place, error) {
	up := *u
	up.Path = path.Dir(u.Path)
	dir := path.Base(u.Path)
	if dir == "." || dir == "/" {
		return place{}, errors.New("this is the root of a store and no checkpoint" + whereCheckpointsAre)
	}
	if err := storage.CheckName(dir); err != nil {
		return place{}, err
	}
	f, err := storage.Open(up.String())
	return place{fs: f, dir: dir}, err
}

// verifyWorkers is how many files are read at once.
const verifyWorkers = 4

// verifiable can tell whether a file is what was written.
type verifiable interface {
	verify(ctx context.Context, s connectors.StateFile) error
}

// verifyFiles reads files to their ends and returns what is wrong with them, in
// their order; at most one fault where first is enough.
func verifyFiles(ctx context.Context, f verifiable, list []connectors.StateFile, first bool) []error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(list))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(verifyWorkers, len(list)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = f.verify(ctx, list[i])
				if errs[i] != nil && first {
					cancel()
				}
			}
		})
	}
	for i := range list {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	return faults(ctx, errs, first)
}

// faults leaves out the reads that another fault has cut short.
func faults(ctx context.Context, errs []error, first bool) []error {
	var out []error
	for _, err := range errs {
		if err != nil && !(first && errors.Is(err, context.Canceled)) {
			out = append(out, err)
		}
	}
	if len(out) == 0 && ctx.Err() != nil {
		return []error{context.Cause(ctx)}
	}
	return out
}
