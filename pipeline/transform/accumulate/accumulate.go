// Package accumulate holds the aggregate functions: what each keeps for a group of
// records, how a record is added or taken back, and what comes out.
//
// Results do not hang on the order of records, nor on how they were divided and
// merged: sums are exact until they are asked for, and where order matters records
// go by (event time, topic, partition, offset). Only rows without an Origin, which
// steps make anew, go by their arrival where their times are equal. A record of
// which an argument is null is not counted.
package accumulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Function is an aggregate function with its arguments' types and options bound.
// It is immutable and shared by subtasks. What it keeps for a group is a state: bytes
// that a state.Table holds. The zeroed state, or the empty one, is that of no
// records. The form of a state is part of checkpoints and never changes.
//
// Errors are an *expr.EvalError, whose position does not count, or
// state.ErrCorrupt. After an error of Add or Retract the state is as it was.
type Function interface {
	// Size is the length of the state where that is always the same, otherwise -1.
	Size() int
	// Add adds a record to the state and returns the new one. A state of fixed size
	// is changed in place. Another may be changed in place as well, also where its
	// length stays the same, and the new one may share its memory, into which Add may
	// grow: the caller owns what is between the length and the capacity of state.
	Add(state []byte, in *Input) ([]byte, error)
	// Retract takes a record back that was added. Only where Retracts.
	Retract(state []byte, in *Input) ([]byte, error)
	// Retracts reports whether records can be taken back.
	Retracts() bool
	// Merge adds all that is in other to state, as if it had been added there, and
	// returns the new one as Add does. The order of merges does not show.
	Merge(state, other []byte) ([]byte, error)
	// Result is the value of the state. What it borrows is state and arena.
	Result(state []byte, arena *connectors.Arena) (connectors.Value, error)
	// Type is what is known of results.
	Type() expr.Type
}

// Input is one record, as a function sees it. It is used by one goroutine, and best
// for one record after the other, since it holds memory that is used again.
type Input struct {
	Args   []connectors.Value
	Record *connectors.Record

	key []byte // scratch
}

// keyOf is the canonical key of v, until the next call.
func (in *Input) keyOf(v connectors.Value) []byte {
	const kept = 64 << 10
	if cap(in.key) > kept {
		in.key = nil
	}
	in.key = state.AppendKey(in.key[:0], v)
	return in.key
}

// Options say what for a function is made.
type Options struct {
	// Updating says that records may be taken back.
	Updating bool
}

// makers make the functions by name.
var makers map[string]func(call *expr.AggregateCall, o Options) (Function, error)

func init() {
	makers = map[string]func(*expr.AggregateCall, Options) (Function, error){
		"count":           func(*expr.AggregateCall, Options) (Function, error) { return count{}, nil },
		"sum":             newTotal,
		"avg":             newTotal,
		"min":             newExtreme,
		"max":             newExtreme,
		"first":           newPick,
		"last":            newPick,
		"arg_min":         newPick,
		"arg_max":         newPick,
		"collect":         newCollect,
		"count_distinct":  newDistinct,
		"approx_distinct": newSketch,
		"quantile":        newQuantile,
		"stddev":          newDeviation,
	}
}

// updatable are the functions that can take records back.
var updatable = []string{"count", "sum", "avg", "min", "max", "stddev", "count_distinct", "quantile"}

// New makes the function that a call names, for arguments of the types that their
// programs have. The condition of the call is the caller's to look at: a record that
// does not fulfil it is neither added nor taken back. An error says why there is no
// such function.
func New(call *expr.AggregateCall, o Options) (Function, error) {
	if o.Updating && !slices.Contains(updatable, call.Name) {
		return nil, &expr.Error{
			Msg:  call.Name + "() cannot take records back, and the input is an updating stream",
			Help: "those that can are " + strings.Join(updatable, ", "),
		}
	}
	m := makers[call.Name]
	if m == nil {
		return nil, fmt.Errorf("%s() is not an aggregate function", call.Name)
	}
	return m(call, o)
}

// argument is what is known of an argument, among the types that the function
// takes.
func argument(call *expr.AggregateCall, i int, takes expr.Type) expr.Type {
	return call.Args[i].Type() & takes.Nullable()
}

// resulting is t, or null where it may be that no record is counted.
func resulting(call *expr.AggregateCall, t expr.Type) expr.Type {
	if call.If != nil {
		return t.Nullable()
	}
	for _, a := range call.Args {
		if a.Type().MayBeNull() {
			return t.Nullable()
		}
	}
	return t
}

func fail(kind, format string, args ...any) error {
	return &expr.EvalError{Reason: fmt.Sprintf(format, args...), Kind: kind}
}

// foreign is the error for a value of a kind that the types forbid.
func foreign(name string, v connectors.Value) error {
	return fail(expr.KindType, "%s() does not take %s here", name, v.Kind())
}

// irrevocable is part of functions that cannot take records back.
type irrevocable struct{}

func (irrevocable) Retracts() bool { return false }

func (irrevocable) Retract([]byte, *Input) ([]byte, error) {
	return nil, fail(expr.KindType, "an aggregate function that cannot take records back was asked to")
}

// none tells of a state of variable size that it is that of no records.
func none(b []byte) bool { return len(b) == 0 || b[0] == 0 }

// sized checks that a state has the length size, and makes an empty one so long.
func sized(b []byte, size int) ([]byte, error) {
	switch len(b) {
	case size:
		return b, nil
	case 0:
		return append(b, make([]byte, size)...), nil
	}
	return b, state.ErrCorrupt
}
