package pipeline

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluice-etl/sluice/connectors"
)

// operatorCounts are what one operator has done in one task. The task writes them once
// a batch, and others may read them. An operator can have some in several tasks of one
// subtask: those before an exchange by key refuse records in the name of the step behind.
type operatorCounts struct {
	operator string
	in       atomic.Int64
	bytes    atomic.Int64 // of the values that came in
	out      []atomic.Int64
	branches []string // names of the outputs, empty for a main one; nil for one output
	dropped  atomic.Int64
	late     atomic.Int64
}

// operator gives the counts of an operator in the task, which are made at the first call.
func (t *task) operator(name string, outputs int) *operatorCounts {
	i := slices.IndexFunc(t.operators, func(o *operatorCounts) bool { return o.operator == name })
	if i < 0 {
		i = len(t.operators)
		t.operators = append(t.operators, &operatorCounts{operator: name})
	}
	o := t.operators[i]
	if len(o.out) < outputs {
		o.out = make([]atomic.Int64, outputs)
	}
	return o
}

// meetingSuffix ends the name of a chain where the inputs of a keyed step meet before
// they are keyed. No name of a step has a dot.
const meetingSuffix = ".from"

// operatorOf is the operator in whose name a chain, or a failure in it, is counted.
func operatorOf(chain string) string { return strings.TrimSuffix(chain, meetingSuffix) }

// counting makes a receiver that counts what comes in.
func (o *operatorCounts) counting(next receiver) receiver {
	return func(ctx context.Context, b *connectors.Batch, sel []uint16) error {
		o.in.Add(int64(len(sel)))
		return next(ctx, b, sel)
	}
}

// dropper makes a function that counts rows which are left out as they should.
func (t *task) dropper(o *operatorCounts) func(n int) {
	return func(n int) {
		t.counts.filtered.Add(int64(n))
		o.dropped.Add(int64(n))
	}
}

// missed makes a function that counts rows which are left out before the operator's own
// task has had them.
func (t *task) missed(o *operatorCounts) func(n int) {
	dropped := t.dropper(o)
	return func(n int) {
		o.in.Add(int64(n))
		dropped(n)
	}
}

// early makes an on_error for records that fail before the operator has counted them.
func (o *operatorCounts) early(fail failFunc) failFunc {
	return func(ctx context.Context, b *connectors.Batch, row uint16, e *connectors.RecordError) error {
		o.in.Add(1)
		return fail(ctx, b, row, e)
	}
}
