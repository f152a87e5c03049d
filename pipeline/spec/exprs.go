package spec

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// Expression is one expression of a configuration.
type Expression struct {
	Path []string         // keys below the configuration's block
	Expr *connectors.Expr // in the configuration itself, so that the engine can set its slot
}

// Keys lists the keys that a connector's or step's configuration has.
func Keys(config any) []string {
	return keysOf(fieldsOf(reflect.TypeOf(config).Elem()), func(f connectors.Field) string { return f.Key })
}

// Expressions finds the expressions that are written in a connector's
// configuration, in the order of its fields.
func Expressions(config any) []Expression {
	var out []Expression
	collect(reflect.ValueOf(config), nil, &out)
	return out
}

func collect(v reflect.Value, path []string, out *[]Expression) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			collect(v.Elem(), path, out)
		}
		return
	case reflect.Slice:
		for i := range v.Len() {
			item := v.Index(i)
			if a, ok := item.Interface().(connectors.Assignment); ok {
				*out = append(*out, Expression{below(path, a.Name), &item.Addr().Interface().(*connectors.Assignment).Expr})
				continue
			}
			if k := item.Kind(); k != reflect.Struct && k != reflect.Pointer {
				return
			}
			collect(item, below(path, strconv.Itoa(i)), out)
		}
		return
	case reflect.Struct:
	default:
		return
	}
	if v.Type() == exprType {
		if e := v.Addr().Interface().(*connectors.Expr); e.Set() {
			*out = append(*out, Expression{path, e})
		}
		return
	}
	if v.Type() == templateType {
		t := v.Addr().Interface().(*connectors.Template)
		for i := range t.Parts {
			if e := &t.Parts[i].Expr; e.Set() {
				*out = append(*out, Expression{path, e})
			}
		}
		return
	}
	for _, f := range fieldsOf(v.Type()) {
		at := path
		if f.Key != "." {
			at = below(path, f.Key)
		}
		collect(v.Field(f.Index), at, out)
	}
}

// expression takes a scalar's text as it is, also where YAML would call it a
// number or a truth value.
func (l *loader) expression(n *node, e *connectors.Expr, what string) bool {
	switch {
	case n.implicit || n.scalar() && strings.TrimSpace(n.text) == "":
		l.fault(n, CodeType, what+" has no expression", "write one after the colon, or remove the key")
		return false
	case !n.scalar():
		kind := map[kind]string{mapNode: "map", listNode: "list"}[n.kind]
		help := "write the expression as one text"
		if src := string(n.file.text[n.span.start:n.span.end]); n.flow && closed(src) {
			help = "if it is meant as an expression, quote it: " + quoteYAML(src)
		}
		l.fault(n, CodeType, fmt.Sprintf("%s must be an expression, and YAML reads this as a %s", what, kind), help)
		return false
	}
	e.Text = n.text
	return true
}

// assignments reads named expressions in the order of the file.
func (l *loader) assignments(n *node, out *connectors.Assignments, what string) bool {
	if n.kind != mapNode {
		l.fault(n, CodeType, fmt.Sprintf("%s must be a map of names and expressions, not %s", what, n.words()), "write {name: expression}")
		return false
	}
	if !l.checkFlow(n) {
		return false
	}
	ok := true
	list := make(connectors.Assignments, 0, len(n.entries))
	for _, e := range n.entries {
		a := connectors.Assignment{Name: e.key}
		ok = !e.value.bad && l.expression(e.value, &a.Expr, e.key) && ok
		list = append(list, a)
	}
	*out = list
	return ok
}

// checkFlow finds expressions that a comma inside {…} or […] has cut:
// {p: quantile(ms, 0.99)} is two keys.
func (l *loader) checkFlow(n *node) bool {
	if !n.flow {
		return true
	}
	ok, upTo := true, 0
	look := func(name, value *node) {
		if value.style != plain || !value.scalar() || value.bad || value.span.start < upTo || !unclosed(value.raw) {
			return
		}
		whole := flowText(value.file.text, value.span.start)
		if len(whole) <= len(value.raw) {
			return
		}
		upTo = value.span.start + len(whole)
		key := ""
		if name != nil {
			key = name.text + ": "
		}
		l.report(Diagnostic{
			Severity: Error, Code: CodePitfall, Pos: n.file.at(value.span.start), End: n.file.at(upTo),
			Msg:   fmt.Sprintf("inside brackets YAML ends a text at a comma, so this is read as `%s` and more", value.raw),
			Label: "one text is meant", Help: "quote the whole text: " + key + quoteYAML(whole),
		})
		ok = false
	}
	for _, item := range n.items {
		look(nil, item)
	}
	for _, e := range n.entries {
		look(e.name, e.value)
	}
	return ok
}

// unclosed reports whether more brackets open than close in a text.
func unclosed(s string) bool {
	depth := 0
	var quote rune
	for _, c := range s {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case strings.ContainsRune("([{", c):
			depth++
		case strings.ContainsRune(")]}", c):
			depth--
		}
	}
	return depth > 0 || quote != 0
}

// flowText is the text from start to the comma or bracket that would end it if
// brackets within it counted.
func flowText(text []byte, start int) string {
	depth := 0
	var quote byte
	for i := start; i < len(text) && text[i] != '\n'; i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '(' || c == '[' || c == '{':
			depth++
		case depth > 0 && (c == ')' || c == ']' || c == '}'):
			depth--
		case depth == 0 && (c == ',' || c == ']' || c == '}'):
			return strings.TrimRight(string(text[start:i]), " ")
		}
	}
	return ""
}
