package iceberg

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	ice "github.com/apache/iceberg-go"

	"github.com/sluice-etl/sluice/connectors"
)

// tableType is the type of a column in tables that are created.
func tableType(t connectors.Type, id func() int) (ice.Type, error) {
	switch t.Base {
	case connectors.Boolean:
		return ice.PrimitiveTypes.Bool, nil
	case connectors.Integer:
		return integerType(t), nil
	case connectors.Real:
		if t.Bits == 32 {
			return ice.PrimitiveTypes.Float32, nil
		}
		return ice.PrimitiveTypes.Float64, nil
	case connectors.Exact:
		return ice.DecimalTypeOf(t.Precision, t.Scale), nil
	case connectors.Text, connectors.Document:
		return ice.PrimitiveTypes.String, nil
	case connectors.Binary:
		return ice.PrimitiveTypes.Binary, nil
	case connectors.Instant:
		return ice.PrimitiveTypes.TimestampTz, nil
	case connectors.Local:
		return ice.PrimitiveTypes.Timestamp, nil
	case connectors.Date:
		return ice.PrimitiveTypes.Date, nil
	case connectors.TimeOfDay:
		return ice.PrimitiveTypes.Time, nil
	case connectors.UUID:
		return ice.PrimitiveTypes.UUID, nil
	case connectors.Sequence:
		of := id()
		elem, err := tableType(*t.Elem, id)
		return &ice.ListType{ElementID: of, Element: elem, ElementRequired: !t.Elem.Nullable}, err
	case connectors.Struct:
		fields, err := tableFields(t.Fields, id)
		return &ice.StructType{FieldList: fields}, err
	case connectors.Dictionary:
		key, value := id(), id()
		elem, err := tableType(*t.Elem, id)
		return &ice.MapType{KeyID: key, KeyType: ice.PrimitiveTypes.String, ValueID: value, ValueType: elem, ValueRequired: !t.Elem.Nullable}, err
	}
	return nil, fmt.Errorf("a table has no type for %s", t.Base)
}

func integerType(t connectors.Type) ice.Type {
	bits := t.Bits
	if bits == 0 {
		bits = 64
	}
	switch {
	case bits < 32 || bits == 32 && !t.Unsigned:
		return ice.PrimitiveTypes.Int32
	case bits == 64 && t.Unsigned:
		return ice.DecimalTypeOf(20, 0)
	}
	return ice.PrimitiveTypes.Int64
}

