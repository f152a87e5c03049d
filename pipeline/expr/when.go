package expr

import (
	"slices"

	"github.com/sluice-etl/sluice/connectors"
)

// When is p where the condition holds, and null where it does not: there p is not
// evaluated, so that it cannot fail. That is what the condition of an aggregate
// function is for, as in sum_if(a / b, b != 0).
func When(condition, p *Program) *Program {
	q := *p
	q.typ, q.want, q.slot, q.cond = p.typ.Nullable(), p.want.Nullable(), -1, nil
	q.vars, q.native = max(p.vars, condition.vars), p.native && condition.native
	q.whole, q.tombstone = p.whole || condition.whole, p.tombstone || condition.tombstone
	q.varies = p.varies || condition.varies
	q.fields = slices.Clone(condition.fields)
	for _, f := range p.fields {
		if !slices.ContainsFunc(q.fields, func(o []string) bool { return slices.Equal(o, f) }) {
			q.fields = append(q.fields, f)
		}
	}
	root := *p.root
	root.constant = nil
	q.root = &root
	q.run = func(e *Env) connectors.Value {
		switch condition.cond(e) {
		case yes:
			return p.run(e)
		case no:
			return connectors.NullValue()
		default:
		}
		return failure
	}
	return &q
}
