package expr

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// failed is the kind of the value that stands for "there is no value, see
// Env.err". It never leaves the package. Every operation looks at the kinds of
// its operands anyway, so that it costs nothing where all goes well.
const failed connectors.Kind = 255

// fn evaluates a part of an expression.
type fn func(e *Env) connectors.Value

// truth is the value of a condition.
type truth uint8

const (
	no truth = iota
	yes
	unknown // failed
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

// cond evaluates a part that must be a bool.
type cond func(e *Env) truth

// Env is what a subtask evaluates its expressions with: the clock and reusable
// memory. It is used by one goroutine.
type Env struct {
	// Now is the processing time; nil is the wall clock.
	Now func() time.Time

	batch   *connectors.Batch
	row     []connectors.Value
	rec     *connectors.Record
	vars    []connectors.Value
	stack   []connectors.Value // arguments of calls
	scratch []byte             // text under construction, a stack
	err     *EvalError
	current int // row in batch
	next    int // position in the selection to go on from
	kept    int // rows kept so far
	steps   int // left for this evaluation
	bytes   int // left for this evaluation
	limits  Limits
	regexes regexCache
	zones   zoneCache
	vm      vmState
	dec     decimals
}

// NewEnv makes an Env that reads the wall clock.
func NewEnv() *Env { return &Env{Now: time.Now} }

// scratchKept is how much scratch text stays allocated from batch to batch.
const scratchKept = 1 << 20

func (e *Env) enter(p *Program, b *connectors.Batch) {
	e.batch = b
	e.limits = p.limits
	e.next, e.kept = 0, 0
	if cap(e.scratch) > scratchKept {
		e.scratch = nil
	}
	if len(e.vars) < p.vars {
		e.vars = make([]connectors.Value, p.vars)
	}
}

func (e *Env) at(row int) {
	b := e.batch
	e.current = row
	at := row * b.Stride
	e.row = b.Slots[at : at+b.Stride : at+b.Stride]
	e.rec = &b.Records[row]
	e.steps, e.bytes = e.limits.Steps, e.limits.Bytes
	if e.err != nil {
		// What failed has left things as they were then.
		e.stack, e.scratch, e.err = e.stack[:0], e.scratch[:0], nil
	}
}

func (e *Env) arena() *connectors.Arena { return &e.batch.Arena }

// site is a place in the text that can fail.
type site struct {
	offset, length int
	name           string            // how messages call it: the field's path, or the text
	field          bool              // name is a field
	constant       *connectors.Value // set where the value is the same for all records
	whole          int               // 1 + the slot that the field's whole path is in, 0 for none
}

var failure = connectors.TextValue(failed, nil)

// fail records why there is no value. The first reason stays.
func (e *Env) fail(s *site, kind, reason string) connectors.Value {
	if e.err == nil {
		e.err = &EvalError{Offset: s.offset, Length: s.length, Reason: reason, Kind: kind}
	}
	return failure
}

func (e *Env) failf(s *site, kind, format string, args ...any) connectors.Value {
	return e.fail(s, kind, fmt.Sprintf(format, args...))
}

// null says that what is null cannot be used so.
func (e *Env) null(s *site, use, instead string) connectors.Value {
	if s.whole > 0 && e.row[s.whole-1].Kind() == connectors.Absent {
		return e.failf(s, KindNull, "there is no field %s in the record, so it is null and cannot be %s; write `%s ?? %s` to give it a value", s.name, use, s.bracketed(), instead)
	}
	return e.failf(s, KindNull, "%s is null and cannot be %s; write `%s ?? %s` to give it a value", s.name, use, s.bracketed(), instead)
}

func (s *site) bracketed() string {
	if s.field || !strings.ContainsAny(s.name, " ?") {
		return s.name
	}
	return "(" + s.name + ")"
}

// spend takes n bytes from what the evaluation may make.
func (e *Env) spend(s *site, n int) bool {
	if n <= e.bytes {
		e.bytes -= n
		return true
	}
	e.failf(s, KindLimit, "the expression makes more than %d bytes", e.limits.Bytes)
	return false
}

// step takes n steps from what the evaluation may do.
func (e *Env) step(s *site, n int) bool {
	if n <= e.steps {
		e.steps -= n
		return true
	}
	return e.tooLong(s)
}

func (e *Env) tooLong(s *site) bool {
	e.failf(s, KindLimit, "the expression takes more than %d steps", e.limits.Steps)
	return false
}

// scanShift is the size, as a power of two, of what a step goes through.
const scanShift = 6

// lengthy is the kinds of values that may be long.
const lengthy = textBit | bytesBit | listBit | mapBit

// read pays for going through v once, where it is long.
func (e *Env) read(s *site, v connectors.Value) bool {
	return lengthy&(1<<(v.Kind()&31)) == 0 || len(v.Raw())>>scanShift == 0 || e.step(s, len(v.Raw())>>scanShift)
}

// condition reads v as a condition.
func (e *Env) condition(s *site, v connectors.Value) truth {
	switch v.Kind() {
	case connectors.Bool:
		return truthOf(v.Bool())
	case failed:
	case connectors.Absent, connectors.Null:
		e.null(s, "used as a condition", "false")
	default:
		e.failf(s, KindType, "%s is %s, but a condition must be a bool", s.name, article(v.Kind()))
	}
	return unknown
}

// missed is why v is no value of the program.
func (e *Env) missed(p *Program, v connectors.Value) *EvalError {
	switch k := v.Kind(); {
	case k == failed:
	case k <= connectors.Null:
		e.failf(p.root, KindNull, "%s is null, but must be %s; `?? …` gives it a value", p.root.name, p.want)
	default:
		e.failf(p.root, KindType, "%s is %s, but must be %s", p.root.name, article(k), p.want)
	}
	return e.err
}

// article is the kind's name in a sentence.
func article(k connectors.Kind) string {
	switch k {
	case connectors.Absent, connectors.Null:
		return "null"
	case connectors.Bytes:
		return "bytes"
	case connectors.Int:
		return "an int"
	default:
	}
	return "a " + k.String()
}
