package spec

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// convert makes a node of what the parser found.
func (r *reader) convert(n ast.Node) *node {
	r.depth++
	defer func() { r.depth-- }()
	if r.depth > 4*maxDepth {
		return r.refuse(n, CodeLimit, fmt.Sprintf("blocks are nested deeper than %d", maxDepth), "")
	}
	switch n := n.(type) {
	case nil:
		return &node{file: r.file, implicit: true, size: 1}
	case *ast.MappingNode:
		return r.mapping(n)
	case *ast.MappingValueNode:
		return r.entries(&node{kind: mapNode, file: r.file}, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		return r.sequence(n)
	case *ast.LiteralNode:
		return r.block(n)
	case *ast.AnchorNode:
		return r.anchor(n)
	case *ast.AliasNode:
		return r.alias(n)
	case *ast.TagNode:
		return r.refuse(n, CodeTag, "YAML tags are not used in pipelines", "quote the text, or remove the tag")
	}
	if s, ok := n.(ast.ScalarNode); ok {
		return r.scalar(s.GetToken())
	}
	return r.refuse(n, CodeSyntax, "this cannot stand here", "")
}

// refuse reports a fault and stands for what has it.
func (r *reader) refuse(n ast.Node, code Code, msg, help string) *node {
	at := r.token(n.GetToken())
	r.fault(code, at, msg, help)
	return &node{file: r.file, span: at, bad: true, size: 1}
}

// scalar makes a node of a token; plain ones are typed.
func (r *reader) scalar(tk *token.Token) *node {
	n := &node{kind: textNode, file: r.file, text: tk.Value, size: 1}
	start := r.offset(tk)
	if fix, ok := r.repaired[r.file.line(start)]; ok && fix.start == start {
		n.text, n.bad, n.span = fix.text, true, span{start, start + len(fix.text)}
		n.raw = n.text
		return n
	}
	switch tk.Type {
	case token.SingleQuoteType:
		n.style = single
		start = r.find(start, '\'')
	case token.DoubleQuoteType:
		n.style = double
		start = r.find(start, '"')
	case token.ImplicitNullType:
		n.text, n.implicit = "", true
	default:
		if tk.Type != token.StringType {
			n.text = strings.TrimSpace(tk.Value)
		}
	}
	if n.style == plain {
		n.text = cutIndentedComment(n.text)
		n.kind = typePlain(n.text)
	}
	n.raw = n.text
	n.span = span{start, start}
	if n.style == plain {
		n.span.end = n.scanEnd()
		return n
	}
	quote := map[style]byte{single: '\'', double: '"'}[n.style]
	if start >= len(r.file.text) || r.file.text[start] != quote {
		return n
	}
	u := unquoter{src: r.file.text, pos: start + 1, quote: quote}
	u.run()
	n.text, n.span.end = string(u.out), u.pos
	n.raw = n.text
	return n
}

// cutIndentedComment drops a comment line that the parser takes for the last line
// of a plain text. Such a text can hold no # behind a blank.
func cutIndentedComment(text string) string {
	for i := 1; i < len(text); i++ {
		if text[i] == '#' && strings.IndexByte(" \n\t", text[i-1]) >= 0 {
			return strings.TrimRight(text[:i], " \n\t")
		}
	}
	return text
}

// find corrects the place of a quote where the parser's column is off.
func (r *reader) find(start int, quote byte) int {
	text := r.file.text
	if start < len(text) && text[start] == quote {
		return start
	}
	line := r.file.line(start)
	if i := bytes.IndexByte(text[start:r.file.lineEnd(line)], quote); i >= 0 {
		return start + i
	}
	if i := bytes.LastIndexByte(text[r.file.lines[line-1]:start], quote); i >= 0 {
		return r.file.lines[line-1] + i
	}
	return start
}

func (r *reader) block(n *ast.LiteralNode) *node {
	out := &node{kind: textNode, style: literal, file: r.file, size: 1}
	if strings.HasPrefix(n.Start.Value, ">") {
		out.style = folded
	}
	if n.Value != nil {
		out.text = n.Value.Value
	}
	out.raw = out.text
	out.span = r.token(n.Start)
	return out
}

func (r *reader) mapping(n *ast.MappingNode) *node {
	out := &node{kind: mapNode, flow: n.IsFlowStyle, file: r.file}
	if n.IsFlowStyle {
		out.span = r.brackets(n.Start, n.End)
	}
	return r.entries(out, n.Values)
}

// brackets spans what stands in {} or [], up to the end of its first line.
func (r *reader) brackets(start, end *token.Token) span {
	at := r.token(start)
	if end != nil {
		at.end = max(at.end, r.token(end).end)
	}
	at.end = min(at.end, max(at.start+1, r.file.lineEnd(r.file.line(at.start))))
	return at
}

func (r *reader) entries(out *node, values []*ast.MappingValueNode) *node {
	out.size = 1
	var merges []*node
	for _, v := range values {
		key := r.key(v.Key)
		if key == nil {
			continue
		}
		if !out.flow && out.span == (span{}) {
			out.span = key.span
		}
		value := r.convert(v.Value)
		if value.implicit {
			value.span = key.span
		}
		out.size += value.size
		if v.Key.IsMergeKey() {
			merges = append(merges, value)
			continue
		}
		if first := out.entry(key.text); first != nil {
			r.report(Diagnostic{
				Severity: Error, Code: CodeDuplicate, Pos: r.file.at(key.span.start), End: r.file.at(key.span.end),
				Msg: fmt.Sprintf("the key %q is written twice", key.text), Help: "remove one of the two",
				Notes: []Note{{r.file.at(first.name.span.start), "it is here for the first time"}},
			})
			continue
		}
		out.entries = append(out.entries, entry{key: key.text, name: key, value: value})
	}
	for _, m := range merges {
		r.merge(out, m)
	}
	return out
}

// merge takes over the keys of << that the map does not have itself.
func (r *reader) merge(out, from *node) {
	switch from.kind {
	case mapNode:
		for _, e := range from.entries {
			if out.entry(e.key) == nil {
				out.entries = append(out.entries, e)
			}
		}
	case listNode:
		for _, item := range from.items {
			if item.kind != listNode {
				r.merge(out, item)
			}
		}
	default:
		if !from.bad {
			r.fault(CodeAlias, from.span, "<< takes over the keys of a map, and this is "+from.words(), "write `<<: *name` of an anchored map")
		}
		out.bad = true
	}
}

// key reads a key of a map; nil where it is no scalar.
func (r *reader) key(k ast.MapKeyNode) *node {
	var inner ast.Node = k
	if mk, ok := k.(*ast.MappingKeyNode); ok {
		inner = mk.Value
	}
	switch inner := inner.(type) {
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode, *ast.MappingNode, *ast.SequenceNode, *ast.LiteralNode, *ast.MappingValueNode:
	case *ast.MergeKeyNode:
		return &node{kind: textNode, file: r.file, text: "<<", span: r.token(inner.Token)}
	case ast.ScalarNode:
		return r.scalar(inner.GetToken())
	}
	r.refuse(k, CodeDocument, "a key must be a plain or quoted text", "write `key: value`")
	return nil
}

func (r *reader) sequence(n *ast.SequenceNode) *node {
	out := &node{kind: listNode, flow: n.IsFlowStyle, file: r.file, size: 1}
	if n.IsFlowStyle {
		out.span = r.brackets(n.Start, n.End)
	} else {
		out.span = r.token(n.Start)
	}
	for i, v := range n.Values {
		item := r.convert(v)
		if item.implicit {
			item.span = out.span
			if i < len(n.Entries) && n.Entries[i] != nil && n.Entries[i].Start != nil {
				item.span = r.token(n.Entries[i].Start)
			}
		}
		out.size += item.size
		out.items = append(out.items, item)
	}
	return out
}

func (r *reader) anchor(n *ast.AnchorNode) *node {
	value := r.convert(n.Value)
	if n.Name != nil {
		r.anchors[n.Name.GetToken().Value] = value
	}
	return value
}

func (r *reader) alias(n *ast.AliasNode) *node {
	at := r.token(n.GetToken())
	name := ""
	if n.Value != nil {
		name = n.Value.GetToken().Value
		at.end = max(at.end, r.token(n.Value.GetToken()).end)
	}
	value, ok := r.anchors[name]
	if !ok {
		r.fault(CodeAlias, at, fmt.Sprintf("*%s is an alias of YAML, and no anchor &%s stands before it", name, name),
			fmt.Sprintf(`if it is meant as text, quote it: "*%s"`, name))
		return &node{file: r.file, span: at, bad: true, size: 1}
	}
	return value
}
