package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// topView is what top shows: all pipelines, or the steps of one.
type topView struct {
	all    []api.Pipeline
	fault  error
	chosen string // name of the pipeline that the arrows are at
	open   string // name of the one whose steps are shown; empty for all
	by     byte   // key of the column that sorts
	back   bool   // the other way round
	flow   *flowAt
	before *flowAt // the flow one look ago, for rates
}

// flowAt is what flowed until a time.
type flowAt struct {
	*pipeline.Flow
	chain map[string]string // of each operator
}

// take takes over what was asked for.
func (v *topView) take(s sample) {
	v.fault = s.err
	if s.all != nil {
		v.all = s.all
	}
	v.before, v.flow = v.flow, s.flow
}

// Keys that are no letters.
const (
	keyUp     = 'A' - 256
	keyDown   = 'B' - 256
	keyEscape = 27
	keyEnter  = '\r'
	keyEnd    = 3 // Ctrl-C, which is a key in raw mode
)

// press does what a key says, and reports whether that is the end.
func (v *topView) press(key rune) (end bool) {
	switch key {
	case 'q', keyEnd:
		return true
	case keyEscape:
		v.open, v.flow, v.before = "", nil, nil
	case keyEnter:
		if v.open == "" && v.chosenRow() > 0 {
			v.open = v.chosen
		}
	case keyUp, 'k':
		v.move(-1)
	case keyDown, 'j':
		v.move(1)
	case 'n', 's', 'r', 'w', 'l', 'c':
		v.back = v.by == byte(key) && !v.back
		v.by = byte(key)
	}
	return false
}

// move chooses another pipeline.
func (v *topView) move(by int) {
	if len(v.all) == 0 || v.open != "" {
		return
	}
	v.sort()
	at := min(max(v.chosenRow()-1+by, 0), len(v.all)-1)
	v.chosen = v.all[at].Name
}

// chosenRow is the row of the pipeline that is chosen, counted from 1; 0 for none.
func (v *topView) chosenRow() int {
	return 1 + slices.IndexFunc(v.all, func(p api.Pipeline) bool { return p.Name == v.chosen })
}

// sort orders the pipelines: names from A on, numbers from the highest on, checkpoints
// from the oldest on.
func (v *topView) sort() {
	slices.SortStableFunc(v.all, func(x, y api.Pipeline) int {
		c := cmp.Compare(x.Name, y.Name)
		switch v.by {
		case 's':
			c = cmp.Or(cmp.Compare(x.State, y.State), c)
		case 'r':
			c = cmp.Or(cmp.Compare(y.ReadRate, x.ReadRate), c)
		case 'w':
			c = cmp.Or(cmp.Compare(y.WriteRate, x.WriteRate), c)
		case 'l':
			c = cmp.Or(cmp.Compare(lagOf(&y), lagOf(&x)), c)
		case 'c':
			c = cmp.Or(completedAt(&x).Compare(completedAt(&y)), c)
		}
		if v.back {
			return -c
		}
		return c
	})
}

func completedAt(p *api.Pipeline) time.Time {
	if p.Checkpoint == nil {
		return time.Time{}
	}
	return p.Checkpoint.Time
}

// opened is the pipeline whose steps are shown; nil where it is gone.
func (v *topView) opened() *api.Pipeline {
	i := slices.IndexFunc(v.all, func(p api.Pipeline) bool { return p.Name == v.open })
	if i < 0 {
		return nil
	}
	return &v.all[i]
}

// lines are what is shown, cut to a screen of that size; 0 is without bounds.
func (v *topView) lines(now time.Time, width, height int, paint painter) []string {
	v.sort()
	var body []string
	if v.open == "" {
		body = v.allLines(now, paint)
	} else {
		body = v.oneLines(now, paint)
	}
	if v.fault != nil {
		body = append([]string{paint(red, "error: "+v.fault.Error()), ""}, body...)
	}
	if height == 0 {
		return body
	}
	help := "q ends  ↑↓ choose  Enter opens  sort by n(ame) s(tate) r(ead) w(ritten) l(ag) c(heckpoint)"
	if v.open != "" {
		help = "q ends  Esc goes back"
	}
	body = visible(body, v.chosenRow(), height-1)
	for len(body) < height-1 {
		body = append(body, "")
	}
	body = append(body, paint(faint, help))
	for i := range body {
		body[i] = fit(body[i], width)
	}
	return body
}

