// Package placeholder puts the values of a lookup's key into texts such as
// https://host/users/{code}.
package placeholder

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Text is a text with places for the columns of a key. Braces around anything that
// is no name stand for themselves, as do those around a place: of 5, {{id}} is {5}.
type Text struct{ parts []Part }

// Part is a piece of text, or the place of a column.
type Part struct {
	Literal string
	Column  int // -1 for a piece of text
}

var place = regexp.MustCompile(`\{([^{}"'\s:,;]+)\}`)

// Parse finds the places in a text. Each must be that of a column.
func Parse(text string, columns []string) (Text, error) {
	var t Text
	rest := text
	for {
		at := place.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		name := rest[at[2]:at[3]]
		column := slices.Index(columns, name)
		if column < 0 {
			help := "on has " + strings.Join(columns, ", ")
			if near := connectors.Nearest(name, columns); near != "" {
				help = "did you mean {" + near + "}?"
			}
			return t, fmt.Errorf("{%s} is no column of on: %s", name, help)
		}
		if at[0] > 0 {
			t.parts = append(t.parts, Part{Literal: rest[:at[0]], Column: -1})
		}
		t.parts = append(t.parts, Part{Column: column})
		rest = rest[at[1]:]
	}
	if rest != "" {
		t.parts = append(t.parts, Part{Literal: rest, Column: -1})
	}
	return t, nil
}

// Parts are the pieces in their order.
func (t Text) Parts() []Part { return t.parts }

// Uses reports whether the text has a place for a column.
func (t Text) Uses(column int) bool {
	return slices.ContainsFunc(t.parts, func(p Part) bool { return p.Column == column })
}

// Fill makes the text of a key; write says how a value is written.
func (t Text) Fill(values []connectors.Value, write func(v connectors.Value) (string, error)) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.Column < 0 {
			b.WriteString(p.Literal)
			continue
		}
		s, err := write(values[p.Column])
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// Plain is the text of a value: of a string its own, of anything else that in JSON,
// without quotes.
func Plain(v connectors.Value) (string, error) {
	if k := v.Kind(); k == connectors.String {
		return strings.Clone(v.Text()), nil
	}
	text, err := format.AppendValue(nil, v)
	if err != nil {
		return "", err
	}
	if len(text) > 1 && text[0] == '"' {
		text = text[1 : len(text)-1] // timestamps, durations and bytes hold nothing that is escaped
	}
	return string(text), nil
}

// JSON is a value in JSON.
func JSON(v connectors.Value) (string, error) {
	text, err := format.AppendValue(nil, v)
	return string(text), err
}
