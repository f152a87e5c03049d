//go:build !linux

package state

// Elsewhere than on Linux pages are ordinary memory of the heap.

func mapMemory(size int) []byte  { return make([]byte, size) }
func unmapMemory([]byte)         {}
func discardMemory([]byte)       {}
func hugeMemory(b []byte) []byte { return b }
func ordinaryMemory([]byte)      {}
