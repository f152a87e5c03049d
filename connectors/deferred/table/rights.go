package table

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// Rights are those that a commit needs in a mode, by table: that of the rows, of the marks
// and of the refused rows, which are only marked where they end the run, else deleted.
func Rights(mode string, onError connectors.RowAction, rows, commits, rejected string) map[string][]string {
	out := map[string][]string{rows: {"INSERT"}, commits: {"SELECT", "INSERT", "UPDATE"}, rejected: {"SELECT", "INSERT", "DELETE"}}
	if mode != Insert {
		out[rows] = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	}
	if onError == connectors.RowFail {
		out[rejected][2] = "UPDATE"
	}
	return out
}

// Lacks are the rights that a user lacks, by table, whose name is quoted.
type Lacks map[string][]string

// Add notes that a right to a table is lacking.
func (l Lacks) Add(table, right string) { l[table] = append(l[table], right) }

// String names them, such as `INSERT and UPDATE on orders`.
func (l Lacks) String() string {
	var out []string
	for _, table := range slices.Sorted(maps.Keys(l)) {
		out = append(out, strings.Join(l[table], " and ")+" on "+table)
	}
	return strings.Join(out, ", ")
}

// Grants are the statements that give them to the user that a sink logs in with.
func (l Lacks) Grants() string {
	var out []string
	for _, table := range slices.Sorted(maps.Keys(l)) {
		out = append(out, "GRANT "+strings.Join(l[table], ", ")+" ON "+table+" TO the user of url")
	}
	return strings.Join(out, "; ")
}
