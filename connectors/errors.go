package connectors

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// permanentError marks an error that a retry cannot mend.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks err as one that trying again cannot mend: the pipeline stops
// and a person has to act. Every other error is taken as transient.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// RecordError is why one record could not be handled, with where it is from.
type RecordError struct {
	Origin *Origin // nil where the record has none
	Offset int64
	Step   string // name of the step, source or sink
	Expr   string // the expression that failed; empty where none did
	Reason string // cause in words, without record data
	Kind   string // short constant name for counters, such as "decode" or "expression"
}

func (e *RecordError) Error() string {
	where := "made by a step"
	if e.Origin != nil {
		where = fmt.Sprintf("%s/%d@%d", e.Origin.Topic, e.Origin.Partition, e.Offset)
	}
	s := fmt.Sprintf("record %s: step %s: %s", where, e.Step, e.Reason)
	if e.Expr != "" {
		s += fmt.Sprintf(" in `%s`", e.Expr)
	}
	return s
}

// RowError says that the target, or the source, refused one row.
type RowError struct {
	Row    int // position in Rows.Sel; of a source in Batch.Records
	Reason string
	Kind   string
}

// RowsError is returned by a sink's Write when the target refused some rows and
// took all the others. Each refused row goes to on_error.
type RowsError struct{ Rows []RowError }

func (e *RowsError) Error() string {
	if len(e.Rows) == 0 {
		return "rows refused"
	}
	return fmt.Sprintf("%d rows refused, the first: %s", len(e.Rows), e.Rows[0].Reason)
}

// Rejected is a row of an earlier checkpoint that the target refused at its commit.
type Rejected struct {
	// Record is what it was made of: key, value, headers, time and coordinates as the
	// source gave them, or the row as JSON where a step made it. It is the engine's.
	Record Record
	Reason string
	Kind   string
}

// RejectedError is returned by a sink's Tick for rows that the target refused when
// their checkpoint was committed, beside which the others were applied. The engine
// hands each to on_error before the next barrier; the sink notes with the commit of
// that barrier that they are handed over, so that a restore hands them over again
// or not, as it should.
type RejectedError struct{ Rows []Rejected }

func (e *RejectedError) Error() string {
	if len(e.Rows) == 0 {
		return "rows refused at the commit"
	}
	return fmt.Sprintf("%d rows refused at the commit, the first: %s", len(e.Rows), e.Rows[0].Reason)
}

// Errors that decide how the engine goes on. They are matched with errors.Is.
var (
	// ErrLost says of a committable that it can never be published: its data is gone.
	ErrLost = errors.New("the data of a completed checkpoint is gone from the sink")
	// ErrAmbiguous says that nobody can tell whether a committable was published.
	ErrAmbiguous = errors.New("it cannot be told whether a commit happened")
	// ErrFenced says that the target refused this process since a newer one took over.
	ErrFenced = errors.New("fenced by a newer process")
	// ErrNoWitness says that the target keeps no mark of the last commit.
	ErrNoWitness = errors.New("the target keeps no witness")
	// ErrMissingOffset says that a position to go on from is not there any more.
	ErrMissingOffset = errors.New("offset is not available")
)

// ForeignWitnessError says that the mark in a target is that of another pipeline,
// or of this one with another checkpoint storage.
type ForeignWitnessError struct {
	Mark string // tells this witness from any other
	Text string // what is known of it
}

func (e *ForeignWitnessError) Error() string {
	return "another pipeline or checkpoint storage has committed here: " + e.Text
}

// Recovered makes an error of a panic, with the stack. It is deferred in goroutines that
// connectors start, so that a fault of one pipeline ends no other.
func Recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}
