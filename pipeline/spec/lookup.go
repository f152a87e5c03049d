package spec

import (
	"fmt"
	"reflect"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// lookup decodes the block of a lookup that stands among the keys of a step's, and
// returns the step's block without it. Other blocks are returned as they are.
func (l *loader) lookup(at, n *node, target any, what string) (rest *node, ok bool) {
	holder, holds := target.(connectors.HoldsLookup)
	if !holds || n.bad || n.kind != mapNode {
		return n, true
	}
	fields := fieldsOf(reflect.TypeOf(target).Elem())
	own := &node{kind: mapNode, flow: n.flow, file: n.file, span: n.span}
	var others []*entry
	for i := range n.entries {
		e := &n.entries[i]
		if fieldIndex(fields, e.key) >= 0 {
			own.entries = append(own.entries, *e)
		} else {
			others = append(others, e)
		}
	}
	words := kindWords{
		noun: "connector", unknown: CodeConnector,
		kinds: keysOf(connectors.Lookups(), func(s connectors.LookupSpec) string { return s.Name }),
		config: func(kind string) any {
			if s, ok := connectors.LookupLookup(kind); ok {
				return s.NewConfig()
			}
			return nil
		},
	}
	b := block{at: at, node: n, what: "the " + what}
	kind := l.pickKind(b, others, keysOf(fields, func(f connectors.Field) string { return f.Key }), words)
	if kind == nil {
		return own, false
	}
	block := holder.LookupBlock()
	block.Kind = kind.key
	block.Spec, _ = connectors.LookupLookup(kind.key)
	config := block.Spec.NewConfig()
	if !l.config(kind.name, kind.value, config, "lookup "+kind.key) {
		return own, false
	}
	block.Config = config
	return own, true
}

// lookupTimes checks that a barrier does not wait for the calls of a lookup longer
// than a checkpoint may take.
func (l *loader) lookupTimes(block *node, config any) {
	c, ok := config.(*transform.LookupConfig)
	if !ok || c.LookupBlock().Spec.Local {
		return
	}
	limit := l.p.Checkpoint.Timeout
	at := func(key string) *node {
		if n := block.get(key); n != nil {
			return n
		}
		return block
	}
	switch {
	case c.CallTimeout() >= limit:
		l.fault(at("timeout"), CodeValue, fmt.Sprintf("a call may take %s, and the checkpoint that waits for it %s (checkpoint.timeout)", spanText(c.CallTimeout()), spanText(limit)),
			"write a shorter timeout")
	case c.Longest() >= limit:
		l.warn(at("retries"), CodeValue, fmt.Sprintf("with all its tries a call may take %s, and the checkpoint that waits for it %s (checkpoint.timeout)", spanText(c.Longest()), spanText(limit)),
			"write a shorter timeout or fewer retries")
	}
}

// lookupBlock writes the block of a lookup that a step's configuration holds.
func (d *dumper) lookupBlock(config any, n *node) ordered {
	holder, ok := config.(connectors.HoldsLookup)
	if !ok {
		return nil
	}
	b := holder.LookupBlock()
	if b.Config == nil {
		return nil
	}
	return ordered{{b.Kind, d.value(reflect.ValueOf(b.Config).Elem(), n.get(b.Kind))}}
}
