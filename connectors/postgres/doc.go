// Package postgres writes rows into a PostgreSQL database and finds rows in one.
//
// The sink keeps rows with the checkpoint as lines of COPY, and a commit applies them in
// one transaction with the witness: COPY into the table, or into a temporary one from
// which the last row of each key is merged.
//
// The keys of a lookup travel as one array a column, as text, and are joined with the
// table by an index of the table's own; a query of the user's is run once a key, all
// of a call in one round trip. Rows are made JSON by the server, so that numbers keep
// their digits. Its sessions are read-only and in UTC.
package postgres
