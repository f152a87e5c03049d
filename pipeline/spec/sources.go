package spec

import (
	"fmt"
	"strconv"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// blockName is the name of a source or sink: the key of the map it stands in,
// what the block itself says, or the noun.
func (l *loader) blockName(b block, noun, own string) (string, *node) {
	n := b.node.get("name")
	if len(b.path) == 2 {
		if n != nil {
			l.fault(b.node.entry("name").name, CodeUnknownKey, fmt.Sprintf("the %s is named %s already, by the key that it stands under", noun, b.path[1]), "remove `name`")
		}
		return b.path[1], b.at
	}
	if n != nil {
		return own, n
	}
	return noun, b.at
}

func (l *loader) uid(b block, name, own string) string {
	if n := b.node.get("uid"); n != nil && l.name(n, own, "an operator") {
		return own
	}
	return name
}

func (l *loader) sources(one, many *node) {
	words := kindWords{
		noun: "connector", unknown: CodeConnector,
		config: func(kind string) any {
			if s, ok := connectors.LookupSource(kind); ok {
				return s.NewConfig()
			}
			return nil
		},
		kinds: keysOf(connectors.Sources(), func(s connectors.SourceSpec) string { return s.Name }),
	}
	for _, b := range l.named(one, many, "source") {
		var keys sourceKeys
		kind := l.split(b, &keys, words)
		s := Source{Pos: b.at.file.at(b.at.span.start), Path: b.path, Timestamp: keys.Timestamp}
		var at *node
		s.Name, at = l.blockName(b, "source", keys.Name)
		l.define(s.Name, at, b.what)
		s.UID = l.uid(b, s.Name, keys.UID)
		s.OnError = l.onError(keys.OnError, keys.MaxErrors, l.inherited)
		s.Watermark = l.watermark(b, keys.Watermark)
		s.Schema = l.schema(b, keys.Schema)
		if kind != nil {
			s.Kind = kind.key
			s.Spec, _ = connectors.LookupSource(kind.key)
			config := s.Spec.NewConfig()
			if l.config(kind.name, kind.value, config, "source "+kind.key) {
				s.Format = l.formatOf(config)
				if l.format(kind.value, s.Format) {
					s.Config = config
					l.registrySchema(&s, keys.Schema)
				}
			}
		}
		l.p.Sources = append(l.p.Sources, s)
	}
}

func (l *loader) sinks(one, many *node) {
	words := kindWords{
		noun: "connector", unknown: CodeConnector,
		config: func(kind string) any {
			if s, ok := connectors.LookupSink(kind); ok {
				return s.NewConfig()
			}
			return nil
		},
		kinds: keysOf(connectors.Sinks(), func(s connectors.SinkSpec) string { return s.Name }),
	}
	for _, b := range l.named(one, many, "sink") {
		var keys sinkKeys
		kind := l.split(b, &keys, words)
		s := Sink{Pos: b.at.file.at(b.at.span.start), Path: b.path}
		var at *node
		s.Name, at = l.blockName(b, "sink", keys.Name)
		l.define(s.Name, at, b.what)
		s.UID = l.uid(b, s.Name, keys.UID)
		s.OnError = l.onError(keys.OnError, keys.MaxErrors, l.inherited)
		if kind != nil {
			s.Kind = kind.key
			s.Spec, _ = connectors.LookupSink(kind.key)
			config := s.Spec.NewConfig()
			if l.config(kind.name, kind.value, config, "sink "+kind.key) {
				s.Format = l.formatOf(config)
				if l.format(kind.value, s.Format) {
					s.Config = config
				}
			}
		}
		l.froms = append(l.froms, from{node: keys.From, key: "from", at: b.at, name: s.Name, what: b.what, sink: true, index: len(l.p.Sinks), broken: kind == nil})
		l.p.Sinks = append(l.p.Sinks, s)
	}
}

func (l *loader) transforms(list *node) {
	if list == nil || list.bad || list.kind == nullNode {
		return
	}
	if list.kind != listNode {
		l.fault(list, CodeType, "transforms must be a list of steps, not "+list.words(), "start each step with `- `")
		return
	}
	words := kindWords{
		noun: "operator", unknown: CodeOperator,
		config: func(kind string) any {
			if s, ok := transform.Lookup(kind); ok {
				return s.NewConfig()
			}
			return nil
		},
		kinds: keysOf(transform.All(), func(s transform.Spec) string { return s.Name }),
	}
	for i, n := range list.items {
		l.transform(i, n, words)
	}
}

func (l *loader) transform(i int, n *node, words kindWords) {
	b := block{n, n, fmt.Sprintf("step %d", i+1), []string{"transforms", strconv.Itoa(i)}}
	if own := n.get("name"); own != nil && own.scalar() && !own.bad {
		b.what = "step " + own.shown()
	}
	var keys stepKeys
	kind := l.split(b, &keys, words)
	t := Transform{Pos: n.file.at(n.span.start), Path: b.path, Named: keys.Name != ""}
	t.Name = keys.Name
	at := n
	if !t.Named {
		t.Name = fmt.Sprintf("step-%d", i+1)
		if kind != nil {
			t.Name = fmt.Sprintf("%s-%d", kind.key, i+1)
		}
	} else {
		at = n.get("name")
	}
	l.define(t.Name, at, b.what)
	t.UID = l.uid(b, t.Name, keys.UID)
	t.OnError = l.onError(keys.OnError, keys.MaxErrors, l.inherited)
	if kind != nil {
		t.Kind = kind.key
		t.Spec, _ = transform.Lookup(kind.key)
		config := t.Spec.NewConfig()
		if l.config(kind.name, kind.value, config, kind.key) {
			t.Config = config
			l.inFolder(config)
			l.lookupTimes(kind.value, config)
			if t.Spec.Branches != nil {
				t.Branches = t.Spec.Branches(config)
			}
		}
	}
	f := from{node: keys.From, key: "from", at: n, name: t.Name, what: b.what, index: i, broken: kind == nil}
	if t.Spec.Inputs != nil {
		f.inputs = true
		f.broken = t.Config == nil
		if e := n.entry("from"); e != nil {
			l.fault(e.name, CodeFrom, fmt.Sprintf("%s names what it reads in its own block", t.Kind), "remove from")
		}
	}
	if t.Spec.BuildKeyed != nil && !t.Named && keys.UID == "" {
		l.warn(kind.name, CodeNoName, fmt.Sprintf("the %s keeps state and has no name: once a step is put before it, a checkpoint's state is not found for it any more", t.Kind), "add a name to it")
	}
	l.froms = append(l.froms, f)
	l.p.Transforms = append(l.p.Transforms, t)
}
