package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

// GCOptions say what garbage is.
type GCOptions struct {
	// Grace is the age, by the storage's own times, below which nothing goes.
	Grace time.Duration
	// KeepJobs is how many of the jobs before the current one stay, the newest first.
	KeepJobs int
}

// Garbage is what a pipeline's folder holds that nothing needs any more.
type Garbage struct {
	Items []GarbageItem // in the order in which they are removed, the oldest first
	Kept  []Kept
	// Highest is the generation that the decision was made under.
	Highest uint64
}

// What a GarbageItem is.
const (
	OldJob      = "job"     // the whole folder of a job that is over
	DeadAttempt = "attempt" // the folder of a checkpoint that never became complete
	LooseFile   = "files"   // files of the shared folder that no checkpoint refers to
)

// GarbageItem is what is removed in one step.
type GarbageItem struct {
	What     string
	Path     string // as a user would write it
	Reason   string
	Files    int
	Bytes    int64
	Modified time.Time // of the newest file

	dirs  []string // folders that go, their metadata first, in this order
	files []string // files that go after them
	root  string   // the job's folder, where it goes once it is empty
}

// Kept is something old that stays, and why.
type Kept struct {
	Path   string
	Reason string
}

// inventory is what a pipeline's folder holds, as it was read: the files of each job
// before the metadata of its checkpoints, so that whatever becomes complete in between
// is not known, and its files are too new to go.
type inventory struct {
	highest  uint64
	owners   Lineage
	silent   bool // the newest owner has not said yet what it restores
	silentAt time.Time
	current  string
	damaged  error // why the current job or what it restored is not known
	jobs     []jobFiles
}

// jobFiles is one job's folder. Names are relative to the pipeline's.
type jobFiles struct {
	id          string
	ended       bool
	checkpoints []chkFiles // by number
	shared      []storage.Info
	others      []storage.Info // ended.json
	strange     []string       // files that this program has not made
}

// chkFiles is one checkpoint's folder.
type chkFiles struct {
	Found
	files []storage.Info
}

// Garbage finds out what could be removed. It removes nothing and needs no daemon;
// one may be running.
func (s *Store) Garbage(ctx context.Context, opts GCOptions) (*Garbage, error) {
	inv, err := s.inventory(ctx)
	if err != nil {
		return nil, err
	}
	if inv.damaged != nil {
		return nil, fmt.Errorf("pipeline %s: %w: %w", s.pipeline, ErrUnclear, inv.damaged)
	}
	g := decideGarbage(inv, opts, s.opts.Now())
	for i := range g.Items {
		g.Items[i].Path = s.address(s.in(g.Items[i].Path))
	}
	for i := range g.Kept {
		g.Kept[i].Path = s.address(s.in(g.Kept[i].Path))
	}
	return g, nil
}

func (s *Store) inventory(ctx context.Context) (*inventory, error) {
	sv := &Survey{Owners: Lineage{}, Damaged: map[string]error{}}
	if err := s.readOwners(ctx, sv); err != nil {
		return nil, err
	}
	if sv.Job == "" {
		if err := s.noticeStrayJobs(ctx, sv); err != nil {
			return nil, err
		}
	}
	inv := &inventory{highest: sv.Highest, owners: sv.Owners, current: sv.Job}
	for _, name := range slices.Sorted(maps.Keys(sv.Damaged)) {
		inv.damaged = errors.Join(inv.damaged, sv.Damaged[name])
	}
	inv.damaged = cmp.Or(inv.damaged, sv.currentErr)
	if err := s.noteSilence(ctx, inv); err != nil {
		return nil, err
	}
	dirs, err := s.fs.Dirs(ctx, s.pipeline)
	if err != nil {
		return nil, fmt.Errorf("list jobs of pipeline %s: %w", s.pipeline, err)
	}
	for _, d := range dirs {
		if !isJobID(d) {
			continue
		}
		j, err := s.jobFiles(ctx, d, sv)
		if err != nil {
			return nil, err
		}
		inv.jobs = append(inv.jobs, *j)
	}
	return inv, nil
}

