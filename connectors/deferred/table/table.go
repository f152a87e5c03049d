// Package table says which fields of rows go into which columns of a database's table,
// and whether a row is written or deleted. It is what sinks of databases have in common.
package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/format"
)

// The modes.
const (
	Insert    = "insert"    // each row is a new one
	Upsert    = "upsert"    // a row replaces the one of its key
	Changelog = "changelog" // the same, and a field says what is deleted
)

// Column is a column that is written.
type Column struct {
	connectors.Column
	// Default says that the table has a value for it where the row has none.
	Default bool
}

// Op is what a row does to the table.
type Op byte

// The operations.
const (
	Write  Op = 'w'
	Delete Op = 'd'
)

// Options say how rows become rows of a table.
type Options struct {
	Mode string
	Key  []string // columns that tell rows apart; not for Insert
	Op   string   // field with the operation, for Changelog
	// Values are the expressions of columns; none for fields by their names.
	Values connectors.Assignments
	// RefuseUnknown refuses rows with fields that have no column. It is not for Values.
	RefuseUnknown bool
}

// Mapper reads the columns of rows. It serves one subtask.
type Mapper struct {
	opts     Options
	cols     []Column
	slots    []int // of the expressions, by column; nil for fields
	defaults []int // columns that the table has a value for
	keys     []int
	reader   *columns.Reader
	opAt     int // of the field op, among what the reader reads; -1 where nobody asks
	keyed    *columns.Reader

	rows   *connectors.Rows
	bad    map[int]string // rows that are no JSON objects
	byName bool           // of the rows of this batch
	keyRow bool           // the key of the current row comes from its record's key
	plain  bool           // and is not JSON but text
	arena  connectors.Arena
}

// maxDefaults is how many columns a shape tells apart.
const maxDefaults = 64

// NewMapper makes a mapper to columns, whose names are those of Values where there are any.
func NewMapper(cols []Column, o Options) (*Mapper, error) {
	m := &Mapper{opts: o, cols: cols, opAt: -1, bad: map[int]string{}}
	fields := make([]connectors.Column, 0, len(cols)+1)
	for i, c := range cols {
		fields = append(fields, c.Column)
		if c.Default && o.Values == nil {
			m.defaults = append(m.defaults, i)
		}
		if o.Values != nil {
			at := slices.IndexFunc(o.Values, func(a connectors.Assignment) bool { return a.Name == c.Name })
			m.slots = append(m.slots, o.Values[at].Expr.Slot)
		}
	}
	if len(m.defaults) > maxDefaults {
		return nil, fmt.Errorf("the table has values of its own for %d columns, and rows can leave out %d at most: say with columns which are written", len(m.defaults), maxDefaults)
	}
	if o.Mode == Changelog {
		m.opAt = slices.IndexFunc(fields, func(c connectors.Column) bool { return c.Name == o.Op })
		if m.opAt < 0 {
			m.opAt = len(fields)
			fields = append(fields, connectors.Column{Name: o.Op})
		}
	}
	var keyFields []connectors.Column
	for _, k := range o.Key {
		at := slices.IndexFunc(cols, func(c Column) bool { return c.Name == k })
		if at < 0 {
			return nil, fmt.Errorf("the key column %s is not written", k)
		}
		m.keys, keyFields = append(m.keys, at), append(keyFields, cols[at].Column)
	}
	read := columns.NewReader
	if o.RefuseUnknown {
		read = columns.NewStrictReader
	}
	var err error
	if m.reader, err = read(fields); err != nil {
		return nil, err
	}
	if len(keyFields) > 0 {
		m.keyed, err = columns.NewReader(keyFields)
	}
	return m, err
}

// Begin reads the rows that are asked for next.
func (m *Mapper) Begin(rows *connectors.Rows) {
	m.rows, m.byName = rows, m.slots == nil || rows.DeadLetter != nil
	clear(m.bad)
	if m.byName || m.opAt >= 0 {
		m.reader.Read(rows.Values, func(i int, err *format.SyntaxError) { m.bad[i] = err.Error() })
	}
}

// Op is what row i does. A *deferred.Refused says that it can do nothing.
func (m *Mapper) Op(i int) (Op, error) {
	m.keyRow = false
	if len(m.bad) > 0 {
		if why, bad := m.bad[i]; bad {
			return 0, &deferred.Refused{Kind: "decode", Reason: "it cannot be read: " + why}
		}
	}
	value := m.rows.Values[i]
	if value != nil && m.byName {
		if err := m.object(i, value); err != nil {
			return 0, err
		}
	}
	if m.opts.Mode == Insert {
		if value == nil {
			return 0, &deferred.Refused{Kind: "tombstone", Reason: "a tombstone deletes a row, which mode: insert does not"}
		}
		return Write, nil
	}
	if value == nil {
		return Delete, m.readKey(i)
	}
	if m.rows.Record(i).Op.Retracts() {
		return Delete, nil
	}
	if m.opAt >= 0 {
		return m.opOf(i)
	}
	return Write, nil
}

