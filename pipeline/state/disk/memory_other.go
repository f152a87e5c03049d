//go:build !unix

package disk

func mapMemory(size int) []byte { return make([]byte, size) }

func unmapMemory([]byte) {}
