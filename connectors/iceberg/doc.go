// Package iceberg is the sink of Apache Iceberg tables.
//
// Rows become Parquet files in the table's folder before a checkpoint is complete, and
// a part of the table with one commit of the catalog when it is. The commit says which
// checkpoint it is of, in the snapshot's summary and in a property of the table, and
// holds only where the branch is as it was when the table was looked at: so a commit
// whose answer is lost, or that comes late, is never done twice.
//
// With a key, rows replace each other: beside its data a checkpoint has files of the keys
// whose older rows go, by equality. They reach what earlier snapshots hold, so of a batch
// only the last change of each key is written.
//
// The library that reads and writes tables changes fast: lake.go, catalog.go, fileio.go,
// schema.go and deletes.go are the only files that know it.
package iceberg
