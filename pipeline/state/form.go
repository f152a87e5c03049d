package state

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
)

// The neutral form is how every backend writes state for another one to read, and how
// the memory backend writes all of its own. It is part of checkpoints that live for
// years: version 1 never changes, and stays readable.
//
// A file is sections one behind the other, one for each key group that has entries, each
// of them a Piece. A section is blocks, of about 256 KiB before compression, so that
// neither writing nor reading needs more memory than a few of them (or than the largest
// entry). A block is, all numbers little endian,
//
//	 0  4  "SLST"
//	 4  1  version: 1
//	 5  1  kind: 1 entries, 2 the end of the section
//	 6  1  compression: 0 none, 1 zstd (a frame of its own)
//	 7  1  0
//	 8  4  key group
//	12  4  number of the block within the section, from 0
//	16  4  length of the content as it stands in the file
//	20  4  length of the content
//	24  4  CRC-32C of the content as it stands in the file
//	28  4  CRC-32C of the 28 bytes before
//	32     content
//
// so that a byte that was changed, a block that is missing and one that is in the
// wrong place are all found, whatever part of a file is read. The content of kind 1 is
// items, each of which begins with a uvarint:
//
//	0  a table: uvarint length of its name, name. What follows is in it.
//	1  a namespace: varint. What follows is in it.
//	n  an entry with a key of n-2 bytes: key, uvarint length of the value, value
//
// Each block names table and namespace anew before its first entry. The content of kind 2
// is the number of entries in the section, a uvarint.
const (
	blockMagic   = "SLST"
	formVersion  = 1
	blockHead    = 32
	blockEntries = 1
	blockEnd     = 2
	blockTarget  = 256 << 10
)

// Entry is one entry of a store, as the neutral form holds it. Its slices are
// borrowed until the call that is given it returns.
type Entry struct {
	Table string
	NS    int64
	Key   Key
	Value []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	storedPlain = 0
	storedZstd  = 1
)

// compressionOf is the number that the form has for a compression.
func compressionOf(name string) (byte, error) {
	switch name {
	case "", "none":
		return storedPlain, nil
	case "zstd":
		return storedZstd, nil
	}
	return 0, fmt.Errorf("write state: there is no compression %q; zstd and none are known", name)
}

// blockHeader is a block's header taken apart.
type blockHeader struct {
	kind, compression  byte
	group, seq         uint32
	stored, size, crcs uint32
}

func (h blockHeader) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, blockMagic...)
	dst = append(dst, formVersion, h.kind, h.compression, 0)
	for _, n := range []uint32{h.group, h.seq, h.stored, h.size, h.crcs} {
		dst = binary.LittleEndian.AppendUint32(dst, n)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// readBlockHeader checks a header of blockHead bytes.
func readBlockHeader(b []byte) (h blockHeader, err error) {
	n := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	switch {
	case string(b[:4]) != blockMagic:
		return h, fmt.Errorf("it does not begin with %q", blockMagic)
	case n(28) != crc32.Checksum(b[:28], castagnoli):
		return h, fmt.Errorf("the checksum of its header is %08x, not %08x", crc32.Checksum(b[:28], castagnoli), n(28))
	case b[4] != formVersion:
		return h, fmt.Errorf("it is of version %d, and this program reads version %d; a newer program has written it", b[4], formVersion)
	}
	h = blockHeader{kind: b[5], compression: b[6], group: n(8), seq: n(12), stored: n(16), size: n(20), crcs: n(24)}
	if h.kind != blockEntries && h.kind != blockEnd || h.compression > storedZstd || b[7] != 0 {
		return h, fmt.Errorf("its kind is %d and its compression %d, which version %d does not have", h.kind, h.compression, formVersion)
	}
	return h, nil
}

// newEncoder compresses blocks, one at a time. What is written beside a stream must not
// cost it much: the fastest level.
func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(blockTarget), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
}
