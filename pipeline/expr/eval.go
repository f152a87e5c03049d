package expr

import (
	"math"
	"runtime"

	"github.com/sluice-etl/sluice/connectors"
)

// Eval evaluates the expression for record row of b. Text and containers that
// it makes are in b.Arena; others are borrowed from the record and from the
// program.
func (p *Program) Eval(e *Env, b *connectors.Batch, row int) (v connectors.Value, fault *EvalError) {
	e.enter(p, b)
	defer func() {
		if r := recover(); r != nil {
			v, fault = connectors.Value{}, e.crashed(p, r)
		}
	}()
	e.at(row)
	if v = p.run(e); p.misses(v) {
		return connectors.Value{}, e.missed(p, v)
	}
	return v, nil
}

// misses reports whether v is no value that the program may have: a failure or
// one of another kind.
func (p *Program) misses(v connectors.Value) bool { return p.want&(1<<(v.Kind()&31)) == 0 }

// Filter keeps the rows of sel for which the condition is true, in place. For
// each row that has no value it calls fail and leaves the row out.
func (p *Program) Filter(e *Env, b *connectors.Batch, sel []uint16, fail func(row uint16, err *EvalError)) []uint16 {
	e.enter(p, b)
	for e.next < len(sel) {
		p.filter(e, sel, fail)
	}
	return sel[:e.kept]
}

// filter goes on from row e.next of sel, to the end or to a panic.
func (p *Program) filter(e *Env, sel []uint16, fail func(row uint16, err *EvalError)) {
	defer e.rescue(p, fail)
	test, arena := p.cond, e.arena()
	mark, made := arena.Mark(), arena.Made()
	for e.next < len(sel) {
		row := sel[e.next]
		e.next++
		e.at(int(row))
		hit := test(e)
		if arena.Made() != made { // nothing of what a condition makes is kept
			arena.Rewind(mark)
			mark, made = arena.Mark(), arena.Made()
		}
		switch hit {
		case yes:
			sel[e.kept] = row
			e.kept++
		case no:
		default:
			fail(row, e.err)
		}
	}
}

// Fill evaluates the expression for the rows of sel into a slot and returns the
// rows that have a value, in place. For each other row it calls fail.
func (p *Program) Fill(e *Env, b *connectors.Batch, sel []uint16, slot int, fail func(row uint16, err *EvalError)) []uint16 {
	ok, _ := p.FillSome(e, b, sel, slot, math.MaxInt, fail)
	return ok
}

// FillSome is Fill that stops once it has made more than limit bytes. rest are the
// rows that it has not come to.
func (p *Program) FillSome(e *Env, b *connectors.Batch, sel []uint16, slot, limit int, fail func(row uint16, err *EvalError)) (ok, rest []uint16) {
	e.enter(p, b)
	made := b.Arena.Made()
	for e.next < len(sel) && b.Arena.Made()-made <= limit {
		p.fill(e, sel, slot, made, limit, fail)
	}
	return sel[:e.kept:e.kept], sel[e.next:]
}

// fill goes on from row e.next of sel, to the end, the limit, or a panic.
func (p *Program) fill(e *Env, sel []uint16, slot, made, limit int, fail func(row uint16, err *EvalError)) {
	defer e.rescue(p, fail)
	run, arena := p.run, e.arena()
	for e.next < len(sel) && arena.Made()-made <= limit {
		row := sel[e.next]
		e.next++
		e.at(int(row))
		v := run(e)
		if p.misses(v) {
			fail(row, e.missed(p, v))
			continue
		}
		e.row[slot] = v
		sel[e.kept] = row
		e.kept++
	}
}

// rescue turns a panic, ours or of a library, into the failure of one row: it
// must stop one pipeline, with the record's place, and not the whole process.
func (e *Env) rescue(p *Program, fail func(row uint16, err *EvalError)) {
	if r := recover(); r != nil {
		fail(uint16(e.current), e.crashed(p, r))
	}
}

func (e *Env) crashed(p *Program, r any) *EvalError {
	reason := "the evaluation crashed"
	// What else panics with may show the record's data.
	if err, ok := r.(runtime.Error); ok {
		reason += ": " + err.Error()
	}
	e.err = &EvalError{Offset: p.root.offset, Length: p.root.length, Reason: reason + "; this is a fault of the program, please report it", Kind: KindCrash}
	return e.err
}
