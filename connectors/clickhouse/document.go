package clickhouse

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
	"github.com/sluice-etl/sluice/connectors/format"
)

// newDocument makes the codec of the type JSON; nil where paths in it have types of their
// own, by which the server would refuse a block for one of its rows.
func newDocument(args []string) *codec {
	for _, arg := range args {
		if !strings.HasPrefix(arg, "max_dynamic_paths=") && !strings.HasPrefix(arg, "max_dynamic_types=") && !strings.HasPrefix(arg, "SKIP ") {
			return nil
		}
	}
	return &codec{write: appendDocument, reads: connectors.Exact, document: true}
}

// appendDocument writes for the type JSON, whose values are objects.
func appendDocument(dst []byte, v connectors.Value) ([]byte, error) {
	switch {
	case v.Kind() != connectors.Map:
		return dst, fmt.Errorf("an object is wanted, not %s", v.Kind())
	case !table.IsUTF8(v):
		return dst, errors.New("its text is not UTF-8")
	}
	d := document{paths: map[string]bool{}}
	text, err := d.object(nil, "", v.Raw())
	if err != nil {
		return dst, err
	}
	return appendText(dst, text), nil
}

// document writes an object as the server takes it: what it does not take, it tells of a
// block as a whole. Of fields with one name the last one counts, and half a surrogate is
// U+FFFD, as everywhere.
type document struct {
	paths map[string]bool // of its values, as the server has them: a.b
	arena connectors.Arena
}

func (d *document) object(dst []byte, path string, raw []byte) ([]byte, error) {
	var err error
	open := len(dst) + 1
	dst = append(dst, '{')
	format.Entries(raw, &d.arena, func(name string, v connectors.Value) bool {
		if len(dst) > open {
			dst = append(dst, ',')
		}
		dst = append(format.AppendString(dst, name), ':')
		dst, err = d.field(dst, path+name, v)
		return err == nil
	})
	return append(dst, '}'), err
}

func (d *document) field(dst []byte, path string, v connectors.Value) ([]byte, error) {
	if v.Kind() == connectors.Map {
		return d.object(dst, path+".", v.Raw())
	}
	if d.paths[path] {
		return dst, errors.New("two of its values have one path, as a dot in a name is one between names")
	}
	d.paths[path] = true
	return d.value(dst, v)
}

// value writes a value; an object in a list has paths of its own.
func (d *document) value(dst []byte, v connectors.Value) ([]byte, error) {
	switch v.Kind() {
	case connectors.Map:
		own := document{paths: map[string]bool{}}
		return own.object(dst, "", v.Raw())
	case connectors.List:
		dst, err := appendElements(append(dst, '['), v.Raw(), func(dst []byte, i int, e connectors.Value) ([]byte, error) {
			if i > 0 {
				dst = append(dst, ',')
			}
			return d.value(dst, e)
		})
		return append(dst, ']'), err
	case connectors.Decimal:
		if _, err := columns.Float(v, 64); err != nil {
			return dst, err
		}
	}
	at := len(dst)
	dst, err := format.AppendValue(dst, v)
	if v.Kind() == connectors.Float && !bytes.ContainsAny(dst[at:], ".e") {
		dst = append(dst, ".0"...) // without it the server has an integer
	}
	return dst, err
}
