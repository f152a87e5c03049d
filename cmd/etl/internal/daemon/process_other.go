//go:build !linux

package daemon

// residentBytes is the memory of the process that is in RAM, 0 where it is not known.
func residentBytes() int64 { return 0 }
