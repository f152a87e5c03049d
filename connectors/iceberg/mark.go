package iceberg

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/sluice-etl/sluice/connectors"
)

// mark is what a pipeline's sink has done to a table: the witness. It stands in a
// property of the table, which each commit sets with its snapshot and which outlives
// the snapshot. The summaries of the branch's snapshots say the same of single
// commits, for readers, and where the property was removed.
type mark struct {
	Origin string `json:"origin,omitempty"`
	// Fence is the newest generation that has taken the table over: older ones commit
	// nothing more.
	Fence uint64 `json:"fence,omitempty"`
	// Commits are the newest of each generation, the last one last.
	Commits []connectors.CheckpointID `json:"commits,omitempty"`
}

// maxCommits bounds the generations that a mark names.
const maxCommits = 32

// Keys of a snapshot's summary.
const (
	sumPipeline   = "sluice.pipeline"
	sumSink       = "sluice.sink"
	sumOrigin     = "sluice.origin"
	sumGeneration = "sluice.generation"
	sumCheckpoint = "sluice.checkpoint"
)

// owner says whose marks a sink goes by.
type owner struct{ pipeline, sink, origin string }

func (o owner) property() string { return "sluice." + o.pipeline + "." + o.sink }

// summary is that of the snapshot of a checkpoint; of a fence where the number is 0.
func (o owner) summary(id connectors.CheckpointID) map[string]string {
	s := map[string]string{
		sumPipeline: o.pipeline, sumSink: o.sink, sumOrigin: o.origin,
		sumGeneration: strconv.FormatUint(id.Generation, 10),
	}
	if id.Number > 0 {
		s[sumCheckpoint] = strconv.FormatUint(id.Number, 10)
	}
	return s
}

// read finds the mark of the owner in a table. foreign is one of another origin.
func (o owner) read(v *view) (m mark, foreign *mark, err error) {
	text := v.property(o.property())
	if text != "" {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return m, nil, connectors.Permanent(fmt.Errorf("the table's property %s is no mark of this program: %w; set it back to what it was", o.property(), err))
		}
	} else if id, origin, ok := o.newest(v, ""); ok {
		m = mark{Origin: origin, Fence: id.Generation, Commits: []connectors.CheckpointID{id}}
	}
	if m.Origin != o.origin && (m.Fence > 0 || len(m.Commits) > 0) {
		// Another pipeline of the name has overwritten the property: what is the owner's own
		// stands in the snapshots.
		own := mark{Origin: o.origin}
		if id, _, ok := o.newest(v, o.origin); ok {
			own.Fence, own.Commits = id.Generation, []connectors.CheckpointID{id}
		}
		return own, &m, nil
	}
	m.Origin = o.origin
	return m, nil, nil
}

// newest finds the owner's newest commit in the history of the branch, of one origin or,
// with none, of any.
func (o owner) newest(v *view, of string) (id connectors.CheckpointID, origin string, ok bool) {
	for s := range v.summaries() {
		if s[sumPipeline] != o.pipeline || s[sumSink] != o.sink || s[sumCheckpoint] == "" || of != "" && s[sumOrigin] != of {
			continue
		}
		g, gerr := strconv.ParseUint(s[sumGeneration], 10, 64)
		n, nerr := strconv.ParseUint(s[sumCheckpoint], 10, 64)
		if gerr == nil && nerr == nil {
			return connectors.CheckpointID{Generation: g, Number: n}, s[sumOrigin], true
		}
	}
	return id, "", false
}

func (m *mark) encode() (string, error) {
	raw, err := json.Marshal(m)
	return string(raw), err
}

// last is the newest commit.
func (m *mark) last() (connectors.CheckpointID, bool) {
	if len(m.Commits) == 0 {
		return connectors.CheckpointID{}, false
	}
	return slices.MaxFunc(m.Commits, func(a, b connectors.CheckpointID) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Number, b.Number))
	}), true
}

// proves reports whether checkpoint id is committed.
func (m *mark) proves(id connectors.CheckpointID) bool {
	return slices.ContainsFunc(m.Commits, func(c connectors.CheckpointID) bool {
		return c.Generation == id.Generation && c.Number >= id.Number
	})
}

// with is the mark once id is committed by a process.
func (m *mark) with(id connectors.CheckpointID, process uint64) mark {
	out := mark{Origin: m.Origin, Fence: max(m.Fence, process)}
	for _, c := range m.Commits {
		if c.Generation != id.Generation {
			out.Commits = append(out.Commits, c)
		}
	}
	out.Commits = append(out.Commits, id)
	out.Commits = out.Commits[max(0, len(out.Commits)-maxCommits):]
	return out
}
