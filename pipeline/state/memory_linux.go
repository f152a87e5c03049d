package state

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapMemory gives zeroed memory that the collector does not know of.
func mapMemory(size int) []byte {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, size) // as good, only that the collector counts it
	}
	return b
}

// unmapMemory gives memory back. What is no mapping is left to the collector.
func unmapMemory(b []byte) { _ = unix.Munmap(b) }

// discardMemory lets the system have the memory until it is written again.
func discardMemory(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }

// hugeMemory asks for huge pages, and gives the part of a mapping that is made of whole
// ones.
func hugeMemory(b []byte) []byte {
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (hugePage - 1))
	b = b[skip : skip+(len(b)-skip)&^(hugePage-1)]
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	return b
}

// ordinaryMemory takes that back.
func ordinaryMemory(b []byte) { _ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) }
