// Package postgres finds rows in a PostgreSQL database.
//
// The keys of a call travel as one array a column, as text, and are joined with the
// table by an index of the table's own; a query of the user's is run once a key, all
// of a call in one round trip. Rows are made JSON by the server, so that numbers keep
// their digits. Sessions are read-only and in UTC.
package postgres
