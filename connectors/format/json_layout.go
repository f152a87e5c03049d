package format

import (
	"slices"

	"github.com/sluice-etl/sluice/connectors"
)

// shape turns a layout into plans. What the edits do depends only on which of
// the names they mention a record has, so that each such set of names needs one
// plan, which is made when it first occurs and remembered.
type shape struct {
	edits []connectors.Edit
	empty bool
	names []string // that the edits mention
	// counts tells the names whose presence matters: those that are set, since they
	// may have to be added, and those that are renamed.
	counts []bool
	plans  map[string]*plan
	mask   []byte
}

// What a plan says of the raw fields of one name.
const (
	fieldStays = iota // all of them, as they are
	fieldGoes
	fieldOnce // one in the place of the first, under text, with a slot's value or the last raw one
)

// rawSlot stands for the raw value of the last field of the name.
const rawSlot = -1

// plan is what becomes of the fields of a record.
type plan struct {
	mask   []byte
	fields []fieldPlan // by the id of the name
	others uint8       // what becomes of fields that no edit mentions
	added  []addedField
	room   int // that the values of slots take, about
}

type fieldPlan struct {
	what uint8
	slot int
	name string // with quotes and colon
}

type addedField struct {
	slot int
	name string // with a comma, quotes and colon
}

// The plans that a shape remembers.
const maxPlans = 1024

func newShape(l *connectors.Layout) *shape {
	sh := &shape{empty: l.Empty, plans: map[string]*plan{}}
	for _, e := range l.Edits {
		e.Names = slices.Clone(e.Names)
		sh.edits = append(sh.edits, e)
		if e.Kind == connectors.EditKeep {
			for _, n := range e.Names {
				sh.mention(n, false)
			}
			continue
		}
		sh.mention(e.Name, e.Kind == connectors.EditSet || e.Kind == connectors.EditRename)
		if e.Kind == connectors.EditRename {
			sh.mention(e.To, false)
		}
	}
	sh.mask = make([]byte, (len(sh.names)+7)/8)
	return sh
}

func (sh *shape) mention(name string, counts bool) {
	i := intern(&sh.names, name)
	if i == len(sh.counts) {
		sh.counts = append(sh.counts, false)
	}
	sh.counts[i] = sh.counts[i] || counts
}

// present notes in the mask that the record has a field of the name.
func (sh *shape) present(id int32) {
	if sh.counts[id] {
		sh.mask[id>>3] |= 1 << (id & 7)
	}
}

// planned is the plan for the names in the mask.
func (sh *shape) planned() *plan {
	if p := sh.plans[string(sh.mask)]; p != nil {
		return p
	}
	if len(sh.plans) >= maxPlans {
		clear(sh.plans)
	}
	p := sh.plan()
	sh.plans[string(sh.mask)] = p
	return p
}

// draft is a field while the edits are applied: a raw one of the record, by the
// id of its name, or an added one.
type draft struct {
	id   int // -1 for an added one
	name string
	what uint8
	slot int
}

func (sh *shape) plan() *plan {
	p := &plan{mask: slices.Clone(sh.mask), fields: make([]fieldPlan, len(sh.names))}
	var drafts []draft
	for id, name := range sh.names {
		p.fields[id].what = fieldGoes
		there := !sh.counts[id] || sh.mask[id>>3]&(1<<(id&7)) != 0
		if there && !sh.empty {
			drafts = append(drafts, draft{id: id, name: name, slot: rawSlot})
		}
	}
	for _, e := range sh.edits {
		if e.Kind == connectors.EditKeep {
			p.others = fieldGoes
		}
		drafts = apply(drafts, e)
	}
	for _, d := range drafts {
		if d.slot != rawSlot {
			p.room += len(d.name) + valueRoom
		}
		if d.id < 0 {
			p.added = append(p.added, addedField{slot: d.slot, name: string(AppendString([]byte{','}, d.name)) + ":"})
			continue
		}
		p.fields[d.id] = fieldPlan{what: d.what, slot: d.slot, name: string(AppendString(nil, d.name)) + ":"}
	}
	return p
}

// apply does one edit.
func apply(drafts []draft, e connectors.Edit) []draft {
	named := func(name string) func(draft) bool {
		return func(d draft) bool { return d.name == name }
	}
	at := slices.IndexFunc(drafts, named(e.Name))
	switch e.Kind {
	case connectors.EditSet:
		if at < 0 {
			return append(drafts, draft{id: -1, name: e.Name, slot: e.Slot})
		}
		drafts[at].what, drafts[at].slot = fieldOnce, e.Slot
	case connectors.EditDrop:
		return slices.DeleteFunc(drafts, named(e.Name))
	case connectors.EditKeep:
		return slices.DeleteFunc(drafts, func(d draft) bool { return !slices.Contains(e.Names, d.name) })
	case connectors.EditRename:
		if at < 0 || e.To == e.Name {
			return drafts
		}
		drafts = slices.DeleteFunc(drafts, named(e.To))
		at = slices.IndexFunc(drafts, named(e.Name))
		drafts[at].what, drafts[at].name = fieldOnce, e.To
	}
	return drafts
}
