package checkpoint

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Difference is what changed from one checkpoint to another.
type Difference struct {
	From Facts `json:"from"`
	To   Facts `json:"to"`
	// Operators are those of both, in the order of the second, then those of the first only.
	Operators    []OperatorDifference `json:"operators"`
	Committables []CommitterCounts    `json:"committables"`
}

// Facts are what is compared of a checkpoint as a whole.
type Facts struct {
	Pipeline       string    `json:"pipeline"`
	Job            string    `json:"job"`
	Generation     uint64    `json:"generation"`
	Number         uint64    `json:"number"`
	Kind           Kind      `json:"kind"`
	Mode           string    `json:"mode"`
	Triggered      time.Time `json:"triggered"`
	Completed      time.Time `json:"completed"`
	Drained        bool      `json:"drained"`
	Definition     string    `json:"definition"`
	MaxParallelism int       `json:"max_parallelism"`
	// Files and Bytes are those of all state, each file once.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// OperatorDifference is one operator in both checkpoints.
type OperatorDifference struct {
	UID    string            `json:"uid"`
	From   *OperatorFacts    `json:"from"` // nil where it is in the second only
	To     *OperatorFacts    `json:"to"`   // nil where it is in the first only
	Splits []SplitDifference `json:"splits,omitempty"`
}

// Changed reports whether anything of the operator differs.
func (d *OperatorDifference) Changed() bool {
	return d.From == nil || d.To == nil || *d.From != *d.To || slices.ContainsFunc(d.Splits, func(s SplitDifference) bool { return s.Changed() })
}

// OperatorFacts are what is compared of an operator.
type OperatorFacts struct {
	Kind        string `json:"kind"`
	Parallelism int    `json:"parallelism"`
	// Definition is what its state hangs on, where it notes that.
	Definition string `json:"definition,omitempty"`
	// Files and Bytes are those of its state, what it shares with others included.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// SplitDifference is one split of a source in both checkpoints.
type SplitDifference struct {
	ID   string            `json:"id"`
	From *connectors.Split `json:"from"` // nil where it is new
	To   *connectors.Split `json:"to"`   // nil where it is gone
	// Records is how far it was read from one to the other; negative where the second
	// is behind, 0 where it is in one only.
	Records int64 `json:"records"`
}

// Changed reports whether the split is not the same in both.
func (s *SplitDifference) Changed() bool {
	return s.From == nil || s.To == nil || s.Records != 0 || s.From.Until != s.To.Until || !bytes.Equal(s.From.Detail, s.To.Detail)
}

// CommitterCounts is how much each checkpoint holds for one committer.
type CommitterCounts struct {
	Committer string `json:"committer"`
	// From and To count committables that are not empty.
	From int `json:"from"`
	To   int `json:"to"`
	// RecordsFrom and RecordsTo are how many records they publish, as far as it is known.
	RecordsFrom int64 `json:"records_from"`
	RecordsTo   int64 `json:"records_to"`
}

// Compare tells what changed from a to b. definition is what the state of an operator
// hangs on, in words; empty where it notes nothing.
func Compare(a, b *Metadata, definition func(*Operator) string) *Difference {
	d := &Difference{From: factsOf(a), To: factsOf(b), Operators: []OperatorDifference{}, Committables: committers(a, b)}
	before := map[string]*Operator{}
	for i := range a.Operators {
		before[a.Operators[i].UID] = &a.Operators[i]
	}
	for i := range b.Operators {
		op := &b.Operators[i]
		d.Operators = append(d.Operators, compareOperator(before[op.UID], op, definition))
		delete(before, op.UID)
	}
	for i := range a.Operators {
		if op := &a.Operators[i]; before[op.UID] != nil {
			d.Operators = append(d.Operators, compareOperator(op, nil, definition))
		}
	}
	return d
}

func factsOf(m *Metadata) Facts {
	f := Facts{
		Pipeline: m.Pipeline, Job: m.Job, Generation: m.Generation, Number: m.Number, Kind: m.Kind, Mode: m.Mode,
		Triggered: m.Triggered, Completed: m.Completed, Drained: m.Drained, Definition: m.Definition, MaxParallelism: m.MaxParallelism,
	}
	for _, file := range m.Files() {
		f.Files++
		f.Bytes += file.Size
	}
	return f
}

func compareOperator(a, b *Operator, definition func(*Operator) string) OperatorDifference {
	d := OperatorDifference{From: operatorFacts(a, definition), To: operatorFacts(b, definition)}
	var from, to []connectors.Split
	if a != nil {
		d.UID, from = a.UID, a.Splits
	}
	if b != nil {
		d.UID, to = b.UID, b.Splits
	}
	d.Splits = compareSplits(from, to)
	return d
}

// compareSplits pairs splits by their ids, sorted as the metadata has them.
func compareSplits(from, to []connectors.Split) []SplitDifference {
	pairs := map[string]*SplitDifference{}
	pair := func(id string) *SplitDifference {
		if pairs[id] == nil {
			pairs[id] = &SplitDifference{ID: id}
		}
		return pairs[id]
	}
	for i := range from {
		pair(from[i].ID).From = &from[i]
	}
	for i := range to {
		pair(to[i].ID).To = &to[i]
	}
	var out []SplitDifference
	for _, id := range slices.Sorted(maps.Keys(pairs)) {
		p := pairs[id]
		if p.From != nil && p.To != nil {
			p.Records = p.To.Offset - p.From.Offset
		}
		out = append(out, *p)
	}
	return out
}

func operatorFacts(op *Operator, definition func(*Operator) string) *OperatorFacts {
	if op == nil {
		return nil
	}
	f := &OperatorFacts{Kind: op.Kind, Parallelism: op.Parallelism, Definition: definition(op)}
	one := Metadata{Operators: []Operator{*op}}
	for _, file := range one.Files() {
		f.Files++
		f.Bytes += file.Size
	}
	return f
}

func committers(a, b *Metadata) []CommitterCounts {
	out := []CommitterCounts{}
	at := map[string]int{}
	for i, m := range []*Metadata{a, b} {
		for k := range m.Committables {
			c := &m.Committables[k]
			n, ok := at[c.Committer]
			if !ok {
				n = len(out)
				at[c.Committer], out = n, append(out, CommitterCounts{Committer: c.Committer})
			}
			switch {
			case c.Empty:
			case i == 0:
				out[n].From++
				out[n].RecordsFrom += c.Records
			default:
				out[n].To++
				out[n].RecordsTo += c.Records
			}
		}
	}
	return out
}
