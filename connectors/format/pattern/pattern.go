// Package pattern holds the formats regex and key_value, for lines of text such as logs.
package pattern

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

// regexConfig is the options of the format regex.
type regexConfig struct {
	Pattern string       `key:"pattern" required:"true" doc:"Regular expression of Go with named groups, (?P<name>…), which match the whole value; each group is a field, null where it did not take part."`
	Types   columns.List `key:"types" doc:"Types of groups that are no text, as in [{status: int}]."`

	re *regexp.Regexp
}

// Validate compiles the pattern.
func (c *regexConfig) Validate() (err error) {
	if c.re, err = regexp.Compile(`^(?:` + c.Pattern + `)$`); err != nil {
		return &connectors.FieldError{Key: "pattern", Msg: err.Error()}
	}
	names := map[string]bool{}
	for _, n := range c.re.SubexpNames() {
		if n != "" && names[n] {
			return &connectors.FieldError{Key: "pattern", Msg: "there are two groups " + n}
		}
		names[n] = true
	}
	if len(names) < 2 {
		return &connectors.FieldError{Key: "pattern", Msg: "it has no named group", Help: "write (?P<name>…)"}
	}
	for _, t := range c.Types {
		if !names[t.Name] {
			return &connectors.FieldError{Key: "types", Msg: "the pattern has no group " + t.Name}
		}
	}
	return nil
}

// columns are the groups in their order.
func (c *regexConfig) columns() (cols []connectors.Column) {
	for _, n := range c.re.SubexpNames() {
		if n == "" {
			continue
		}
		col := connectors.Column{Name: n, Type: connectors.Type{Base: connectors.Text}}
		for _, t := range c.Types {
			if t.Name == n {
				col.Type = t.Type
			}
		}
		col.Type.Nullable = true
		cols = append(cols, col)
	}
	return cols
}

// pairConfig is the options of the format key_value.
type pairConfig struct {
	Pairs     string `key:"pairs" doc:"Text between pairs."`
	Separator string `key:"separator" doc:"Text between a key and its value."`
}

// Validate reports texts that are missing or the same.
func (c *pairConfig) Validate() error {
	if c.Pairs == "" || c.Separator == "" || c.Pairs == c.Separator {
		return &connectors.FieldError{Key: "separator", Msg: "pairs and separator must be texts that differ"}
	}
	return nil
}

func init() {
	format.Register(format.Spec{
		Name: "regex", Doc: "Text that a regular expression takes apart; it can only be read.",
		NewConfig: func() any { return &regexConfig{} },
		Input: func(c any) (format.Input, error) {
			cfg := c.(*regexConfig)
			return &groups{cfg, cfg.columns()}, nil
		},
		Output:  func(any) (format.Output, error) { return nil, errors.New("the format regex can only be read") },
		Columns: func(c any) ([]connectors.Column, error) { return c.(*regexConfig).columns(), nil },
		Example: `{regex: {pattern: '(?P<host>\S+) (?P<status>\d+)', types: [{status: int}]}}`,
	})
	format.Register(format.Spec{
		Name: "key_value", Doc: "Pairs of keys and values, such as level=info msg=\"two words\"; all values are text.",
		NewConfig: func() any { return &pairConfig{Pairs: " ", Separator: "="} },
		Input:     func(c any) (format.Input, error) { return &pairs{pairConfig: c.(*pairConfig)}, nil },
		Output:    func(c any) (format.Output, error) { return &pairs{pairConfig: c.(*pairConfig)}, nil },
		Example:   `{key_value: {pairs: ";", separator: ":"}}`,
	})
}

var errNoText = errors.New("the value is no text in UTF-8")

// groups reads what a pattern matches.
type groups struct {
	*regexConfig
	cols []connectors.Column
}

// Start implements format.Input.
func (g *groups) Start(context.Context, format.Env) error { return nil }

// JSON implements format.Input.
func (g *groups) JSON(_ context.Context, dst []byte, r *connectors.Record) ([]byte, error) {
	if !utf8.Valid(r.Value) {
		return nil, format.Refuse(errNoText)
	}
	found := g.re.FindSubmatchIndex(r.Value)
	if found == nil {
		return nil, format.Refuse(errors.New("the value does not match the pattern"))
	}
	dst = append(dst, '{')
	open := len(dst)
	n := 0
	for i, name := range g.re.SubexpNames() {
		if name == "" {
			continue
		}
		typ := g.cols[n].Type
		n++
		if len(dst) > open {
			dst = append(dst, ',')
		}
		dst = append(format.AppendString(dst, name), ':')
		from, to := found[2*i], found[2*i+1]
		if from < 0 || from == to && typ.Base != connectors.Text {
			dst = append(dst, "null"...)
			continue
		}
		var err error
		if dst, err = columns.AppendText(dst, typ, r.Value[from:to]); err != nil {
			return nil, format.Refuse(fmt.Errorf("group %s: %w", name, err))
		}
	}
	return append(dst, '}'), nil
}

