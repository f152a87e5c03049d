package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// standing is how what sinks have published stands to a checkpoint.
type standing struct {
	behind  []string // why going on from it would publish twice; empty where it would not
	foreign []string // marks of other pipelines or storages that sinks hold
}

func (s *standing) reason() string { return strings.Join(s.behind, "; ") }

// standingOf looks whether some sink has published more than r, nil for nothing. above
// are the checkpoints that r takes the place of.
func (c *committers) standingOf(ctx context.Context, owners checkpoint.Lineage, r *checkpoint.ID, above []checkpoint.Found) (standing, error) {
	var st standing
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		by := c.byID[id]
		w, ok, err := by.Witness(ctx)
		var foreign *connectors.ForeignWitnessError
		switch {
		case errors.Is(err, connectors.ErrNoWitness):
			for i := range above {
				reason, err := publishedIn(ctx, by, &above[i], r)
				if err != nil {
					return st, fmt.Errorf("look what %s has published: %w", id, err)
				}
				if reason != "" {
					st.behind = append(st.behind, reason)
					break
				}
			}
		case errors.As(err, &foreign):
			mark := id + " " + foreign.Mark
			st.foreign = append(st.foreign, mark)
			if !owners.Acknowledged(mark) {
				st.behind = append(st.behind, id+": "+foreign.Error())
			}
		case err != nil:
			return st, fmt.Errorf("read the witness of %s: %w", id, err)
		case !ok || owners.LeftBehind(w):
		case r == nil || owners.Behind(*r, w):
			st.behind = append(st.behind, fmt.Sprintf("%s has published checkpoint %d of generation %d", id, w.Number, w.Generation))
		}
	}
	return st, nil
}

// publishedIn says that a committer without a witness has published something of a
// checkpoint beyond r, or may have; empty where it has not.
func publishedIn(ctx context.Context, by connectors.Committer, f *checkpoint.Found, r *checkpoint.ID) (string, error) {
	if f.Meta == nil {
		return fmt.Sprintf("%s may have published checkpoint %d, which cannot be read", by.ID(), f.Number), nil
	}
	checker, tells := by.(connectors.PublishedChecker)
	for i := range f.Meta.Committables {
		cm := &f.Meta.Committables[i]
		// What r holds too is not published a second time.
		if cm.Committer != by.ID() || cm.Empty || r != nil && cm.Checkpoint.Number <= r.Number {
			continue
		}
		if f.Committed {
			return fmt.Sprintf("%s has published checkpoint %d of generation %d", by.ID(), f.Number, f.Meta.Generation), nil
		}
		if !tells {
			return fmt.Sprintf("%s may have published checkpoint %d", by.ID(), f.Number), nil
		}
		is, err := checker.Published(ctx, *cm)
		if err != nil {
			return "", err
		}
		if is {
			return fmt.Sprintf("%s has published something of checkpoint %d of generation %d", by.ID(), f.Number, f.Meta.Generation), nil
		}
	}
	return "", nil
}

// unproven names a committer whose output of a checkpoint is not proven to be published.
func (c *committers) unproven(ctx context.Context, owners checkpoint.Lineage, f *checkpoint.Found) (string, error) {
	if f.Committed || f.Meta == nil {
		return "", nil
	}
	for i := range f.Meta.Committables {
		cm := &f.Meta.Committables[i]
		by := c.byID[cm.Committer]
		if cm.Empty || by == nil {
			continue
		}
		w, ok, err := by.Witness(ctx)
		var foreign *connectors.ForeignWitnessError
		switch {
		case errors.Is(err, connectors.ErrNoWitness), errors.As(err, &foreign):
			return cm.Committer, nil
		case err != nil:
			return "", fmt.Errorf("read the witness of %s: %w", cm.Committer, err)
		case !ok || !owners.Proven(w, cm.Checkpoint):
			return cm.Committer, nil
		}
	}
	return "", nil
}

// Republished is what one sink has published beyond a checkpoint, and publishes again
// when the pipeline goes on from that.
type Republished struct {
	Sink string `json:"sink"` // as its committables name it
	// First and Last are checkpoints, both included, and Generation is that of the last.
	First      uint64 `json:"first"`
	Last       uint64 `json:"last"`
	Generation uint64 `json:"generation"`
	// Held says that the checkpoint holds rows from before it which the sink had not
	// published then, such as a file in the making: they are published again too.
	Held bool `json:"held,omitempty"`
	// Splits is what is read again; nil where the last checkpoint is not kept any more.
	Splits []SplitRange `json:"splits,omitempty"`
}

// SplitRange is a part of a split, To not included.
type SplitRange struct {
	Source string `json:"source"`
	Split  string `json:"split"`
	From   int64  `json:"from"` // -1 for where a new job begins
	To     int64  `json:"to"`
}

