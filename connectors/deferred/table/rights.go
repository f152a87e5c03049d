package table

import (
	"maps"
	"slices"
	"strings"
)

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
