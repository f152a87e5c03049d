package expr

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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

// nearest finds the known name that is most like name, or "".
func nearest(name string, known []string) string {
	best, bestAt := "", max(1, len(name)/3)+1
	for _, k := range slices.SortedFunc(slices.Values(known), cmp.Compare[string]) {
		d := distance(strings.ToLower(name), strings.ToLower(k))
		if d < bestAt {
			best, bestAt = k, d
		}
	}
	return best
}

// distance is the optimal string alignment distance: insertions, deletions,
// substitutions and swaps of neighbours (Damerau 1964).
func distance(a, b string) int {
	const most = 64
	if len(a) > most || len(b) > most {
		return most
	}
	var rows [3][most + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean `%s`?", near)
	}
	return ""
}
