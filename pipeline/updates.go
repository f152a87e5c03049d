package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// opField is the field in which a changelog has the operation.
const opField = "op"

// sinkChanges is how a sink is given the rows of an updating stream.
type sinkChanges struct {
	mode connectors.ChangeMode
	op   int              // slot of the operation, for a changelog
	key  *connectors.Expr // for upserts
}

// takeChanges decides how the sink at n takes what comes in, and refuses an
// updating stream where it cannot be taken.
func (b *planner) takeChanges(n *node, s *spec.Sink) {
	var c connectors.Changes
	if s.Spec.Changes != nil {
		c = s.Spec.Changes(s.Config)
	}
	updates := n.in.Updates()
	switch {
	case c.Mode == connectors.Changelog:
		b.changelog(n, s)
	case updates == nil:
	case c.Mode == connectors.AppendOnly:
		b.refuseChanges(n, s)
	case c.Mode == connectors.Upserts:
		n.sink.changes = sinkChanges{mode: c.Mode, key: c.Key}
		b.warnOfKey(s, c.Key, updates)
	}
}

// changelog puts the operation behind the other fields.
func (b *planner) changelog(n *node, s *spec.Sink) {
	if slices.ContainsFunc(n.in.Fields(), func(f transform.FieldInfo) bool { return f.Name == opField }) {
		b.fault(append(s.ConfigPath(), "changelog"), &connectors.FieldError{
			Msg:  "a changelog writes the operation as the field op, and the records have a field of that name",
			Help: "rename it before: rename: {op: NAME}",
		})
		return
	}
	slot := n.chain.base.NewSlot()
	n.sink.changes = sinkChanges{mode: connectors.Changelog, op: slot}
	n.sink.view = n.in.Set(opField, expr.Ref{Slot: slot, Covered: 1, Type: expr.Text})
}

// refuseChanges says why a sink cannot take an updating stream, and the ways out.
func (b *planner) refuseChanges(n *node, s *spec.Sink) {
	b.fault(s.ConfigPath(), &connectors.FieldError{
		Msg:  fmt.Sprintf("%s can only append, and the results of %s change after they were given out", s.Kind, b.updatesFrom(n.from)),
		Help: strings.Join(waysToTakeChanges(s), "; or "),
	})
}

// waysToTakeChanges are what can be set for a sink that only appends as it is.
func waysToTakeChanges(s *spec.Sink) (ways []string) {
	keys := spec.Keys(s.Config)
	has := func(key string) bool { return slices.Contains(keys, key) }
	if has("changelog") {
		ways = append(ways, "add changelog: true, which writes every change as a row with the operation in a field op")
	}
	switch {
	case has("mode"):
		ways = append(ways, "set mode: upsert, by which a new row replaces the one of its key")
	case has("key"):
		ways = append(ways, "add a key, by which a new row replaces the old one")
	case has("id"):
		ways = append(ways, "add an id, by which a new document replaces the old one")
	default:
		ways = append(ways, "write to a sink with a key, by which a new row replaces the old one, such as kafka")
	}
	return ways
}

// warnOfKey warns where rows that are told apart would replace each other, or the two
// rows of a change would come in any order.
func (b *planner) warnOfKey(s *spec.Sink, key *connectors.Expr, u *transform.Updates) {
	i := slices.IndexFunc(spec.Expressions(s.Config), func(x spec.Expression) bool { return x.Expr == key })
	if i < 0 {
		return
	}
	path := append(s.ConfigPath(), spec.Expressions(s.Config)[i].Path...)
	if lacks := b.lacks(key, u.Key); len(lacks) > 0 {
		b.spec.Warn(path, spec.CodeCoarseKey,
			fmt.Sprintf("rows are told apart by %s, and the key does not read %s: different rows replace each other", strings.Join(u.Key, ", "), strings.Join(lacks, ", ")),
			"put all of them into the key")
		return
	}
	if lacks := b.lacks(key, u.Spread); len(lacks) > 0 && b.spec.Parallelism != 1 {
		b.spec.Warn(path, spec.CodeSpread,
			fmt.Sprintf("rows come from the subtasks that own their %s, which the key does not read: where a change moves a row to another one, its tombstone can come behind its new row", strings.Join(lacks, ", ")),
			"put all of them into the key, or set parallelism: 1; where they never change, nothing can happen")
	}
}

