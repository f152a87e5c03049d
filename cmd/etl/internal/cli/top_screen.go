package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen is a terminal that is drawn on as a whole, with single keys read from it.
type screen struct {
	in, out *os.File
	before  *term.State
	keys    <-chan rune // closed at the end of the input
}

// openScreen takes over the terminal until close: what stood there comes back then.
func openScreen(in, out *os.File) (*screen, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("read keys from the terminal: %w", err)
	}
	keys := make(chan rune)
	go readKeys(in, keys)
	_, _ = fmt.Fprint(out, "\x1b[?1049h\x1b[?25l")
	return &screen{in: in, out: out, before: before, keys: keys}, nil
}

func (s *screen) close() {
	_, _ = fmt.Fprint(s.out, "\x1b[?25h\x1b[?1049l")
	_ = term.Restore(int(s.in.Fd()), s.before)
}

// size is the width and height in characters.
func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// draw shows lines in place of what was there, in one write, so that nothing flickers.
func (s *screen) draw(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, _ = s.out.WriteString(b.String())
}

// readKeys gives out keys until the input ends. It is left waiting for one when the
// program ends.
func readKeys(in *os.File, keys chan<- rune) {
	defer close(keys)
	r := bufio.NewReader(in)
	for {
		key, _, err := r.ReadRune()
		if err != nil {
			return
		}
		if key == keyEscape && r.Buffered() >= 2 { // an arrow is sent as Escape, [, letter
			if next, _, err := r.ReadRune(); err == nil && (next == '[' || next == 'O') {
				letter, _, err := r.ReadRune()
				if err != nil {
					return
				}
				key = letter - 256
			}
		}
		if key == '\n' {
			key = keyEnter
		}
		keys <- key
	}
}
