package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/sluice-etl/sluice/connectors"
)

// mergeOperators puts the shares of all tasks together, an operator where its
// first task stands. What two tasks claim to own is an error: a checkpoint that
// cannot be restored must not become complete.
func mergeOperators(acks []*Ack) ([]Operator, error) {
	ops := []Operator{}
	index := map[string]int{}
	for _, a := range acks {
		for i := range a.Operators {
			s := &a.Operators[i]
			at, ok := index[s.UID]
			if !ok {
				at = len(ops)
				index[s.UID] = at
				ops = append(ops, Operator{UID: s.UID, Kind: s.Kind, Parallelism: s.Parallelism})
			}
			o := &ops[at]
			if o.Kind != s.Kind || o.Parallelism != s.Parallelism {
				return nil, fmt.Errorf("operator %s is %s of parallelism %d in one task and %s of %d in another",
					s.UID, o.Kind, o.Parallelism, s.Kind, s.Parallelism)
			}
			o.Splits = append(o.Splits, s.Splits...)
			o.KeyGroups = append(o.KeyGroups, s.KeyGroups...)
			if s.State != nil {
				o.Subtasks = append(o.Subtasks, *s.State)
			}
		}
	}
	for i := range ops {
		if err := sortOperator(&ops[i]); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

func sortOperator(o *Operator) error {
	slices.SortFunc(o.Splits, func(a, b connectors.Split) int { return cmp.Compare(a.ID, b.ID) })
	for i := 1; i < len(o.Splits); i++ {
		if o.Splits[i].ID == o.Splits[i-1].ID {
			return fmt.Errorf("operator %s: split %s is read by two subtasks", o.UID, o.Splits[i].ID)
		}
	}
	slices.SortFunc(o.Subtasks, func(a, b SubtaskState) int { return cmp.Compare(a.Subtask, b.Subtask) })
	for i := 1; i < len(o.Subtasks); i++ {
		if o.Subtasks[i].Subtask == o.Subtasks[i-1].Subtask {
			return fmt.Errorf("operator %s: subtask %d handed over twice", o.UID, o.Subtasks[i].Subtask)
		}
	}
	slices.SortStableFunc(o.KeyGroups, func(a, b KeyGroups) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	return nil
}

// mergeCommittables lists what is to be published, in order: first what can
// expire, then by the checkpoint that prepared it, then as the tasks listed it.
// Several attempts hand the same one over; it is listed once. Those in published
// were proven meanwhile and are left out.
func mergeCommittables(acks []*Ack, published map[string]uint64) []connectors.Committable {
	out := []connectors.Committable{}
	seen := map[string]bool{}
	for _, a := range acks {
		for _, c := range a.Committables {
			k := committableKey(&c)
			if _, done := published[k]; done || seen[k] {
				continue
			}
			seen[k] = true
			out = append(out, c)
		}
	}
	// The order by checkpoint matters to witnesses: one that names N says that
	// everything before N is published.
	slices.SortStableFunc(out, func(a, b connectors.Committable) int {
		return cmp.Or(
			cmp.Compare(durable(&a), durable(&b)),
			cmp.Compare(a.Checkpoint.Generation, b.Checkpoint.Generation),
			cmp.Compare(a.Checkpoint.Number, b.Checkpoint.Number))
	})
	return out
}

// durable is 1 for what cannot expire.
func durable(c *connectors.Committable) int {
	if c.Expires.IsZero() {
		return 1
	}
	return 0
}

// committableKey is equal for two mentions of one committable.
func committableKey(c *connectors.Committable) string {
	return c.Committer + "\x00" + strconv.FormatUint(c.Checkpoint.Generation, 10) +
		"\x00" + strconv.FormatUint(c.Checkpoint.Number, 10) + "\x00" + string(c.Data)
}

// size sums up the bytes of a checkpoint by file, and what is not in files.
type size struct {
	files  map[string]int64
	inline int64
}

// add counts what one task handed over. Files that several operators refer to count once.
func (s *size) add(a *Ack) {
	if s.files == nil {
		s.files = map[string]int64{}
	}
	for i := range a.Operators {
		o := &a.Operators[i]
		for _, k := range o.KeyGroups {
			s.files[k.File.Path] = k.File.Size
		}
		if o.State != nil {
			s.inline += int64(len(o.State.State))
			for _, f := range o.State.Files {
				s.files[f.Path] = f.Size
			}
		}
		for _, p := range o.Splits {
			s.inline += int64(len(p.ID) + len(p.Detail))
		}
	}
	for i := range a.Committables {
		s.inline += int64(len(a.Committables[i].Data))
	}
}

// total is the size of the whole checkpoint, and of what before does not hold.
func (s *size) total(before map[string]int64) (full, fresh int64) {
	full, fresh = s.inline, s.inline
	for path, n := range s.files {
		full += n
		if _, ok := before[path]; !ok {
			fresh += n
		}
	}
	return full, fresh
}
