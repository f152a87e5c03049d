package format

import "bytes"

// lineBreaks makes raw line breaks between the tokens of b spaces, in place, and
// returns the position of one within a string, negative if there is none.
func lineBreaks(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\n', '\r':
			b[i] = ' '
		case '"':
			end := stringEnd(b, i+1)
			if end < 0 {
				end = len(b)
			}
			for j := i + 1; j < end; j++ {
				if b[j] == '\n' || b[j] == '\r' {
					return j
				}
			}
			i = end
		}
	}
	return -1
}

// hasLineBreak reports whether b holds one at all.
func hasLineBreak(b []byte) bool {
	return bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0
}