// visible are as many lines as there is room for, scrolled so that the chosen row below
// the two lines at the top is among them.
func visible(lines []string, chosen, room int) []string {
	const fixed = 2
	if len(lines) <= room || room <= fixed {
		return lines[:min(len(lines), max(room, 0))]
	}
	from := max(0, chosen-(room-fixed))
	from = min(from, len(lines)-room)
	return append(slices.Clone(lines[:fixed]), lines[fixed+from:from+room]...)
}

func (v *topView) allLines(now time.Time, paint painter) []string {
	t := pipelineTable(v.all, now)
	t.mark = v.chosenRow()
	well := 0
	var read, written float64
	for i := range v.all {
		p := &v.all[i]
		if p.Health.OK {
			well++
		}
		read, written = read+p.ReadRate, written+p.WriteRate
	}
	sum := fmt.Sprintf("%s, %d well   read %s/s   written %s/s   %s", many(len(v.all), "pipeline"), well, rateText(read), rateText(written), now.Format(time.TimeOnly))
	return append([]string{sum}, t.lines("", paint)...)
}

// operatorRate is what one source, step or sink does in a second.
type operatorRate struct {
	Name          string  `json:"name"`
	In            float64 `json:"in_rate"`
	Out           float64 `json:"out_rate"`
	Errors        float64 `json:"error_rate"`
	Busy          float64 `json:"busy"`
	Backpressured float64 `json:"backpressured"`
	Keys          int64   `json:"state_keys"`
	State         int64   `json:"state_bytes"`
	Watermark     *int64  `json:"watermark,omitempty"`
}

// rates are those of each operator between the last two looks. Counters that began anew
// in between count from 0.
func (v *topView) rates() []operatorRate {
	if v.flow == nil {
		return nil
	}
	before := map[string]pipeline.OperatorFlow{}
	span := 0.0
	if v.before != nil {
		span = v.flow.Time.Sub(v.before.Time).Seconds()
		for _, o := range v.before.Operators {
			before[o.Name] = o
		}
	}
	rate := func(now, then int64) float64 {
		if now < then {
			then = 0
		}
		if span <= 0 {
			return -1
		}
		return float64(now-then) / span
	}
	load := map[string]chainLoad{}
	for _, l := range loads(v.flow.Flow) {
		load[l.chain] = l
	}
	out := make([]operatorRate, 0, len(v.flow.Operators))
	for _, o := range v.flow.Operators {
		was := before[o.Name]
		l := load[v.flow.chain[o.Name]]
		out = append(out, operatorRate{
			Name: o.Name, In: rate(o.In, was.In), Out: rate(o.Out, was.Out), Errors: rate(total(o.Errors), total(was.Errors)),
			Busy: l.busy, Backpressured: l.blocked, Keys: o.Keys, State: o.StateMemory + o.StateDisk, Watermark: o.Watermark,
		})
	}
	return out
}

func total(m map[string]int64) int64 {
	var sum int64
	for _, n := range m {
		sum += n
	}
	return sum
}

func (v *topView) oneLines(now time.Time, paint painter) []string {
	p := v.opened()
	if p == nil {
		return nil
	}
	out := append([]string{headline(p, now, paint)}, problemLines(p, now, paint)...)
	out = append(out, fmt.Sprintf("  read %s/s   written %s/s   lag %s   checkpoint %s ago", rateText(p.ReadRate), rateText(p.WriteRate), lagText(p), checkpointAge(p, now)), "")
	t := &grid{heading: []string{"STEP", "IN/S ", "OUT/S ", "FAILED/S ", "BUSY ", "HELD UP ", "KEYS ", "STATE ", "WATERMARK "}}
	for _, o := range v.rates() {
		failed := plain(rateText(o.Errors))
		if o.Errors > 0 {
			failed.color = red
		}
		busy := plain(shareText(o.Busy))
		if o.Busy >= heldUp {
			busy.color = yellow
		}
		t.add(plain(o.Name), plain(rateText(o.In)), plain(rateText(o.Out)), failed, busy, plain(shareText(o.Backpressured)),
			plain(countText(o.Keys)), plain(sizeText(o.State)), plain(watermarkText(o.Watermark, now)))
	}
	if len(t.rows) == 0 {
		return append(out, "  nothing flows now")
	}
	return append(out, t.lines("  ", paint)...)
}

// fit cuts a line to a width in characters, colours not counted.
func fit(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	var b strings.Builder
	seen, escape, colored := 0, false, false
	for _, r := range line {
		switch {
		case escape:
			b.WriteRune(r)
			escape = r != 'm'
		case r == '\x1b':
			b.WriteRune(r)
			escape, colored = true, true
		case seen < width:
			b.WriteRune(r)
			seen++
		}
	}
	if colored {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}
