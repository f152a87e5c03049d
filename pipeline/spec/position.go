package spec

import (
	"bytes"
	"fmt"
	"sort"
	"unicode/utf8"
)

// file is a text that positions point into: a pipeline file, or a --set flag.
type file struct {
	name  string
	text  []byte
	flag  bool  // a --set flag rather than a file
	lines []int // offset of each line's first byte
	masks []span
}

// span is a range of bytes.
type span struct{ start, end int }

func newFile(name string, text []byte) *file {
	f := &file{name: name, text: text, lines: []int{0}}
	for i, b := range text {
		if b == '\n' {
			f.lines = append(f.lines, i+1)
		}
	}
	return f
}

// offset is the byte at a 1-based line and column in runes, clamped to the line.
func (f *file) offset(line, col int) int {
	if line < 1 || line > len(f.lines) {
		return len(f.text)
	}
	off, end := f.lines[line-1], f.lineEnd(line)
	for ; col > 1 && off < end; col-- {
		_, n := utf8.DecodeRune(f.text[off:end])
		off += n
	}
	return off
}

// lineEnd is the offset of the end of a 1-based line, without its line break.
func (f *file) lineEnd(line int) int {
	if line < len(f.lines) {
		return f.lines[line] - 1
	}
	return len(f.text)
}

func (f *file) line(off int) int {
	return sort.Search(len(f.lines), func(i int) bool { return f.lines[i] > off })
}

func (f *file) lineText(line int) []byte {
	return bytes.TrimRight(f.text[f.lines[line-1]:f.lineEnd(line)], "\r")
}

func (f *file) at(off int) Pos { return Pos{file: f, off: max(0, min(off, len(f.text)))} }

// Pos is a place in a pipeline file or in a --set flag. The zero Pos is nowhere.
type Pos struct {
	file *file
	off  int
}

// IsValid reports whether the position is anywhere.
func (p Pos) IsValid() bool { return p.file != nil }

// File is the name of the file, "--set" for a flag.
func (p Pos) File() string {
	if p.file == nil {
		return ""
	}
	return p.file.name
}

// Line counts from 1.
func (p Pos) Line() int {
	if p.file == nil {
		return 0
	}
	return p.file.line(p.off)
}

// Column counts characters from 1.
func (p Pos) Column() int {
	if p.file == nil {
		return 0
	}
	return utf8.RuneCount(p.file.text[p.file.lines[p.Line()-1]:p.off]) + 1
}

// String is FILE:LINE:COLUMN, or the name alone for a flag and for a file
// that could not be read.
func (p Pos) String() string {
	if p.file == nil || p.file.flag || len(p.file.text) == 0 {
		return p.File()
	}
	return fmt.Sprintf("%s:%d:%d", p.File(), p.Line(), p.Column())
}
