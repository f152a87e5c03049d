//go:build !integration

package checkpoint_test

// s3Checkpoints are enough to see that faults are borne; `make integration` takes as many
// as a statistic needs.
const s3Checkpoints = 200
