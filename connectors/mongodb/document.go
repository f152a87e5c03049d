package mongodb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
)

// Bounds of documents, those of the server.
const (
	mostDepth  = 100
	mostDigits = 34
	mostBytes  = 16 << 20
)

// documents makes documents of records.
type documents struct {
	types     map[string]connectors.Type
	objectIDs []string
}

func newDocuments(cols []connectors.Column, objectIDs []string) *documents {
	d := &documents{types: map[string]connectors.Type{}, objectIDs: objectIDs}
	for _, c := range cols {
		d.types[c.Name] = c.Type
	}
	return d
}

// document reads a record.
func (d *documents) document(value []byte) (bson.D, error) {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	first, err := dec.Token()
	if err != nil || first != json.Delim('{') {
		return nil, errors.New("a document is an object of JSON")
	}
	doc, err := d.object(dec, func(name string) connectors.Type { return d.types[name] }, 1)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the object")
	}
	for i := range doc {
		if text, ok := doc[i].Value.(string); ok && slices.Contains(d.objectIDs, doc[i].Key) {
			if doc[i].Value, err = bson.ObjectIDFromHex(text); err != nil {
				return nil, fmt.Errorf("field %s: an ObjectId of 24 hexadecimal digits is wanted", doc[i].Key)
			}
		}
	}
	return doc, nil
}

// object reads the fields of an object that has begun. Of two of one name the last one wins.
func (d *documents) object(dec *json.Decoder, typeOf func(name string) connectors.Type, depth int) (bson.D, error) {
	out := bson.D{}
	at := map[string]int{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, syntax(err)
		}
		name, _ := key.(string)
		if strings.Contains(name, "\x00") {
			return nil, errors.New("a name of a field has a zero byte")
		}
		v, err := d.value(dec, typeOf(name), depth)
		if err != nil {
			return nil, inField(name, err)
		}
		if i, twice := at[name]; twice {
			out[i].Value = v
			continue
		}
		at[name] = len(out)
		out = append(out, bson.E{Key: name, Value: v})
	}
	_, err := dec.Token()
	return out, syntax(err)
}

func syntax(err error) error {
	if err == nil {
		return nil
	}
	return errors.New("the value is no JSON")
}

func inField(name string, err error) error { return fmt.Errorf("field %s: %w", name, err) }

// value reads the next value as one of a type.
func (d *documents) value(dec *json.Decoder, t connectors.Type, depth int) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, syntax(err)
	}
	switch token := token.(type) {
	case nil:
		return nil, nil
	case json.Delim:
		if depth++; depth > mostDepth {
			return nil, fmt.Errorf("more than %d levels of objects and lists", mostDepth)
		}
		return d.container(dec, token, t, depth)
	case bool:
		return scalar(connectors.BoolValue(token), t)
	case string:
		return scalar(connectors.StringValue(token), t)
	case json.Number:
		return number(token.String(), t)
	}
	return nil, errors.New("the value is no JSON")
}

