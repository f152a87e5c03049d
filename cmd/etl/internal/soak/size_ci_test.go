//go:build integration && !soak

package soak

import "time"

// How long the tests are: short enough for every change.
const (
	records = 100_000
	kills   = 5

	nexmarkKills = 10    // of each query's process
	nexmarkBoth  = false // whether all queries run with both backends

	unionKills   = 5
	unionRecords = 40_000

	storeOutage = 20 * time.Second
	safeMode    = 5 * time.Second

	churnCheckpoints = 75 // how long keys come and go, in checkpoints
)
