package expr

import (
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// Field is the program that is nothing but a field, where the scope says that it
// is.
func Field(path []string, ref Ref) *Program {
	t := ref.Type
	if t == 0 {
		t = Any
	}
	text := strings.Join(path, ".")
	slot := ref.Slot
	return &Program{
		text: text, typ: t, want: Any, slot: slot, native: true, fields: [][]string{path},
		root:   &site{length: len(text), name: text, field: true, whole: slot + 1},
		run:    func(e *Env) connectors.Value { return e.row[slot] },
		limits: Limits{}.orDefault(),
	}
}
