//go:build integration && soak

package soak

import "time"

// How long the tests are under `make soak`.
const (
	records = 1_000_000
	kills   = 25

	nexmarkKills = 25   // of each query's process
	nexmarkBoth  = true // whether all queries run with both backends

	unionKills   = 20
	unionRecords = 400_000

	storeOutage = 2 * time.Minute
	safeMode    = 40 * time.Second

	churnCheckpoints = 960 // how long keys come and go, in checkpoints
)