func (s SplitRange) String() string {
	if s.From < 0 {
		return fmt.Sprintf("%s up to %d", s.Split, s.To)
	}
	return fmt.Sprintf("%s from %d to %d", s.Split, s.From, s.To)
}

// shownSplits bounds how many ranges a line of the log has.
const shownSplits = 20

func (p *Republished) log(log *slog.Logger) {
	splits := "unknown, as that checkpoint is not kept any more"
	if p.Splits != nil {
		var text []string
		for _, s := range p.Splits[:min(shownSplits, len(p.Splits))] {
			text = append(text, s.String())
		}
		if more := len(p.Splits) - len(text); more > 0 {
			text = append(text, fmt.Sprintf("and %d more", more))
		}
		splits = strings.Join(text, ", ")
	}
	if p.Held {
		splits += ", and rows from before the checkpoint that it holds"
	}
	log.Warn("results are published again, as asked: the sink has published more than what is restored",
		"sink", p.Sink, "checkpoints", numbered(p.First, p.Last), "generation", p.Generation, "offsets", splits)
}

// numbered are checkpoints from first to last in words.
func numbered(first, last uint64) string {
	if first >= last {
		return strconv.FormatUint(last, 10)
	}
	return fmt.Sprintf("%d to %d", first, last)
}

// republished finds what is published again when the pipeline goes on from restore.
func (r *runner) republished(ctx context.Context, c *committers, owners checkpoint.Lineage, restore *checkpoint.Restore) ([]Republished, error) {
	jobs, err := r.store.List(ctx)
	if err != nil {
		return nil, err
	}
	var kept []checkpoint.Found
	for _, j := range jobs {
		kept = append(kept, j.Checkpoints...)
	}
	from := ownID(restore)
	var out []Republished
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		w, ok, err := c.byID[id].Witness(ctx)
		var foreign *connectors.ForeignWitnessError
		switch {
		case errors.Is(err, connectors.ErrNoWitness):
			w, ok = newestOf(kept, owners, from, id)
		case errors.As(err, &foreign):
			continue
		case err != nil:
			return nil, fmt.Errorf("read the witness of %s: %w", id, err)
		}
		if !ok || owners.LeftBehind(w) || from != nil && !owners.Behind(*from, w) {
			continue
		}
		p := Republished{Sink: id, First: 1, Last: w.Number, Generation: w.Generation}
		if from != nil {
			p.First = min(from.Number+1, w.Number)
		}
		for _, uid := range c.uids[id] {
			op := findOperator(restore.Meta, uid)
			p.Held = p.Held || op != nil && slices.ContainsFunc(op.Subtasks, func(s checkpoint.SubtaskState) bool { return len(s.Files) > 0 })
		}
		for i := range kept {
			if m := kept[i].Meta; m != nil && m.ID() == w {
				p.Splits = splitsBetween(restore.Meta, m)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// ownID is the restored checkpoint, where it is one of this pipeline's line.
func ownID(restore *checkpoint.Restore) *checkpoint.ID {
	if restore.Meta == nil || restore.Foreign {
		return nil
	}
	id := restore.Meta.ID()
	return &id
}

// newestOf is the newest checkpoint beyond from of which a committer without a witness
// has published something.
func newestOf(kept []checkpoint.Found, owners checkpoint.Lineage, from *checkpoint.ID, committer string) (newest checkpoint.ID, ok bool) {
	for i := range kept {
		f := &kept[i]
		if !f.Committed || f.Meta == nil || owners.LeftBehind(f.Meta.ID()) || from != nil && !owners.Behind(*from, f.Meta.ID()) {
			continue
		}
		gives := slices.ContainsFunc(f.Meta.Committables, func(c connectors.Committable) bool { return c.Committer == committer && !c.Empty })
		id := f.Meta.ID()
		if gives && (!ok || cmp.Or(cmp.Compare(id.Generation, newest.Generation), cmp.Compare(id.Number, newest.Number)) > 0) {
			newest, ok = id, true
		}
	}
	return newest, ok
}

// splitsBetween is what was read from one checkpoint, nil for a start, to another.
func splitsBetween(from, to *checkpoint.Metadata) []SplitRange {
	out := []SplitRange{}
	for i := range to.Operators {
		op := &to.Operators[i]
		was := map[string]int64{}
		if before := findOperator(from, op.UID); before != nil {
			for _, sp := range before.Splits {
				was[sp.ID] = sp.Offset
			}
		}
		for _, sp := range op.Splits {
			at, known := was[sp.ID]
			if !known {
				at = -1
			}
			if at < sp.Offset && sp.Offset > 0 {
				out = append(out, SplitRange{Source: op.UID, Split: sp.ID, From: at, To: sp.Offset})
			}
		}
	}
	return out
}
