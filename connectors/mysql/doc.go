// Package mysql writes rows into a table of MySQL or MariaDB.
//
// Rows are kept with the checkpoint as the tuples of an INSERT, and a commit runs them in
// one InnoDB transaction with the witness. Rows of a key stay in their order, since what
// comes later overwrites what came before.
package mysql
