// Package checkpoint takes, keeps, chooses and verifies checkpoints: the
// coordinator that decides when one is taken and when it is complete, the metadata
// and its format, the store with its names on storage, the ownership of a pipeline
// by generations, and what a start goes on from. It knows no operator.
package checkpoint
