package checkpoint

import (
	"maps"
	"slices"
	"time"
)

// Chooser tells who decided what a process restored.
type Chooser string

// The choosers.
const (
	ByItself Chooser = "itself" // by the rules of a restart
	ByUser   Chooser = "user"   // named on the command line, `none` too
)

// Owner is what the owner of a generation restored. Its record is written once the
// choice is made, so that later processes can tell which checkpoints are on the line.
type Owner struct {
	Generation uint64 `json:"generation"`
	Pipeline   string `json:"pipeline"`
	Job        string `json:"job"`
	// RestoredPath is where the restored checkpoint lies, as -s would take it; empty
	// where nothing was restored.
	RestoredPath string `json:"restored_path,omitempty"`
	RestoredJob  string `json:"restored_job,omitempty"`
	Restored     *ID    `json:"restored,omitempty"`
	// Foreign says that the restored checkpoint is another pipeline's, or from another
	// storage: its generation is none of this pipeline's.
	Foreign bool `json:"foreign,omitempty"`
	// Claimed says that the restored checkpoint belongs to the job and goes once it is subsumed.
	Claimed bool `json:"claimed,omitempty"`
	// Origin is the same in all owners of a pipeline's folder: the random name that
	// the first of them gave it, so that what sinks hold can be told from that of
	// another folder whose generations and numbers are the same.
	Origin string `json:"origin"`
	// Acknowledged are the marks of other pipelines or storages that sinks held when a
	// user chose what to restore: a later start by itself goes on beside them.
	Acknowledged []string  `json:"acknowledged,omitempty"`
	ChosenBy     Chooser   `json:"chosen_by"`
	Time         time.Time `json:"time"`
	Host         string    `json:"host"`
	PID          int       `json:"pid"`
}

// line is the checkpoint of this pipeline that the owner went on from.
func (o *Owner) line() (ID, bool) {
	if o.Restored == nil || o.Foreign {
		return ID{}, false
	}
	return *o.Restored, true
}

// Lineage is how the generations of a pipeline go on from each other: the records
// of their owners. All its methods are pure.
type Lineage map[uint64]Owner

// Reach is the highest number of generation r that the line of generation h goes
// through, where h restored a checkpoint of r or of a generation that did, and so on.
// ok is false where the line of h does not touch r.
func (l Lineage) Reach(h, r uint64) (n uint64, ok bool) {
	if h <= r {
		return 0, false
	}
	g := h
	for g > r {
		o := l[g]
		id, restored := o.line()
		// A record that names its own or a later generation cannot be.
		if !restored || id.Generation >= g {
			return 0, false
		}
		g, n = id.Generation, id.Number
	}
	return n, g == r
}

// Proven reports whether the witness, a target's mark of its last commit, proves that
// everything up to checkpoint id was published: it is of the same generation and at
// least that number, or of a later one whose line goes through id.
func (l Lineage) Proven(witness, id ID) bool {
	if witness.Generation == id.Generation {
		return witness.Number >= id.Number
	}
	n, ok := l.Reach(witness.Generation, id.Generation)
	return ok && n >= id.Number
}

// Behind reports whether restoring r would publish again what the witness says has
// been published: the witness is a later one of r's own generation, or one of a later
// generation that did not go on from r or something before it, or that has published
// beyond what it went on from. A witness that LeftBehind names does not count.
func (l Lineage) Behind(r, witness ID) bool {
	if l.LeftBehind(witness) || witness.Generation < r.Generation {
		return false
	}
	if witness.Generation == r.Generation {
		return witness.Number > r.Number
	}
	n, ok := l.Reach(witness.Generation, r.Generation)
	return !ok || n > r.Number || witness.Number > n
}

// LeftBehind reports whether a user has since chosen to go on from something that does
// not include the witness, which therefore binds nobody any more. Only choices for the
// newest owner's job and those that it came from count: a start that fell asleep may
// write its record long after a newer one has gone on from elsewhere.
func (l Lineage) LeftBehind(witness ID) bool {
	jobs := l.jobs()
	var chosen uint64
	for g, o := range l {
		if g > witness.Generation && g > chosen && o.ChosenBy == ByUser && jobs[o.Job] {
			chosen = g
		}
	}
	if chosen == 0 {
		return false
	}
	n, ok := l.Reach(chosen, witness.Generation)
	return !ok || n < witness.Number
}

// Orphan reports whether the newest owner, of a later generation, goes on from something
// that does not include checkpoint id: id is never restored by itself and never
// committed. What older owners say does not count, for the same reason as in LeftBehind;
// the newest has heeded what it found of them.
func (l Lineage) Orphan(id ID) bool {
	h := l.newest()
	if h <= id.Generation {
		return false
	}
	n, ok := l.Reach(h, id.Generation)
	return !ok || n < id.Number
}

// newest is the highest generation with a record, 0 for none.
func (l Lineage) newest() uint64 {
	var h uint64
	for g := range l {
		h = max(h, g)
	}
	return h
}

// jobs are the newest owner's job and all that it came from.
func (l Lineage) jobs() map[string]bool {
	jobs := map[string]bool{l[l.newest()].Job: true}
	for more := true; more; {
		more = false
		for _, o := range l {
			if jobs[o.Job] && o.RestoredJob != "" && !jobs[o.RestoredJob] {
				jobs[o.RestoredJob], more = true, true
			}
		}
	}
	return jobs
}

// generations are those with a record, the newest first.
func (l Lineage) generations() []uint64 {
	all := slices.Sorted(maps.Keys(l))
	slices.Reverse(all)
	return all
}