func tableFields(cols []connectors.Column, id func() int) ([]ice.NestedField, error) {
	fields := make([]ice.NestedField, len(cols))
	for i, c := range cols {
		fields[i] = ice.NestedField{ID: id(), Name: c.Name, Required: !c.Type.Nullable}
	}
	for i, c := range cols {
		var err error
		if fields[i].Type, err = tableType(c.Type, id); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	return fields, nil
}

// newSchema is the schema of a table with the columns, some of which are its identifier
// fields.
func newSchema(cols []connectors.Column, key []string) (*ice.Schema, error) {
	next := 0
	fields, err := tableFields(cols, func() int { next++; return next })
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, f := range fields {
		if !slices.Contains(key, f.Name) {
			continue
		}
		if !f.Required {
			return nil, fmt.Errorf("column %s is in the key, and may be null: write its type without ?", f.Name)
		}
		ids = append(ids, f.ID)
	}
	return ice.NewSchemaWithIdentifiers(0, ids, fields...), nil
}

var transformCall = regexp.MustCompile(`^\s*([a-z]+)\s*\(\s*(?:(\d+)\s*,\s*)?([^,()]+?)\s*(?:,\s*(\d+)\s*)?\)\s*$`)

// newSpec reads how a table that is created is partitioned: columns, or day(ts),
// bucket(16, id), truncate(4, name) and the like.
func newSpec(schema *ice.Schema, by []string) (ice.PartitionSpec, error) {
	var opts []ice.PartitionOption
	for _, text := range by {
		column, word, width := strings.TrimSpace(text), "identity", ""
		if m := transformCall.FindStringSubmatch(text); m != nil {
			word, width, column = m[1], m[2]+m[4], m[3]
		}
		spelled, name := word, column+"_"+word
		switch word {
		case "identity":
			name = column
		case "bucket":
			spelled = word + "[" + width + "]"
		case "truncate":
			spelled, name = word+"["+width+"]", column+"_trunc"
		case "year", "month", "day", "hour":
		default:
			return ice.PartitionSpec{}, fmt.Errorf("%s: there is no %s; there are identity, bucket, truncate, year, month, day and hour", text, word)
		}
		t, err := ice.ParseTransform(spelled)
		if n, _ := strconv.Atoi(width); err != nil || (n > 0) != (word == "bucket" || word == "truncate") {
			return ice.PartitionSpec{}, fmt.Errorf("%s: write it like day(ts), bucket(16, id) or truncate(4, name)", text)
		}
		field, ok := schema.FindFieldByName(column)
		if !ok {
			return ice.PartitionSpec{}, fmt.Errorf("%s: there is no column %s", text, column)
		}
		if !t.CanTransform(field.Type) {
			return ice.PartitionSpec{}, fmt.Errorf("%s: %s cannot be applied to %s", text, word, field.Type)
		}
		opts = append(opts, ice.AddPartitionFieldByName(column, name, t, schema, nil))
	}
	return ice.NewPartitionSpecOpts(opts...)
}

// checkSpec reports partitions that the library does not describe well in manifests:
// those of fixed bytes Iceberg's Java library cannot read, and of decimals or UUIDs there
// can be one only.
func checkSpec(schema *ice.Schema, spec *ice.PartitionSpec) error {
	seen := map[string]string{}
	for _, f := range spec.PartitionType(schema).FieldList {
		word, _, _ := strings.Cut(f.Type.Type(), "(")
		if strings.HasPrefix(word, "fixed") {
			return fmt.Errorf("it is partitioned by fixed bytes (%s), which other programs could not read: leave that out, or make it a bucket", f.Name)
		}
		if word != "decimal" && word != "uuid" {
			continue
		}
		if other, twice := seen[word]; twice {
			return fmt.Errorf("it is partitioned by two values of type %s (%s, %s), which cannot be written: leave one of them out, or make it a bucket", word, other, f.Name)
		}
		seen[word] = f.Name
	}
	return nil
}

// checkColumns compares the columns that rows have with those of the table, and names
// every fault.
func checkColumns(schema *ice.Schema, cols []connectors.Column) error {
	var errs []error
	fields := schema.Fields()
	for _, c := range cols {
		i := slices.IndexFunc(fields, func(f ice.NestedField) bool { return f.Name == c.Name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("the table has no column %s: add it to the table, or leave it out of the rows", c.Name))
			continue
		}
		if err := fits(c.Type, fields[i].Type); err != nil {
			errs = append(errs, fmt.Errorf("column %s: %w", c.Name, err))
		} else if fields[i].Required && c.Type.Nullable {
			errs = append(errs, fmt.Errorf("column %s may be null in the rows, and the table requires it", c.Name))
		}
	}
	for _, f := range fields {
		if f.Required && !slices.ContainsFunc(cols, func(c connectors.Column) bool { return c.Name == f.Name }) {
			errs = append(errs, fmt.Errorf("the table requires the column %s (%s), which the rows do not have", f.Name, f.Type))
		}
	}
	return errors.Join(errs...)
}

// accepts are the types of a table that take a base, by the words of the format.
var accepts = map[connectors.Base][]string{
	connectors.Boolean:    {"boolean"},
	connectors.Integer:    {"int", "long", "float", "double", "decimal"},
	connectors.Real:       {"float", "double"},
	connectors.Exact:      {"decimal", "float", "double"},
	connectors.Text:       {"string", "uuid", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "binary", "fixed", "decimal"},
	connectors.Binary:     {"binary", "fixed", "uuid"},
	connectors.Instant:    {"timestamptz", "timestamptz_ns"},
	connectors.Local:      {"timestamp", "timestamp_ns"},
	connectors.Date:       {"date"},
	connectors.TimeOfDay:  {"time"},
	connectors.UUID:       {"uuid", "string"},
	connectors.Document:   {"string"},
	connectors.Sequence:   {"list"},
	connectors.Struct:     {"struct"},
	connectors.Dictionary: {"map"},
}

// fits reports why values of a type have no place in a column.
func fits(t connectors.Type, to ice.Type) error {
	if t.Base == connectors.Dynamic {
		return nil
	}
	word, _, _ := strings.Cut(to.Type(), "(")
	word, _, _ = strings.Cut(word, "[")
	if !slices.Contains(accepts[t.Base], word) {
		if t.Base == connectors.Instant && strings.HasPrefix(word, "timestamp") {
			return fmt.Errorf("it is a point in time, and the table's type %s has no zone: declare it as timestamp_local under columns to write what its own clock shows", to)
		}
		return fmt.Errorf("it is %s, and the table's type is %s", t.Base, to)
	}
	if err := fitsWidth(t, to); err != nil {
		return err
	}
	switch to := to.(type) {
	case *ice.ListType:
		if err := fits(*t.Elem, to.Element); err != nil {
			return fmt.Errorf("element: %w", err)
		}
	case *ice.MapType:
		if err := fits(*t.Elem, to.ValueType); err != nil {
			return fmt.Errorf("value: %w", err)
		}
	case *ice.StructType:
		return checkColumns(ice.NewSchema(0, to.FieldList...), t.Fields)
	case ice.DecimalType:
		if t.Base == connectors.Exact && t.Precision > 0 && (t.Scale > to.Scale() || t.Precision-t.Scale > to.Precision()-to.Scale()) {
			return fmt.Errorf("decimal(%d, %d) does not fit into %s", t.Precision, t.Scale, to)
		}
	}
	return nil
}

// fitsWidth reports numbers of a declared width that a column cannot all hold. Without a
// width, as those of JSON are, it is seen row by row.
func fitsWidth(t connectors.Type, to ice.Type) error {
	bits := t.Bits
	if bits > 0 && t.Unsigned {
		bits++ // for the sign that the column has
	}
	have := 64
	switch to.(type) {
	case ice.Int32Type, ice.Float32Type:
		have = 32
	case ice.DecimalType:
		return nil
	}
	if (t.Base == connectors.Integer || t.Base == connectors.Real) && bits > have {
		return fmt.Errorf("it is %s of %d bits, and the table's type %s has %d", t.Base, t.Bits, to, have)
	}
	return nil
}
