//go:build integration

package checkpoint_test

// s3Checkpoints are as many as tell one failure in a thousand.
const s3Checkpoints = 10_000
