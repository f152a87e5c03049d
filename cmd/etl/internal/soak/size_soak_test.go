//go:build integration && soak

package soak

// How long the tests are under `make soak`.
const (
	records = 1_000_000
	kills   = 25
)
