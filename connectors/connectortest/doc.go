// Package connectortest holds what every connector must do, as tests: TestSink
// drives a sink through the life that the engine gives it, with crashes between
// all steps, and compares what an independent reader finds in the target with
// what was written; TestSource reads a source from every position that a
// checkpoint can hold.
package connectortest
