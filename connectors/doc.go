// Package connectors is the contract between the engine and what it reads from
// and writes to, and all that the author of a connector has to read: records and
// batches with their ownership rules, Source and Reader, Sink and Writer, the
// two-phase commit of exactly-once sinks, and the registry with its typed
// configurations.
package connectors
