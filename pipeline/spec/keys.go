package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// fieldName is a field that an expression can name as it is.
var fieldName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

// reserved are the words that mean something else than a field in an expression.
var reserved = []string{"this", "meta", "true", "false", "nil", "null", "in", "not", "and", "or", "matches", "contains", "startsWith", "endsWith", "let", "if", "else"}

// groupKeys reads by what records are grouped: fields, in a list or one alone, or
// named expressions.
func (l *loader) groupKeys(n *node, out *connectors.Keys, what string) bool {
	if n.kind == mapNode {
		var named connectors.Assignments
		ok := l.assignments(n, &named, what)
		*out = connectors.Keys(named)
		return ok
	}
	items := n.items
	if n.scalar() {
		items = []*node{n}
	}
	if !l.checkFlow(n) {
		return false
	}
	ok := true
	keys := make(connectors.Keys, 0, len(items))
	for _, item := range items {
		if item.bad {
			ok = false
			continue
		}
		var key connectors.Assignment
		if !l.groupField(item, &key, what) {
			ok = false
			continue
		}
		if slices.ContainsFunc(keys, func(k connectors.Assignment) bool { return k.Name == key.Name }) {
			l.fault(item, CodeValue, fmt.Sprintf("%s has the field %s twice", what, key.Name), "remove one of the two")
			ok = false
			continue
		}
		keys = append(keys, key)
	}
	*out = keys
	return ok
}

// groupField reads one key that is a field and so needs no name of its own.
func (l *loader) groupField(n *node, key *connectors.Assignment, what string) bool {
	switch {
	case n.kind == nullNode && n.text == "":
		l.fault(n, CodeType, what+" has no value", "write a field, a list of fields, or {name: expression}")
		return false
	case !n.scalar():
		l.fault(n, CodeType, fmt.Sprintf("%s must name fields, and an item of it is %s", what, n.words()),
			fmt.Sprintf("write %s: [a, b] for fields, or %s: {name: expression}", what, what))
		return false
	case !fieldName.MatchString(n.text) || slices.Contains(reserved, n.text):
		msg, text := "%s must name fields, and %s is an expression", n.text
		if severalWords.MatchString(text) && !wordOperator.MatchString(text) {
			msg, text = "%s must name fields, and %s is no name that can stand alone", fmt.Sprintf("this[%q]", text)
		}
		l.fault(n, CodeValue, fmt.Sprintf(msg, what, n.quote()),
			fmt.Sprintf("give its value a name: %s: {%s: %s}", what, aliasFor(n.text), quoteFlow(text)))
		return false
	}
	key.Name, key.Expr.Text = n.text, n.text
	return true
}

// What is a field's name rather than an expression: words with nothing but blanks
// between them, of which none is an operator.
var (
	severalWords = regexp.MustCompile(`^\w+( \w+)+$`)
	wordOperator = regexp.MustCompile(`\b(and|or|not|in|matches|contains|startsWith|endsWith)\b`)
)

// aliasFor is a name for the value of an expression: the last field in it.
func aliasFor(text string) string {
	words := regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`).FindAllString(text, -1)
	for _, w := range slices.Backward(words) {
		if !slices.Contains(reserved, w) {
			return w
		}
	}
	return "name"
}

// quoteFlow is an expression as it can stand in braces.
func quoteFlow(text string) string {
	if strings.ContainsAny(text, `,[]{}"'#:`) || !plainSafe(text) {
		return quoteYAML(text)
	}
	return text
}

// keyList writes keys as they are read: a list where each is a field.
func (d *dumper) keyList(keys connectors.Keys, n *node) any {
	fields := []any{}
	var named ordered
	for i := range keys {
		if keys[i].Name == keys[i].Expr.Text {
			fields = append(fields, keys[i].Name)
		}
		text := any(keys[i].Expr.Text)
		if v := n.get(keys[i].Name); v != nil && v.secret {
			text = d.redacted()
		}
		named = append(named, member{keys[i].Name, text})
	}
	if len(fields) == len(keys) && plainFields(keys) {
		return fields
	}
	return named
}

// plainFields reports whether each key could stand in a list of fields.
func plainFields(keys connectors.Keys) bool {
	return !slices.ContainsFunc(keys, func(k connectors.Assignment) bool {
		return !fieldName.MatchString(k.Name) || slices.Contains(reserved, k.Name)
	})
}