// pairs reads and writes keys and values.
type pairs struct {
	*pairConfig
	arena connectors.Arena
}

// Start implements format.Input and format.Output.
func (p *pairs) Start(context.Context, format.Env) error { return nil }

// JSON implements format.Input.
func (p *pairs) JSON(_ context.Context, dst []byte, r *connectors.Record) ([]byte, error) {
	if !utf8.Valid(r.Value) {
		return nil, format.Refuse(errNoText)
	}
	dst = append(dst, '{')
	open := len(dst)
	for rest := string(r.Value); ; {
		for strings.HasPrefix(rest, p.Pairs) {
			rest = rest[len(p.Pairs):]
		}
		if rest == "" {
			return append(dst, '}'), nil
		}
		key, after, ok := strings.Cut(rest, p.Separator)
		if !ok || strings.Contains(key, p.Pairs) {
			return nil, format.Refuse(fmt.Errorf("there is a word without %q behind it", p.Separator))
		}
		value, tail, err := p.value(after)
		if err != nil {
			return nil, err
		}
		if len(dst) > open {
			dst = append(dst, ',')
		}
		dst = append(format.AppendString(dst, key), ':')
		dst = format.AppendString(dst, value)
		rest = tail
	}
}

// value reads a value, in quotes or up to the next pair.
func (p *pairs) value(text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		value, rest, _ = strings.Cut(text, p.Pairs)
		return value, rest, nil
	}
	var out strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			out.WriteByte(text[i])
		case c == '"':
			rest = text[i+1:]
			if rest != "" && !strings.HasPrefix(rest, p.Pairs) {
				return "", "", format.Refuse(errors.New("there is text right behind a quote"))
			}
			return out.String(), rest, nil
		default:
			out.WriteByte(c)
		}
	}
	return "", "", format.Refuse(errors.New("a quote has no end"))
}

// Encode implements format.Output.
func (p *pairs) Encode(_ context.Context, rows *connectors.Rows, fail func(i int, err error)) error {
	for i, value := range rows.Values {
		if value == nil {
			continue
		}
		out, err := p.row(rows.Batch.Arena.Grow(len(value)), value)
		if err != nil {
			rows.Values[i] = nil
			fail(i, err)
			continue
		}
		rows.Values[i] = rows.Batch.Arena.Keep(out)
	}
	return nil
}

func (p *pairs) row(dst, value []byte) ([]byte, error) {
	p.arena.Reset()
	v, err := format.ParseValue(value, &p.arena)
	if err == nil && v.Kind() != connectors.Map {
		err = fmt.Errorf("an object is wanted, not %s", v.Kind())
	}
	if err != nil {
		return dst, err
	}
	open := len(dst)
	format.Entries(v.Raw(), &p.arena, func(key string, v connectors.Value) bool {
		if v.IsNull() {
			return true
		}
		if key == "" || strings.Contains(key, p.Pairs) || strings.Index(key+p.Separator, p.Separator) < len(key) || strings.HasPrefix(key+p.Separator, p.Pairs) || key[0] == '"' {
			err = fmt.Errorf("the name of field %q has no form here: rename it", key)
			return false
		}
		var text []byte
		if text, err = columns.TextOf(nil, connectors.Type{}, v); err != nil {
			err = fmt.Errorf("field %s: %w", key, err)
			return false
		}
		if len(dst) > open {
			dst = append(dst, p.Pairs...)
		}
		dst = append(append(dst, key...), p.Separator...)
		dst = p.quoted(dst, string(text))
		return true
	})
	return dst, err
}

func (p *pairs) quoted(dst []byte, text string) []byte {
	if text != "" && !strings.ContainsAny(text, "\"\\") && strings.Index(text+p.Pairs, p.Pairs) == len(text) {
		return append(dst, text...)
	}
	dst = append(dst, '"')
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, text[i])
	}
	return append(dst, '"')
}
