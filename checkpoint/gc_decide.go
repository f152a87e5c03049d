package checkpoint

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

// decideGarbage is the decision over what was read. Its paths are relative to the
// pipeline's folder.
func decideGarbage(inv *inventory, opts GCOptions, now time.Time) *Garbage {
	d := &gcDecision{inv: inv, opts: opts, now: now, g: &Garbage{Highest: inv.highest}}
	var old []*jobFiles
	for i := range inv.jobs {
		j := &inv.jobs[i]
		if j.id == inv.current {
			d.current(j)
		} else {
			old = append(old, j)
		}
	}
	// The newest first, for the count of those that stay.
	slices.SortStableFunc(old, func(a, b *jobFiles) int { return b.modified().Compare(a.modified()) })
	for i, j := range old {
		if i < opts.KeepJobs {
			d.keep(j.id, fmt.Sprintf("it is one of the newest %d jobs before the current one", opts.KeepJobs))
			continue
		}
		d.old(j)
	}
	slices.SortStableFunc(d.g.Items, func(a, b GarbageItem) int {
		return cmp.Or(a.Modified.Compare(b.Modified), cmp.Compare(a.Path, b.Path))
	})
	return d.g
}

type gcDecision struct {
	inv  *inventory
	opts GCOptions
	now  time.Time
	g    *Garbage
}

func (d *gcDecision) keep(path, reason string) {
	d.g.Kept = append(d.g.Kept, Kept{Path: path, Reason: reason})
}

func (d *gcDecision) young(modified time.Time) bool { return d.now.Sub(modified) < d.opts.Grace }

// old decides on the folder of a job that is not the current one. It goes as a whole
// or not at all.
func (d *gcDecision) old(j *jobFiles) {
	if reason := d.needed(j); reason != "" {
		d.keep(j.id, reason)
		return
	}
	it := GarbageItem{What: OldJob, Path: j.id, Reason: "a job before the current one", root: j.id}
	for i := range j.checkpoints {
		c := &j.checkpoints[i]
		it.dirs = append(it.dirs, j.id+"/"+chkName(c.Number))
		it.count(c.files)
	}
	for _, infos := range [][]storage.Info{j.shared, j.others} {
		it.count(infos)
		for _, info := range infos {
			it.files = append(it.files, info.Name)
		}
	}
	d.g.Items = append(d.g.Items, it)
}

// needed is why an old job stays; empty where it can go.
func (d *gcDecision) needed(j *jobFiles) string {
	for i := range j.checkpoints {
		if c := &j.checkpoints[i]; c.Err != nil {
			return fmt.Sprintf("the metadata of its checkpoint %d cannot be read: %v", c.Number, c.Err)
		}
	}
	switch {
	case len(j.strange) > 0:
		return fmt.Sprintf("it holds %s, which is no file of a job", j.strange[0])
	case d.young(j.modified()):
		return fmt.Sprintf("it was written to within the last %s", d.opts.Grace)
	case d.inv.silent && d.now.Sub(d.inv.silentAt) < max(d.opts.Grace, leastSilence):
		return "a process is starting and has not said yet what it restores"
	}
	for _, o := range d.inv.owners {
		if o.Job == d.inv.current && o.RestoredJob == j.id && !d.standsAlone() {
			return "the current job began with a checkpoint of it and has no proven one of its own since"
		}
	}
	return ""
}

// leastSilence is how long an owner may take from its generation to its record, whatever
// the grace: it waits for sinks that are down.
const leastSilence = time.Hour

// standsAlone reports whether the current job has proven a checkpoint after its first:
// until then its sinks may read what they were restored from.
func (d *gcDecision) standsAlone() bool {
	for i := range d.inv.jobs {
		if j := &d.inv.jobs[i]; j.id == d.inv.current {
			p := j.proven()
			return p != nil && p.Meta.Kind != Initial
		}
	}
	return false
}

