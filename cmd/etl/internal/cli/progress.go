package cli

import (
	"fmt"
	"os"
	"time"
)

// progressLine is one line on a terminal that tells how far long work has come. Where
// there is none it shows nothing. It is used by one goroutine at a time.
type progressLine struct {
	to    *os.File // nil for nothing
	last  time.Time
	begun time.Time
	shown bool
}

// Work that is done within progressAfter shows nothing; a line stands for progressEvery.
const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 200 * time.Millisecond
)

func (a *app) progress() *progressLine {
	p := &progressLine{begun: time.Now()}
	if f, ok := a.err.(*os.File); ok && !a.json {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.to = f
		}
	}
	return p
}

func (p *progressLine) show(format string, args ...any) {
	now := time.Now()
	if p.to == nil || now.Sub(p.begun) < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}
	p.last, p.shown = now, true
	_, _ = fmt.Fprintf(p.to, "\r\x1b[K"+format, args...)
}

// end wipes the line.
func (p *progressLine) end() {
	if p.shown {
		_, _ = fmt.Fprint(p.to, "\r\x1b[K")
		p.shown = false
	}
}
