package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func strictFormat() connectors.FormatConfig {
	return connectors.FormatConfig{Name: "json", Options: map[string]any{"strict": true}}
}

// batchOf makes a batch of records with the given values.
func batchOf(stride int, values ...string) (*connectors.Batch, []uint16) {
	b := &connectors.Batch{}
	b.Size(len(values), stride)
	sel := make([]uint16, len(values))
	for i, v := range values {
		b.Records[i].Value, sel[i] = []byte(v), uint16(i)
	}
	return b, sel
}

// decodeOne decodes one record and renders what the fields, given as dotted
// paths, hold; "." is the whole value.
func decodeOne(t *testing.T, cfg connectors.FormatConfig, value string, paths ...string) (string, *SyntaxError) {
	t.Helper()
	fields := make([]Field, len(paths))
	for i, p := range paths {
		fields[i].Slot = i
		if p != "." {
			fields[i].Path = strings.Split(p, ".")
		}
	}
	d, err := NewDecoder(cfg, fields, true)
	if err != nil {
		t.Fatal(err)
	}
	b, sel := batchOf(len(paths), value)
	var fault *SyntaxError
	ok := d.Decode(b, sel, func(_ uint16, err *SyntaxError) { fault = err })
	if (len(ok) == 0) != (fault != nil) {
		t.Fatalf("ok %v with error %v", ok, fault)
	}
	if fault != nil {
		return "", fault
	}
	return render(b.Row(0)), nil
}

func render(row []connectors.Value) string {
	parts := make([]string, len(row))
	for i, v := range row {
		parts[i] = show(v)
	}
	return strings.Join(parts, " | ")
}

func show(v connectors.Value) string {
	switch v.Kind() {
	case connectors.Absent, connectors.Null:
		return v.Kind().String()
	case connectors.String:
		return fmt.Sprintf("string %q", v.Text())
	case connectors.Float:
		return fmt.Sprintf("float %v", v.Float())
	default:
		out, err := AppendValue(nil, v)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s %s", v.Kind(), out)
	}
}

// field is a field of an object, its value as written.
type field struct{ key, value string }

// orderedFields reads an object with encoding/json, keeping order and duplicates.
func orderedFields(b []byte) ([]field, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("no object")
	}
	var out []field
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		out = append(out, field{k.(string), string(v)})
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows")
	}
	return out, nil
}