// current decides on what the current job does not need: never a complete checkpoint,
// which is for retention to judge, and nothing that an attempt which is not over by
// the rules of retention can refer to.
func (d *gcDecision) current(j *jobFiles) {
	proven := j.proven()
	if proven == nil {
		return
	}
	refs := map[string]bool{}
	underWay := false
	for i := range j.checkpoints {
		c := &j.checkpoints[i]
		if c.Err != nil {
			d.keep(j.id, fmt.Sprintf("the metadata of its checkpoint %d cannot be read, so it is not known what it needs: %v", c.Number, c.Err))
			return
		}
		if c.Meta != nil {
			for name := range sharedRefs(c.Meta) {
				refs[name] = true
			}
		}
		underWay = underWay || !c.Complete && c.Number > proven.Number
	}
	d.deadAttempts(j, proven)
	// One under way may refer to files of a checkpoint that somebody has removed since.
	if underWay && !j.ended {
		d.keep(j.id+"/"+sharedDir, "a checkpoint is being taken, or was when the process ended: the next proven one tells what of it is needed")
		return
	}
	d.looseFiles(j, proven, refs)
}

func (d *gcDecision) deadAttempts(j *jobFiles, proven *chkFiles) {
	for i := range j.checkpoints {
		c := &j.checkpoints[i]
		if c.Complete || c.Number >= proven.Number || d.young(newest(c.files)) {
			continue
		}
		dir := j.id + "/" + chkName(c.Number)
		it := GarbageItem{What: DeadAttempt, Path: dir, dirs: []string{dir},
			Reason: fmt.Sprintf("it has no metadata, and checkpoint %d after it is proven", proven.Number)}
		it.count(c.files)
		d.g.Items = append(d.g.Items, it)
	}
}

// looseFiles finds the shared files of attempts that are over which nothing refers
// to, one item for each attempt.
func (d *gcDecision) looseFiles(j *jobFiles, proven *chkFiles, refs map[string]bool) {
	by := map[ID]*GarbageItem{}
	var order []ID
	for _, info := range j.shared {
		base := path.Base(info.Name)
		id, _ := parseShared(base)
		last := proven.Meta.ID()
		over := id.Generation < last.Generation || id.Generation == last.Generation && id.Number <= last.Number
		if refs[base] || !over || d.young(info.Modified) {
			continue
		}
		it := by[id]
		if it == nil {
			it = &GarbageItem{What: LooseFile, Path: fmt.Sprintf("%s/%s/%d-%d-*", j.id, sharedDir, id.Generation, id.Number),
				Reason: fmt.Sprintf("no checkpoint refers to them, and checkpoint %d after them is proven", proven.Number)}
			by[id], order = it, append(order, id)
		}
		it.count([]storage.Info{info})
		it.files = append(it.files, info.Name)
	}
	for _, id := range order {
		d.g.Items = append(d.g.Items, *by[id])
	}
}

// proven is the job's newest checkpoint that is complete, committed and on the line.
func (j *jobFiles) proven() *chkFiles {
	for _, c := range slices.Backward(j.checkpoints) {
		if c.Meta != nil && c.Committed && !c.Orphan {
			return &c
		}
	}
	return nil
}

func (j *jobFiles) modified() time.Time {
	latest := newest(j.shared)
	for _, at := range append([]time.Time{newest(j.others)}, chkTimes(j.checkpoints)...) {
		if at.After(latest) {
			latest = at
		}
	}
	return latest
}

func chkTimes(all []chkFiles) []time.Time {
	out := make([]time.Time, len(all))
	for i := range all {
		out[i] = newest(all[i].files)
	}
	return out
}

func newest(infos []storage.Info) time.Time {
	var latest time.Time
	for _, info := range infos {
		if info.Modified.After(latest) {
			latest = info.Modified
		}
	}
	return latest
}

func (it *GarbageItem) count(infos []storage.Info) {
	for _, info := range infos {
		it.Files++
		it.Bytes += info.Size
	}
	if at := newest(infos); at.After(it.Modified) {
		it.Modified = at
	}
}
