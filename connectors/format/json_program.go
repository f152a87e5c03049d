package format

import "bytes"

// program is a plan applied to one order of fields.
type program struct {
	plan *plan
	ops  []op
	// What it was made for: order and number of fields, and whose order it is.
	order, fields, stamp uint32

	ids    []int32 // of the fields
	places []place // by the id of the name
}

// op puts one part of a record into the new value: without a name the raw fields
// between two, both included, and with one that and a value. Fields are given by
// where their spans are.
type op struct {
	from, to int32
	slot     int // rawSlot for the raw value of the field to
	name     string
}

// place is the first and the last field of a name.
type place struct {
	first, last int32
	there       bool
}

// fits reports whether the program is for these fields.
func (p *program) fits(stamp, order, fields uint32) bool {
	return order != 0 && stamp != noStamp && p.order == order && p.fields == fields && p.stamp == stamp
}

// build makes the program for fields with the given ids.
func (p *program) build(sh *shape) {
	if len(p.places) == 0 {
		p.places = make([]place, len(sh.names))
	}
	clear(p.places)
	clear(sh.mask)
	for i, id := range p.ids {
		if id < 0 {
			continue
		}
		sh.present(id)
		at := &p.places[id]
		if !at.there {
			*at = place{first: int32(i), there: true}
		}
		at.last = int32(i)
	}
	if !bytes.Equal(sh.mask, p.plan.mask) {
		p.plan = sh.planned()
	}
	p.ops = p.ops[:0]
	open := false // whether the last op takes over raw fields up to here
	for i, id := range p.ids {
		at, what := int32(i*spanWords), p.plan.others
		if id >= 0 {
			what = p.plan.fields[id].what
		}
		switch {
		case what == fieldStays && open:
			p.ops[len(p.ops)-1].to = at
		case what == fieldStays:
			p.ops = append(p.ops, op{from: at, to: at})
		case what == fieldOnce && p.places[id].first == int32(i):
			f := &p.plan.fields[id]
			p.ops = append(p.ops, op{to: p.places[id].last * spanWords, slot: f.slot, name: f.name})
		}
		open = what == fieldStays
	}
}
