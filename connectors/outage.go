package connectors

import "time"

// Outage is something outside of the pipeline that cannot be reached for now, and is
// tried again.
type Outage struct {
	What  string    // such as kafka broker 10.0.0.1:9092
	Since time.Time // of the first try that failed
	Err   error     // of the last one
	// Part says that other parts of the same system answer.
	Part bool
}

// OutageTeller is implemented by readers and sinks that try again by themselves what
// they cannot reach. Where the error comes out of their methods it is told that way.
type OutageTeller interface {
	// Outages are those of now; it is called at any time, and does no I/O.
	Outages() []Outage
}
