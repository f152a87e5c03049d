package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Severity tells an error from a warning.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Diagnostic is one fault, or one thing that will hurt, at one place.
type Diagnostic struct {
	Severity Severity
	Code     Code
	Pos, End Pos    // the characters meant
	Msg      string // what is wrong
	Label    string // a few words at the place; may be empty
	Help     string // what to do; may be empty
	Notes    []Note
}

// Note is a further place that belongs to a fault, or a fact without a place.
type Note struct {
	Pos Pos
	Msg string
}

// Error is the first line of the printed form.
func (d *Diagnostic) Error() string {
	head := fmt.Sprintf("%s[%s]", d.Severity, d.Code)
	if at := d.Pos.String(); at != "" {
		head += " " + at
	}
	return head + ": " + d.Msg
}

// MarshalJSON gives flat fields, positions as file, line and column.
func (d Diagnostic) MarshalJSON() ([]byte, error) {
	type note struct {
		File    string `json:"file,omitempty"`
		Line    int    `json:"line,omitempty"`
		Column  int    `json:"column,omitempty"`
		Message string `json:"message"`
	}
	out := struct {
		Severity  Severity `json:"severity"`
		Code      Code     `json:"code"`
		File      string   `json:"file,omitempty"`
		Line      int      `json:"line,omitempty"`
		Column    int      `json:"column,omitempty"`
		EndLine   int      `json:"end_line,omitempty"`
		EndColumn int      `json:"end_column,omitempty"`
		Message   string   `json:"message"`
		Label     string   `json:"label,omitempty"`
		Help      string   `json:"help,omitempty"`
		Notes     []note   `json:"notes,omitempty"`
	}{
		d.Severity, d.Code, d.Pos.File(), d.Pos.Line(), d.Pos.Column(), d.End.Line(), d.End.Column(),
		d.Msg, d.Label, d.Help, nil,
	}
	for _, n := range d.Notes {
		out.Notes = append(out.Notes, note{n.Pos.File(), n.Pos.Line(), n.Pos.Column(), n.Msg})
	}
	return json.Marshal(out)
}

// Diagnostics are the faults of one or more files.
type Diagnostics []Diagnostic

// HasErrors reports whether there is more than warnings.
func (ds Diagnostics) HasErrors() bool {
	return slices.ContainsFunc(ds, func(d Diagnostic) bool { return d.Severity == Error })
}

// Sort orders by file, then by place in it; flags come first.
func (ds Diagnostics) Sort() {
	slices.SortStableFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Pos.File(), b.Pos.File()), cmp.Compare(a.Pos.off, b.Pos.off))
	})
}

// dedupe drops what says the same at the same place; ds must be sorted.
func (ds Diagnostics) dedupe() Diagnostics {
	return slices.CompactFunc(ds, func(a, b Diagnostic) bool {
		return a.Code == b.Code && a.Pos == b.Pos && a.Msg == b.Msg
	})
}
