package spec

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Columns of a source line that are shown; a longer one is cut around the fault.
const maxShown = 140

const (
	red    = "\x1b[1;31m"
	yellow = "\x1b[1;33m"
	blue   = "\x1b[1;34m"
	bold   = "\x1b[1m"
	reset  = "\x1b[0m"
)

// Print writes each fault with its line, the characters meant underlined, and a
// summary at the end. color is for terminals.
func (ds Diagnostics) Print(w io.Writer, color bool) error {
	p := &printer{color: color}
	for i := range ds {
		if i > 0 {
			p.out.WriteByte('\n')
		}
		p.diagnostic(&ds[i])
	}
	if len(ds) > 0 {
		p.out.WriteString("\n" + ds.Summary() + "\n")
	}
	if _, err := w.Write(p.out.Bytes()); err != nil {
		return fmt.Errorf("print diagnostics: %w", err)
	}
	return nil
}

// Summary counts errors and warnings, and the files they are in.
func (ds Diagnostics) Summary() string {
	errs, warns := 0, 0
	var files []string
	for _, d := range ds {
		if d.Severity == Error {
			errs++
		} else {
			warns++
		}
		if name := d.Pos.File(); len(files) == 0 || files[len(files)-1] != name {
			files = append(files, name)
		}
	}
	var parts []string
	if errs > 0 {
		parts = append(parts, count(errs, "error"))
	}
	if warns > 0 {
		parts = append(parts, count(warns, "warning"))
	}
	if len(parts) == 0 {
		return "no faults"
	}
	where := ""
	if len(files) > 1 {
		where = " in " + count(len(files), "file")
	}
	return strings.Join(parts, ", ") + where
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type printer struct {
	out   bytes.Buffer
	color bool
}

func (p *printer) paint(color, s string) string {
	if !p.color || s == "" {
		return s
	}
	return color + s + reset
}

func (p *printer) diagnostic(d *Diagnostic) {
	color := red
	if d.Severity == Warning {
		color = yellow
	}
	p.out.WriteString(p.paint(color, fmt.Sprintf("%s[%s]", d.Severity, d.Code)) + " ")
	if at := d.Pos.String(); at != "" {
		p.out.WriteString(at + ": ")
	}
	p.out.WriteString(p.paint(bold, printable(d.Msg)) + "\n")
	margin := p.snippet(d, color)
	if d.Help != "" {
		p.tail(margin, "help", d.Help)
	}
	for _, n := range d.Notes {
		at := ""
		if n.Pos.IsValid() {
			at = n.Pos.String() + ": "
		}
		p.tail(margin, "note", at+n.Msg)
	}
}

func (p *printer) tail(margin int, word, text string) {
	fmt.Fprintf(&p.out, "%*s %s %s\n", margin, "", p.paint(blue, "= "+word+":"), printable(text))
}

// snippet prints the line meant, the one before it, and the carets. It returns
// the width of the margin.
func (p *printer) snippet(d *Diagnostic, color string) int {
	f := d.Pos.file
	if f == nil || len(f.text) == 0 || d.End.file != f {
		return 1
	}
	line := d.Pos.Line()
	margin := len(strconv.Itoa(line)) + 1
	number := func(n int) string {
		if n == 0 || f.flag {
			return p.paint(blue, fmt.Sprintf("%*s |", margin, ""))
		}
		return p.paint(blue, fmt.Sprintf("%*d |", margin, n))
	}
	if line > 1 && len(bytes.TrimSpace(f.lineText(line-1))) > 0 {
		before, _, _ := f.window(line-1, span{f.lines[line-2], f.lines[line-2]})
		p.out.WriteString(strings.TrimRight(number(line-1)+" "+before, " ") + "\n")
	}
	text, skip, width := f.window(line, span{d.Pos.off, d.End.off})
	p.out.WriteString(strings.TrimRight(number(line)+" "+text, " ") + "\n")
	carets := strings.Repeat("^", max(1, width))
	if d.Label != "" {
		carets += " " + printable(d.Label)
	}
	p.out.WriteString(number(0) + " " + strings.Repeat(" ", skip) + p.paint(color, carets) + "\n")
	return margin
}

// window is a line as it is shown, with the column and width of a range in it.
// Secrets are masked, and a long line is cut around the range.
func (f *file) window(line int, at span) (text string, skip, width int) {
	start, end := f.lines[line-1], f.lineEnd(line)
	at.end = min(max(at.end, at.start), end)
	var cells []cell
	for i := start; i < end; {
		c, n := utf8.DecodeRune(f.text[i:end])
		cells = append(cells, cell{c: f.masked(i, c), in: i >= at.start && i < at.end, before: i < at.start})
		i += n
	}
	return crop(cells)
}

// cell is one character of a line that is shown.
type cell struct {
	c          rune
	before, in bool // in front of the range, in it
}

// crop cuts a long line so that the start of the range is in view.
func crop(cells []cell) (text string, skip, width int) {
	first := 0
	for first < len(cells) && cells[first].before {
		first++
	}
	from, to := 0, len(cells)
	if to > maxShown {
		from = max(0, min(first-maxShown/3, to-maxShown))
		to = min(to, from+maxShown)
	}
	var b strings.Builder
	if from > 0 {
		b.WriteString("…")
		skip++
	}
	for _, c := range cells[from:to] {
		b.WriteRune(c.c)
		switch w := runeWidth(c.c); {
		case c.before:
			skip += w
		case c.in:
			width += w
		}
	}
	if to < len(cells) {
		b.WriteString("…")
	}
	return b.String(), skip, width
}

// masked is the character to show at an offset.
func (f *file) masked(off int, c rune) rune {
	for _, m := range f.masks {
		if off >= m.start && off < m.end && c != '\n' {
			return '*'
		}
	}
	switch {
	case c == '\t':
		return ' '
	case !unicode.IsPrint(c):
		return '�'
	}
	return c
}

// runeWidth is the number of terminal columns of a character, about.
func runeWidth(c rune) int {
	switch {
	case unicode.In(c, unicode.Mn, unicode.Me):
		return 0
	case c >= 0x1100 && c <= 0x115f, c >= 0x2e80 && c <= 0xa4cf, c >= 0xac00 && c <= 0xd7a3, c >= 0xf900 && c <= 0xfaff,
		c >= 0xfe30 && c <= 0xfe6f, c >= 0xff00 && c <= 0xff60, c >= 0xffe0 && c <= 0xffe6, c >= 0x1f300 && c <= 0x1faff,
		c >= 0x20000 && c <= 0x3fffd:
		return 2
	}
	return 1
}

// printable keeps a message on its line and the terminal as it is.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return ' '
		case !unicode.IsPrint(c):
			return '�'
		}
		return c
	}, s)
}
