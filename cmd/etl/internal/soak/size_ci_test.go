//go:build integration && !soak

package soak

// How long the tests are: short enough for every change.
const (
	records = 100_000
	kills   = 5
)