// lacks lists the fields that a key of a sink does not read.
func (b *planner) lacks(key *connectors.Expr, fields []string) (lacks []string) {
	for _, field := range fields {
		if !b.mentions(key, field) && !slices.Contains(lacks, field) {
			lacks = append(lacks, field)
		}
	}
	return lacks
}

// mentions reports whether an expression of a sink reads a field.
func (b *planner) mentions(key *connectors.Expr, field string) bool {
	for _, s := range b.plan.sinks {
		for _, x := range s.exprs {
			if x.slot != key.Slot || x.text != key.Text {
				continue
			}
			return x.prog.This() || slices.ContainsFunc(x.prog.Fields(), func(path []string) bool {
				read := strings.Join(path, ".") + "."
				return strings.HasPrefix(read, field+".") || strings.HasPrefix(field+".", read)
			})
		}
	}
	return true
}

// opValues are the values of the field op.
var opValues = [...]connectors.Value{
	connectors.StringValue(connectors.Insert.String()), connectors.StringValue(connectors.UpdateBefore.String()),
	connectors.StringValue(connectors.UpdateAfter.String()), connectors.StringValue(connectors.Delete.String()),
}

// rows prepares the rows of an updating stream for the sink, after the expressions
// of its configuration have their values: it fills in the operation, or leaves
// out old rows that a new one of the same key follows.
func (c *sinkChanges) rows(b *connectors.Batch, sel []uint16) []uint16 {
	switch c.mode {
	case connectors.Changelog:
		for _, row := range sel {
			b.Row(int(row))[c.op] = opValues[b.Records[row].Op&3]
		}
	case connectors.Upserts:
		n := 0
		for i, row := range sel {
			if i+1 < len(sel) && b.Records[row].Op == connectors.UpdateBefore && b.Records[sel[i+1]].Op == connectors.UpdateAfter &&
				sameKey(b.Row(int(row))[c.key.Slot], b.Row(int(sel[i+1]))[c.key.Slot]) {
				continue
			}
			sel[n] = row
			n++
		}
		return sel[:n]
	}
	return sel
}

// sameKey reports whether two keys are written alike. Keys that differ in kind
// only count as different, which costs a tombstone and harms nothing.
func sameKey(a, b connectors.Value) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case connectors.String, connectors.Bytes, connectors.Decimal, connectors.List, connectors.Map:
		return a.Text() == b.Text()
	case connectors.Absent, connectors.Null:
		return true
	}
	return a == b
}

// tombstones makes rows that are not there any more null, for a sink of upserts.
// That such a row has no encoded form does not matter.
func (c *sinkChanges) tombstones(rows *connectors.Rows, failed []encodeFailure) []encodeFailure {
	if c.mode != connectors.Upserts {
		return failed
	}
	for i := range rows.Sel {
		if rows.Record(i).Op.Retracts() {
			rows.Values[i] = nil
		}
	}
	return slices.DeleteFunc(failed, func(f encodeFailure) bool { return rows.Record(f.at).Op.Retracts() })
}

// wholeUpdates moves a cut between rows so that it does not part the two rows of an
// update, which can come from one record.
func wholeUpdates(b *connectors.Batch, cut int) int {
	if cut > 0 && cut < len(b.Records) && b.Records[cut].Op == connectors.UpdateAfter && b.Records[cut-1].Op == connectors.UpdateBefore {
		return cut + 1
	}
	return cut
}
