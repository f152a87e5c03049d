package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// override applies the --set flags to the tree.
func (l *loader) override() {
	for _, flag := range l.opts.Set {
		f := newFile("--set", []byte(flag))
		f.flag = true
		key, value, ok := strings.Cut(flag, "=")
		if !ok || key == "" {
			l.flagFault(f, span{0, len(flag)}, fmt.Sprintf("%q sets nothing", flag), "write --set key.path=value, such as checkpoint.interval=10s")
			continue
		}
		if n := l.flagValue(key, value); n != nil {
			l.p.root = l.set(l.p.root, f, 0, key, n)
		}
	}
}

func (l *loader) flagFault(f *file, at span, msg, help string) {
	l.report(Diagnostic{Severity: Error, Code: CodeOverride, Pos: f.at(at.start), End: f.at(at.end), Msg: msg, Help: help})
}

// flagValue reads the value of a flag: a plain text, typed as in a file, or
// YAML in brackets or quotes.
func (l *loader) flagValue(key, value string) *node {
	f := newFile("--set "+key, []byte(value))
	f.flag = true
	if value != "" && strings.ContainsRune(`[{"'`, rune(value[0])) {
		r := &reader{file: f, report: l.report, anchors: map[string]*node{}, repaired: map[int]repaired{}}
		return r.value()
	}
	return &node{kind: typePlain(value), file: f, text: value, raw: value, span: span{0, len(value)}, size: 1}
}

// set returns n with the value at the path of a flag, copying what it changes,
// since aliases share nodes. from is where the path goes on within the flag.
func (l *loader) set(n *node, f *file, from int, path string, value *node) *node {
	key, rest, more := strings.Cut(path, ".")
	name := &node{kind: textNode, file: f, text: key, span: span{from, from + len(key)}, size: 1}
	if n == nil || n.kind == nullNode {
		n = &node{kind: mapNode, file: f, span: name.span}
	}
	out := *n
	switch {
	case key == "":
		l.flagFault(f, span{from, from + 1}, "the path has an empty key", "write --set key.path=value")
	case n.kind == mapNode:
		out.entries = append([]entry(nil), n.entries...)
		next := value
		old := out.entry(key)
		if more {
			var below *node
			if old != nil {
				below = old.value
			}
			next = l.set(below, f, from+len(key)+1, rest, value)
		}
		if old != nil {
			old.value = next
			if !more {
				old.name = name
			}
			break
		}
		out.entries = append(out.entries, entry{key, name, next})
	case n.kind == listNode:
		i, ok := n.index(key)
		if !ok {
			l.flagFault(f, name.span, fmt.Sprintf("the list has no item %q", key), fmt.Sprintf("write a number from 0 to %d, or the name of a step", len(n.items)-1))
			break
		}
		out.items = append([]*node(nil), n.items...)
		if more {
			value = l.set(out.items[i], f, from+len(key)+1, rest, value)
		}
		out.items[i] = value
	case !n.bad:
		l.flagFault(f, name.span, fmt.Sprintf("%q cannot be set in %s", key, n.words()), "check the path")
	}
	return &out
}

// index finds an item of a list by its number or its name.
func (n *node) index(key string) (int, bool) {
	for i, item := range n.items {
		if name := item.get("name"); name != nil && name.text == key {
			return i, true
		}
	}
	i, err := strconv.Atoi(key)
	return i, err == nil && i >= 0 && i < len(n.items)
}
