//go:build unix

package disk

import "golang.org/x/sys/unix"

// mapMemory gives zeroed memory that the garbage collector does not know of.
func mapMemory(size int) []byte {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, size) // as good, only that the collector counts it
	}
	return b
}

// unmapMemory gives memory back; what is no mapping is left to the collector.
func unmapMemory(b []byte) { _ = unix.Munmap(b[:cap(b)]) }
