package cli

import (
	"strings"
	"unicode/utf8"
)

// The colours that stand for how well something is.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
)

// cell is a text with its colour, empty for none.
type cell struct{ text, color string }

// plain is a cell without colour.
func plain(text string) cell { return cell{text: text} }

// grid is rows of cells below a heading, aligned for people. Columns whose heading
// ends with a blank have numbers, which stand to the right.
type grid struct {
	heading []string
	rows    [][]cell
	// mark is the row that is shown in reverse, counted from 1; 0 for none.
	mark int
}

func (t *grid) add(cells ...cell) { t.rows = append(t.rows, cells) }

// lines are the heading and the rows, each after an indent.
func (t *grid) lines(indent string, paint painter) []string {
	heading := make([]cell, len(t.heading))
	right := make([]bool, len(t.heading))
	for i, text := range t.heading {
		right[i] = strings.HasSuffix(text, " ")
		heading[i] = cell{strings.TrimSuffix(text, " "), faint}
	}
	all := append([][]cell{heading}, t.rows...)
	widths := make([]int, len(heading))
	for _, row := range all {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	out := make([]string, 0, len(all))
	for n, row := range all {
		var b strings.Builder
		p := paint
		if n > 0 && n == t.mark {
			p = func(_, text string) string { return text }
		}
		for i, c := range row {
			b.WriteString(c.padded(widths[i], right[i], i == len(row)-1, p))
		}
		line := strings.TrimRight(b.String(), " ")
		if n > 0 && n == t.mark {
			line = paint("\x1b[7m", line)
		}
		out = append(out, indent+line)
	}
	return out
}

// padded is the cell's text at the width of its column, and the gap to the next one.
func (c cell) padded(width int, right, last bool, paint painter) string {
	text := c.text
	if c.color != "" && text != "" {
		text = paint(c.color, text)
	}
	pad := strings.Repeat(" ", width-utf8.RuneCountInString(c.text))
	switch {
	case right:
		text = pad + text
	case !last:
		text += pad
	}
	if !last {
		text += "  "
	}
	return text
}
