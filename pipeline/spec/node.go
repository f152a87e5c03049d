package spec

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// kind is what a value is by the rules of YAML 1.2's core schema.
type kind uint8

const (
	nullNode kind = iota
	boolNode
	intNode
	floatNode
	textNode
	mapNode
	listNode
)

// style is how a scalar is written.
type style uint8

const (
	plain style = iota
	single
	double
	literal
	folded
)

// node is one value of the file.
type node struct {
	kind    kind
	style   style
	flow    bool   // of a map or list: written in brackets
	text    string // of a scalar, after variables
	raw     string // of a scalar, before variables
	pieces  []piece
	entries []entry
	items   []*node

	file *file
	span span // the whole scalar; of maps and lists only what is worth underlining
	size int  // nodes in it, aliases counted at each use

	implicit bool // no value is written
	bad      bool // a fault is reported already, so what it holds counts for nothing
	secret   bool // from ${file:…}
	resolved bool // variables are in
}

// entry is a key of a map with its value.
type entry struct {
	key   string
	name  *node // the key as it is written
	value *node
}

func (n *node) scalar() bool { return n.kind < mapNode }

// get finds a value by its key, nil where there is none.
func (n *node) get(key string) *node {
	if e := n.entry(key); e != nil {
		return e.value
	}
	return nil
}

func (n *node) entry(key string) *entry {
	if n == nil {
		return nil
	}
	for i := range n.entries {
		if n.entries[i].key == key {
			return &n.entries[i]
		}
	}
	return nil
}

// child follows one key of a path: a map's key, a list's index, or a text itself,
// alone or in a list, as the keys of a group are written.
func (n *node) child(key string) *node {
	if n.kind == listNode {
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.items) {
			return n.items[i]
		}
		for _, item := range n.items {
			if item.kind == textNode && item.text == key {
				return item
			}
		}
		return nil
	}
	if n.kind == textNode && n.text == key {
		return n
	}
	return n.get(key)
}

// at follows a path; nil where it leads nowhere.
func (n *node) at(path []string) *node {
	for _, key := range path {
		if n == nil {
			return nil
		}
		n = n.child(key)
	}
	return n
}

var (
	intText   = regexp.MustCompile(`^([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`)
	floatText = regexp.MustCompile(`^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

// typePlain tells what an unquoted scalar is: YAML 1.2's core schema, in which
// yes, on and y are text.
func typePlain(s string) kind {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return nullNode
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return boolNode
	}
	if c := s[0]; c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') {
		return textNode
	}
	switch {
	case intText.MatchString(s):
		if _, err := parseInt(s); err != nil {
			return floatNode
		}
		return intNode
	case floatText.MatchString(s):
		return floatNode
	}
	return textNode
}

func parseInt(s string) (int64, error) {
	s = strings.TrimPrefix(s, "+")
	switch {
	case strings.HasPrefix(s, "0o"):
		return strconv.ParseInt(s[2:], 8, 64)
	case strings.HasPrefix(s, "0x"):
		return strconv.ParseInt(s[2:], 16, 64)
	}
	return strconv.ParseInt(s, 10, 64)
}

func parseFloat(s string) float64 {
	switch strings.ToLower(strings.TrimLeft(s, "+-")) {
	case ".inf":
		return math.Inf(1 - 2*strings.Count(s, "-"))
	case ".nan":
		return math.NaN()
	}
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// value is the node as ConfigValue and format options take it.
func (n *node) value() any {
	switch n.kind {
	case boolNode:
		return strings.EqualFold(n.text, "true")
	case intNode:
		i, _ := parseInt(n.text)
		return i
	case floatNode:
		return parseFloat(n.text)
	case textNode:
		return n.text
	case listNode:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.value()
		}
		return list
	case mapNode:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			m[e.key] = e.value.value()
		}
		return m
	default:
		return nil
	}
}

// words names what the node is, for messages.
func (n *node) words() string {
	switch n.kind {
	case nullNode:
		return "nothing"
	case boolNode:
		return n.quote()
	case intNode, floatNode:
		return "the number " + n.shown()
	case textNode:
		return "the text " + n.quote()
	case mapNode:
		return "a map"
	default:
		return "a list"
	}
}

// shown is the scalar's text, safe to print.
func (n *node) shown() string {
	if n.secret {
		return hidden
	}
	if len(n.text) > 60 {
		return strings.ToValidUTF8(n.text[:57], "") + "…"
	}
	return n.text
}

func (n *node) quote() string {
	if n.kind == boolNode {
		return n.shown()
	}
	return strconv.Quote(n.shown())
}

// hidden stands for what must not be shown.
const hidden = "***"