// noteSilence looks whether the newest owner has said what it restores.
func (s *Store) noteSilence(ctx context.Context, inv *inventory) error {
	if _, said := inv.owners[inv.highest]; said || inv.highest == 0 {
		return nil
	}
	info, err := s.fs.Stat(ctx, s.in(ownerName(inv.highest)))
	if err != nil {
		return fmt.Errorf("look at the newest owner of pipeline %s: %w", s.pipeline, err)
	}
	inv.silent, inv.silentAt = true, info.Modified
	return nil
}

func (s *Store) jobFiles(ctx context.Context, id string, sv *Survey) (*jobFiles, error) {
	infos, err := s.fs.List(ctx, s.in(id))
	if err != nil {
		return nil, fmt.Errorf("list the files of job %s: %w", id, err)
	}
	j := &jobFiles{id: id}
	chks := map[uint64]*chkFiles{}
	for _, info := range infos {
		info.Name = strings.TrimPrefix(info.Name, s.pipeline+"/")
		name := strings.TrimPrefix(info.Name, id+"/")
		dir, base, inDir := strings.Cut(name, "/")
		n, isChk := parseChk(dir)
		_, isShared := parseShared(base)
		switch {
		case inDir && isChk:
			if chks[n] == nil {
				chks[n] = &chkFiles{}
			}
			chks[n].files = append(chks[n].files, info)
		case inDir && dir == sharedDir && isShared:
			j.shared = append(j.shared, info)
		case name == endedName:
			j.others = append(j.others, info)
		default:
			j.strange = append(j.strange, name)
		}
	}
	// The current job's end is asked for as well, since nobody works on one that has ended.
	own := &Survey{Job: id, Owners: sv.Owners, Damaged: map[string]error{}}
	if err := s.readEnded(ctx, own); err != nil {
		return nil, err
	}
	j.ended = own.Ended != nil
	for _, n := range slices.Sorted(maps.Keys(chks)) {
		c := chks[n]
		if c.Found, err = s.look(ctx, id, n); err != nil {
			return nil, err
		}
		c.Orphan = c.Meta != nil && sv.Owners.Orphan(c.Meta.ID())
		j.checkpoints = append(j.checkpoints, *c)
	}
	return j, nil
}

// removeGarbage removes one item, in an order that leaves no checkpoint with holes wherever
// it ends. A process that has started since the decision ends it: what it restores
// is not known to it.
func (s *Store) removeGarbage(ctx context.Context, g *Garbage, it *GarbageItem) error {
	newer, err := s.exists(ctx, ownerName(g.Highest+1))
	if err != nil {
		return fmt.Errorf("look for a newer owner: %w", err)
	}
	if newer {
		return ErrStarted
	}
	for _, dir := range it.dirs {
		if err := dropFolder(ctx, s.fs, s.in(dir)); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
	for part := range slices.Chunk(it.files, removeAtOnce) {
		names := make([]string, len(part))
		for i, name := range part {
			names[i] = s.in(name)
		}
		if err := s.fs.Remove(ctx, names...); err != nil {
			return fmt.Errorf("remove %d files of %s: %w", len(part), it.Path, err)
		}
	}
	if it.root == "" {
		return nil
	}
	left, err := s.fs.List(ctx, s.in(it.root))
	if err != nil || len(left) > 0 {
		return err // what has come since stays
	}
	return s.fs.RemoveAll(ctx, s.in(it.root))
}

// removeAtOnce is how many files one call removes, so that progress shows.
const removeAtOnce = 1000

// ErrUnclear says that records are damaged which tell what is needed.
var ErrUnclear = errors.New("nothing is removed, since it is not known what is needed")

// ErrStarted says that a process has started the pipeline while garbage was removed.
var ErrStarted = errors.New("a process has started the pipeline meanwhile, and may restore what was to be removed: look again")

// RemoveGarbage removes what Garbage found, and tells after each item. It ends at the
// first failure: what is left is found by the next Garbage.
func (s *Store) RemoveGarbage(ctx context.Context, g *Garbage, removed func(GarbageItem)) error {
	for i := range g.Items {
		if err := s.removeGarbage(ctx, g, &g.Items[i]); err != nil {
			return fmt.Errorf("remove garbage of pipeline %s: %w", s.pipeline, err)
		}
		removed(g.Items[i])
	}
	return nil
}
