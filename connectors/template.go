package connectors

import (
	"errors"
	"fmt"
	"strings"
)

// Template is a text with expressions in braces, such as
// dt={date(ts)}/region={region}. {{ and }} stand for braces of the text itself.
type Template struct {
	Text  string
	Parts []TemplatePart
}

// TemplatePart is a literal text or, where that is empty, an expression.
type TemplatePart struct {
	Literal string
	Expr    Expr
}

// UnmarshalConfig takes the text apart.
func (t *Template) UnmarshalConfig(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("a text such as dt={date(ts)} is wanted, not %v", v)
	}
	parts, err := templateParts(text)
	t.Text, t.Parts = text, parts
	return err
}

func templateParts(text string) ([]TemplatePart, error) {
	var (
		parts   []TemplatePart
		literal strings.Builder
	)
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, TemplatePart{Literal: literal.String()})
			literal.Reset()
		}
	}
	for rest := text; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			literal.WriteString(rest)
			break
		}
		literal.WriteString(rest[:i])
		c := rest[i]
		if len(rest) > i+1 && rest[i+1] == c {
			literal.WriteByte(c)
			rest = rest[i+2:]
			continue
		}
		if c == '}' {
			return nil, errors.New("there is a } without a {: write }} for a brace of the text itself")
		}
		end := closing(rest[i+1:])
		if end < 0 {
			return nil, errors.New("an expression is not closed: write {expression}, or {{ for a brace of the text itself")
		}
		expr := strings.TrimSpace(rest[i+1 : i+1+end])
		if expr == "" {
			return nil, errors.New("there is no expression in {}")
		}
		flush()
		parts = append(parts, TemplatePart{Expr: Expr{Text: expr}})
		rest = rest[i+2+end:]
	}
	flush()
	return parts, nil
}

// closing is where the expression that s begins with ends: at the brace that
// nothing in it, no text and no map, has opened.
func closing(s string) int {
	depth := 0
	var quote byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// String is the text as the user wrote it.
func (t Template) String() string { return t.Text }

// Set reports whether the user wrote one.
func (t *Template) Set() bool { return t.Text != "" }

// Fixed is the text where there is no expression in it.
func (t *Template) Fixed() (string, bool) {
	switch {
	case len(t.Parts) == 0:
		return "", true
	case len(t.Parts) == 1 && t.Parts[0].Literal != "":
		return t.Parts[0].Literal, true
	}
	return "", false
}

// Prefix is the text before the first expression.
func (t *Template) Prefix() string {
	if len(t.Parts) == 0 {
		return ""
	}
	return t.Parts[0].Literal
}

// Append writes the text for row i. value writes the value of an expression, and
// refuses what has no place in such a text.
func (t *Template) Append(dst []byte, rows *Rows, i int, value func(dst []byte, v Value) ([]byte, error)) ([]byte, error) {
	for p := range t.Parts {
		part := &t.Parts[p]
		if part.Literal != "" {
			dst = append(dst, part.Literal...)
			continue
		}
		var err error
		if dst, err = value(dst, rows.Slot(i, part.Expr.Slot)); err != nil {
			return dst, fmt.Errorf("`%s` in %s: %w", part.Expr.Text, t.Text, err)
		}
	}
	return dst, nil
}
