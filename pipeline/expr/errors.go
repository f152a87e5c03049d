package expr

import (
	"fmt"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// Error is one fault of an expression, found when it is compiled.
type Error struct {
	Offset int    // bytes from the start of the expression's text
	Length int    // bytes, at least 0
	Msg    string // what is wrong
	Help   string // what to write instead; may be empty
}

func (e *Error) Error() string {
	if e.Help == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Help
}

// Errors are all the faults of an expression, in the order of the text.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the single faults.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, one := range e {
		list[i] = one
	}
	return list
}

// The kinds of an EvalError, short constant names for counters.
const (
	KindNull     = "null"     // null where a value is needed
	KindType     = "type"     // a value of a kind that the operation does not take
	KindOverflow = "overflow" // a result that its kind cannot hold
	KindZero     = "zero"     // a division by zero
	KindArgument = "argument" // a value that a function cannot work with
	KindLimit    = "limit"    // too many steps or bytes
	KindCrash    = "crash"    // a panic, which is a fault of ours
)

// EvalError is why an expression has no value for one record. It names fields
// and kinds and never holds what the record holds.
type EvalError struct {
	Offset int    // bytes from the start of the expression's text
	Length int    // bytes
	Reason string // the cause in words
	Kind   string // one of the Kind constants
}

func (e *EvalError) Error() string { return e.Reason }

func didYouMean(name string, known []string) string {
	if near := connectors.Nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean `%s`?", near)
	}
	return ""
}
