package connectors

import "bytes"

// AppendLine appends an encoded value as one line of a line format: a tombstone
// as null, and a raw line break, which JSON allows between tokens only, as a
// space.
func AppendLine(dst, value []byte) []byte {
	if value == nil {
		return append(dst, "null\n"...)
	}
	at := len(dst)
	dst = append(dst, value...)
	if bytes.IndexByte(dst[at:], '\n') >= 0 {
		for i := at; i < len(dst); i++ {
			if dst[i] == '\n' || dst[i] == '\r' {
				dst[i] = ' '
			}
		}
	}
	return append(dst, '\n')
}