// object refuses a row that is no object, or has fields that nothing takes.
func (m *Mapper) object(i int, value []byte) error {
	first := firstByte(value)
	if first != '{' {
		return &deferred.Refused{Kind: "decode", Reason: "the row is no JSON object"}
	}
	unknown, ok := m.reader.Unknown(i)
	if !ok {
		return nil
	}
	return &deferred.Refused{Kind: "unknown_field", Reason: fmt.Sprintf("the table has no column for the field %s: add it to the table, drop it from the rows, or set unknown_fields: ignore", unknown)}
}

func firstByte(b []byte) byte {
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// ops are the words for operations that changelogs are written with.
var ops = map[string]Op{
	"insert": Write, "update": Write, "update_after": Write, "upsert": Write, "create": Write, "read": Write,
	"c": Write, "r": Write, "u": Write, "i": Write,
	"delete": Delete, "update_before": Delete, "d": Delete,
}

func (m *Mapper) opOf(i int) (Op, error) {
	v := m.reader.Value(i, m.opAt)
	if v.IsNull() {
		return Write, nil
	}
	if v.Kind() == connectors.String {
		if op, ok := ops[strings.ToLower(v.Text())]; ok {
			return op, nil
		}
	}
	return 0, &deferred.Refused{Kind: "op", Reason: fmt.Sprintf("the field %s holds no operation: insert, update, update_before, update_after, upsert or delete, or c, r, u or d", m.opts.Op)}
}

// readKey reads the key of a tombstone from the key of its record: a JSON object with the
// key columns, or the value of the only one.
func (m *Mapper) readKey(i int) error {
	if !m.byName {
		return nil // the expressions say it
	}
	key := m.rows.Record(i).Key
	if key == nil {
		return &deferred.Refused{Kind: "key", Reason: "a tombstone without a key deletes nothing"}
	}
	m.keyRow, m.plain = true, firstByte(key) != '{'
	if m.plain {
		if len(m.keys) == 1 {
			return nil
		}
		return &deferred.Refused{Kind: "key", Reason: fmt.Sprintf("the key of the tombstone is no JSON object with %s", strings.Join(m.opts.Key, ", "))}
	}
	var fault error
	m.keyed.Read([][]byte{key}, func(_ int, err *format.SyntaxError) {
		fault = &deferred.Refused{Kind: "key", Reason: "the key of the tombstone cannot be read: " + err.Error()}
	})
	return fault
}

// Value is the value of a column of row i, whose Op was asked for last. Of a row to
// delete only the key columns have a meaning.
func (m *Mapper) Value(i, column int) connectors.Value {
	switch {
	case m.keyRow:
		at := slices.Index(m.keys, column)
		if at < 0 {
			return connectors.Value{}
		}
		if m.plain {
			return m.plainKey(m.rows.Record(i).Key, m.cols[column].Type.Base)
		}
		return m.keyed.Value(0, at)
	case m.byName:
		return m.reader.Value(i, column)
	}
	return m.rows.Slot(i, m.slots[column])
}

// plainKey is a key that is no object: JSON, or text as it is.
func (m *Mapper) plainKey(key []byte, base connectors.Base) connectors.Value {
	if base != connectors.Text || len(key) > 0 && key[0] == '"' {
		m.arena.Reset()
		if v, err := format.ParseValue(key, &m.arena); err == nil {
			return v
		}
	}
	return connectors.TextValue(connectors.String, key)
}

// Shape tells which of the columns with a value of the table's own row i leaves out.
func (m *Mapper) Shape(i int) (shape uint64) {
	for n, c := range m.defaults {
		if m.Value(i, c).Kind() == connectors.Absent {
			shape |= 1 << n
		}
	}
	return shape
}

// Has reports whether rows of a shape have a column.
func (m *Mapper) Has(shape uint64, column int) bool {
	at := slices.Index(m.defaults, column)
	return at < 0 || shape&(1<<at) == 0
}

// Keys are the indexes of the key columns.
func (m *Mapper) Keys() []int { return m.keys }

// Check validates what the configurations of such sinks have in common.
func Check(mode string, key []string, op string, values connectors.Assignments, unknown string) error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if mode == Insert && len(key) > 0 {
		fault("key", "mode: insert has no key", "remove it, or set mode: upsert")
	}
	for i, k := range key {
		if k == "" || slices.Contains(key[:i], k) {
			fault("key", "a name is empty or there twice", "")
		}
	}
	if mode == Changelog && op == "" {
		fault("op", "the field with the operation has no name", "op is the default")
	}
	if len(values) > 0 {
		if unknown != "" {
			fault("unknown_fields", "the columns are said by columns, so no field is unknown", "remove one of them")
		}
		for i, a := range values {
			if a.Name == "" || slices.ContainsFunc(values[:i], func(o connectors.Assignment) bool { return o.Name == a.Name }) {
				fault("columns", "a name is empty or there twice", "")
			}
		}
		for _, k := range key {
			if !slices.ContainsFunc(values, func(a connectors.Assignment) bool { return a.Name == k }) {
				fault("columns", fmt.Sprintf("the key column %s has no expression", k), "add it")
			}
		}
	}
	return errors.Join(faults...)
}

// IsUTF8 reports whether the text in a value is UTF-8. Where it is not, a database's column
// of JSON has no place for it, and JSON would have another character in its place.
func IsUTF8(v connectors.Value) bool {
	switch v.Kind() {
	case connectors.String, connectors.List, connectors.Map:
		return utf8.Valid(v.Raw())
	default:
		return true
	}
}