func (d *documents) container(dec *json.Decoder, open json.Delim, t connectors.Type, depth int) (any, error) {
	if open == '{' {
		typeOf := func(string) connectors.Type { return connectors.Type{} }
		switch t.Base {
		case connectors.Struct:
			typeOf = func(name string) connectors.Type {
				for _, f := range t.Fields {
					if f.Name == name {
						return f.Type
					}
				}
				return connectors.Type{}
			}
		case connectors.Dictionary:
			typeOf = func(string) connectors.Type { return *t.Elem }
		case connectors.Dynamic, connectors.Document:
		default:
			return nil, fmt.Errorf("%s is wanted, not a map", t.Base)
		}
		return d.object(dec, typeOf, depth)
	}
	var elem connectors.Type
	switch t.Base {
	case connectors.Sequence:
		elem = *t.Elem
	case connectors.Dynamic, connectors.Document:
	default:
		return nil, fmt.Errorf("%s is wanted, not a list", t.Base)
	}
	list := bson.A{}
	for dec.More() {
		v, err := d.value(dec, elem, depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.Token()
	return list, syntax(err)
}

// number makes a number of its text: without a type, an integer of 64 bits where it is one,
// a larger integer as a decimal, and any other as a double.
func number(text string, t connectors.Type) (any, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if t.Base == connectors.Dynamic || t.Base == connectors.Document {
		switch {
		case err == nil:
			return n, nil
		case strings.ContainsAny(text, ".eE"):
			f, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, errors.New("the number is beyond the range of a double: give the field a type decimal")
			}
			return f, nil
		}
		return decimal(connectors.DecimalValue(text), connectors.Type{})
	}
	v := connectors.IntValue(n)
	if err != nil {
		v = connectors.DecimalValue(text)
	}
	return scalar(v, t)
}

func decimal(v connectors.Value, t connectors.Type) (any, error) {
	x, err := columns.Decimal(v, t.Precision, t.Scale)
	if err != nil {
		return nil, err
	}
	if x.NumDigits() > mostDigits {
		return nil, fmt.Errorf("the number has more than the %d digits that a decimal of MongoDB has", mostDigits)
	}
	return toDecimal128(x)
}

func toDecimal128(x *apd.Decimal) (bson.Decimal128, error) {
	out, err := bson.ParseDecimal128(x.Text('E'))
	if err != nil {
		return out, errors.New("the number is beyond the range of a decimal of MongoDB")
	}
	return out, nil
}

// scalar makes a value of a type.
func scalar(v connectors.Value, t connectors.Type) (any, error) {
	switch t.Base {
	case connectors.Dynamic, connectors.Document:
		if v.Kind() == connectors.Bool {
			return v.Bool(), nil
		}
		return strings.Clone(v.Text()), nil
	case connectors.Boolean:
		return columns.Bool(v)
	case connectors.Integer:
		if !t.Unsigned {
			return columns.Int(v, t.Bits)
		}
		u, err := columns.Uint(v, t.Bits)
		if err == nil && u > math.MaxInt64 {
			err = errors.New("the integer does not fit 63 bits: give the field a type decimal(20, 0)")
		}
		return int64(u), err
	case connectors.Real:
		return columns.Float(v, t.Bits)
	case connectors.Exact:
		return decimal(v, t)
	case connectors.Binary:
		b, err := columns.Bytes(v)
		return bson.Binary{Data: b}, err
	case connectors.UUID:
		u, err := columns.UUID(v)
		return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: u[:]}, err
	case connectors.Instant:
		return moment(columns.Time(v))
	case connectors.Local:
		return moment(columns.LocalTime(v))
	case connectors.Date:
		return moment(columns.Day(v))
	case connectors.Text, connectors.TimeOfDay, connectors.Span:
		text, err := columns.Text(v)
		return strings.Clone(text), err
	}
	return nil, fmt.Errorf("%s is wanted, not %s", t.Base, v.Kind())
}

// moment is a date of MongoDB, which has milliseconds: what is finer is cut off.
func moment(t time.Time, err error) (any, error) {
	return bson.NewDateTimeFromTime(t), err
}

// idOf is the value of an expression as an id.
func idOf(v connectors.Value) (any, error) {
	switch v.Kind() {
	case connectors.Absent, connectors.Null:
		return nil, errors.New("it is null")
	case connectors.Bool:
		return v.Bool(), nil
	case connectors.Int:
		return v.Int(), nil
	case connectors.Float:
		return v.Float(), nil
	case connectors.Decimal:
		return decimal(v, connectors.Type{})
	case connectors.String:
		return strings.Clone(v.Text()), nil
	case connectors.Bytes:
		return bson.Binary{Data: bytes.Clone(v.Raw())}, nil
	case connectors.Timestamp:
		return bson.NewDateTimeFromTime(v.Time()), nil
	}
	return nil, fmt.Errorf("%s cannot be an id", v.Kind())
}
