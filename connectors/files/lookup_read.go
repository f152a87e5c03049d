package files

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// tableReader makes a table of a file's lines.
type tableReader struct {
	config  *LookupConfig
	columns []string // of the key
	append  func(dst []byte, v connectors.Value) []byte
	table   *table
	arena   connectors.Arena
	key     []byte
	row     []byte
}

// lineError says which line is wrong. It holds nothing of the line.
func lineError(line int, err error) error { return fmt.Errorf("line %d: %w", line, err) }

// read reads all of in.
func (r *tableReader) read(in io.Reader) error {
	r.table = newTable()
	limited := &io.LimitedReader{R: in, N: int64(r.config.MaxSize) + 1}
	buffered := bufio.NewReaderSize(limited, bufferSize)
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
		_, _ = buffered.Discard(3)
	}
	var err error
	if r.config.Format == formatCSV {
		err = r.readCSV(buffered)
	} else {
		err = r.readJSON(buffered)
	}
	if limited.N <= 0 {
		return errTooLarge
	}
	return err
}

// put adds a row under the key that is in r.key.
func (r *tableReader) put(row []byte) error { return r.table.put(r.key, row, int64(r.config.MaxSize)) }

// readJSON reads one object a line.
func (r *tableReader) readJSON(in *bufio.Reader) error {
	var buf []byte
	seen, rows := make([]bool, len(r.columns)), 0
	for line := 1; ; line++ {
		text, err := readLine(in, &buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(text) == 0 {
			continue
		}
		rows++
		if err := r.object(text, seen); err != nil {
			return lineError(line, err)
		}
	}
	for i, ok := range seen {
		if !ok && rows > 0 {
			return fmt.Errorf("no line has the field %s that on names", r.columns[i])
		}
	}
	return nil
}

// readLine reads a line without the blanks around it.
func readLine(in *bufio.Reader, buf *[]byte) ([]byte, error) {
	*buf = (*buf)[:0]
	for {
		part, err := in.ReadSlice('\n')
		*buf = append(*buf, part...)
		if err == nil || errors.Is(err, io.EOF) && len(*buf) > 0 {
			return bytes.TrimSpace(*buf), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// object takes one line of JSON.
func (r *tableReader) object(text []byte, seen []bool) error {
	r.arena.Reset()
	v, err := format.ParseValue(text, &r.arena)
	if err != nil {
		return err
	}
	if v.Kind() != connectors.Map {
		return fmt.Errorf("an object is wanted, not %s", v.Kind())
	}
	r.key = r.key[:0]
	null := false
	for i, column := range r.columns {
		v, ok := format.Lookup(text, column, &r.arena)
		seen[i] = seen[i] || ok
		null = null || v.IsNull()
		r.key = r.append(r.key, v)
	}
	if null {
		return nil // it matches nothing
	}
	return r.put(text)
}

// csvColumn is one column of a CSV file.
type csvColumn struct {
	name string // as the row has it before its value: "name":
	typ  string
	key  []int // places in the key that it has
}

// readCSV reads lines of separated values.
func (r *tableReader) readCSV(in io.Reader) error {
	lines := csv.NewReader(in)
	lines.Comma, lines.ReuseRecord = r.config.comma(), true
	names := r.config.Columns
	if r.config.Header {
		header, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty, and its first line should be the header")
		}
		if err != nil {
			return csvError(err)
		}
		names = slices.Clone(header)
	}
	columns, err := r.columnsOf(names)
	if err != nil {
		return err
	}
	lines.FieldsPerRecord = len(columns)
	keys := make([]connectors.Value, len(r.columns))
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return csvError(err)
		}
		if err := r.fields(columns, fields, keys); err != nil {
			line, _ := lines.FieldPos(0)
			return lineError(line, err)
		}
	}
}

// csvError is an error of the reader without what the line holds.
func csvError(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return lineError(p.Line, p.Err)
	}
	return err
}

// columnsOf checks the names of the columns against what the configuration says of them.
func (r *tableReader) columnsOf(names []string) ([]csvColumn, error) {
	missing := func(what, name string) error {
		help := "it has " + strings.Join(names[:min(len(names), 12)], ", ")
		if near := connectors.Nearest(name, names); near != "" {
			help = "did you mean " + near + "?"
		} else if len(names) == 1 && strings.ContainsAny(names[0], ";\t|,") {
			help = "its header is one column: is the delimiter right?"
		}
		return fmt.Errorf("it has no column %s, which %s names: %s", name, what, help)
	}
	out := make([]csvColumn, len(names))
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("two columns are called %s", strconv.Quote(name))
		}
		out[i] = csvColumn{name: string(append(format.AppendString(nil, name), ':')), typ: r.config.Types[name]}
	}
	for place, column := range r.columns {
		at := slices.Index(names, column)
		if at < 0 {
			return nil, missing("on", column)
		}
		out[at].key = append(out[at].key, place)
	}
	for name := range r.config.Types {
		if !slices.Contains(names, name) {
			return nil, missing("types", name)
		}
	}
	return out, nil
}

// fields takes one line of CSV.
func (r *tableReader) fields(columns []csvColumn, fields []string, keys []connectors.Value) error {
	r.row = append(r.row[:0], '{')
	for i := range columns {
		c := &columns[i]
		v, err := csvValue(fields[i], c.typ)
		if err != nil {
			return fmt.Errorf("column %s %w", strings.TrimSuffix(c.name, ":"), err)
		}
		for _, place := range c.key {
			keys[place] = v
		}
		if i > 0 {
			r.row = append(r.row, ',')
		}
		if r.row, err = format.AppendValue(append(r.row, c.name...), v); err != nil {
			return err
		}
	}
	r.row = append(r.row, '}')
	r.key = r.key[:0]
	for _, v := range keys {
		if v.IsNull() {
			return nil // it matches nothing
		}
		r.key = r.append(r.key, v)
	}
	return r.put(r.row)
}

// The types of CSV columns.
const (
	typeString  = "string"
	typeInt     = "int"
	typeFloat   = "float"
	typeDecimal = "decimal"
	typeBool    = "bool"
)

var csvTypes = []string{typeString, typeInt, typeFloat, typeDecimal, typeBool}

// csvValue reads a field. An empty one is null, but in a column of strings.
func csvValue(text, typ string) (connectors.Value, error) {
	if typ == "" || typ == typeString {
		return connectors.StringValue(text), nil
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return connectors.NullValue(), nil
	}
	switch typ {
	case typeInt:
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return connectors.IntValue(i), nil
		}
	case typeFloat:
		if f, err := strconv.ParseFloat(text, 64); err == nil && f-f == 0 {
			return connectors.FloatValue(f), nil
		}
	case typeDecimal:
		if _, ok := format.Number(text); ok {
			return connectors.DecimalValue(text), nil
		}
	case typeBool:
		switch strings.ToLower(text) {
		case "true", "t", "1", "yes":
			return connectors.BoolValue(true), nil
		case "false", "f", "0", "no":
			return connectors.BoolValue(false), nil
		}
	}
	return connectors.Value{}, fmt.Errorf("holds no %s", typ)
}
