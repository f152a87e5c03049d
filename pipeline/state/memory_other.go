//go:build !unix

package state

func mapMemory(size int) []byte { return make([]byte, size) }
func unmapMemory([]byte)        {}
func discardMemory([]byte)      {}
