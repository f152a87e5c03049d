package files

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/files/avrofile"
	"github.com/sluice-etl/sluice/connectors/files/compress"
	"github.com/sluice-etl/sluice/connectors/files/csvfile"
	"github.com/sluice-etl/sluice/connectors/files/parquet"
	"github.com/sluice-etl/sluice/connectors/format"
)

// laidOut are the formats that this package writes and reads itself, beside json, of
// rows that are JSON for the rest of the program. Values of raw and text are lines of
// any text.
var laidOut = []string{formatAvro, formatCSV, formatParquet}

func recordFormat(c connectors.FormatConfig) connectors.FormatConfig {
	if slices.Contains(laidOut, c.Name) {
		return connectors.FormatConfig{Name: formatJSON}
	}
	return c
}

// avroOptions are the options of avro.
type avroOptions struct {
	Columns columns.List `key:"columns" doc:"The columns in their order, such as [{id: int}, {note: string?}]; without them the fields of the rows where their types are known."`
}

// parquetOptions are the options of parquet.
type parquetOptions struct {
	Columns  columns.List        `key:"columns" doc:"The columns in their order, such as [{id: int}, {note: string?}]; without them the fields of the rows where their types are known."`
	RowGroup connectors.ByteSize `key:"row_group" doc:"About how many bytes of rows, before compression, are in a row group, and in memory while a file is made."`
}

// The bounds of a row group.
const (
	minRowGroup = 64 << 10
	maxRowGroup = 1 << 30
)

// Validate refuses what no file can have.
func (o *parquetOptions) Validate() error {
	if o.RowGroup < minRowGroup || o.RowGroup > maxRowGroup {
		return &connectors.FieldError{Key: "row_group", Msg: fmt.Sprintf("%s is not between 64KiB and 1GiB", o.RowGroup), Help: "the default is 64MiB"}
	}
	return nil
}

// layout is what a format that is laid out here is set up with.
type layout struct {
	avro    *avroOptions
	csv     *csvfile.Options
	parquet *parquetOptions
}

func layoutOf(c connectors.FormatConfig) (l layout, err error) {
	switch c.Name {
	case formatAvro:
		l.avro = new(avroOptions)
		err = format.DecodeOptions(c.Name, c.Options, l.avro)
	case formatCSV:
		l.csv = csvfile.NewOptions()
		err = format.DecodeOptions(c.Name, c.Options, l.csv)
	case formatParquet:
		l.parquet = &parquetOptions{RowGroup: 64 << 20}
		err = format.DecodeOptions(c.Name, c.Options, l.parquet)
	}
	return l, err
}

func (l layout) columns() []connectors.Column {
	switch {
	case l.avro != nil:
		return l.avro.Columns
	case l.csv != nil:
		return l.csv.Columns
	case l.parquet != nil:
		return l.parquet.Columns
	}
	return nil
}

// rowColumns are the columns of a sink's files: those that are declared, else those of the rows.
func (c *SinkConfig) rowColumns(known []connectors.Column) ([]connectors.Column, error) {
	l, err := layoutOf(c.Format)
	if err != nil || !slices.Contains(laidOut, c.Format.Name) {
		return nil, err
	}
	cols := l.columns()
	if cols == nil {
		cols = known
	}
	if cols == nil {
		return nil, &connectors.FieldError{
			Key: "format", Msg: fmt.Sprintf("%s files need columns, and the types of the rows' fields are not known here", c.Format.Name),
			Help: fmt.Sprintf("write format: {%s: {columns: [{id: int}, {note: string?}]}}, or a schema at the source", c.Format.Name),
		}
	}
	if c.Format.Name == formatAvro {
		if err := avrofile.CheckNames(cols); err != nil {
			return nil, &connectors.FieldError{Key: "format", Msg: err.Error()}
		}
	}
	return cols, nil
}

// checkColumns refuses a sink without columns for its files, when the pipeline is loaded.
func checkColumns(config any, known []connectors.Column) error {
	c, ok := config.(*SinkConfig)
	if !ok {
		return nil
	}
	_, err := c.rowColumns(known)
	return err
}

// compressions are those of a format's files.
func compressions(formatName string) []string {
	switch formatName {
	case formatAvro:
		return avrofile.Compressions
	case formatParquet:
		return parquet.Compressions
	default:
		return compress.Names
	}
}

// compression is the one that a sink's files have.
func (c *SinkConfig) compression() string {
	switch {
	case c.Compression != compressionAuto:
		return c.Compression
	case c.Format.Name == formatAvro || c.Format.Name == formatParquet:
		return compressionSnappy
	}
	return compressionNone
}

func (f *faults) sinkFormat(c *SinkConfig) {
	f.fileFormat(c.Format, formatJSON, formatRaw, formatText)
	known := compressions(c.Format.Name)
	if c.Compression != compressionAuto && !slices.Contains(known, c.Compression) {
		f.add("compression", fmt.Sprintf("%s files have no %q", c.Format.Name, c.Compression), "write auto, "+strings.Join(known, ", "))
	}
}

func (f *faults) sourceFormat(c *SourceConfig) {
	f.fileFormat(c.Format, formatJSON, formatRaw, formatText, "debezium")
	if c.Format.Name == formatCSV {
		if l, err := layoutOf(c.Format); err == nil && !l.csv.Header && l.csv.Columns == nil {
			f.add("format.csv", "files without a header need columns", "write columns: [{id: int}, {note: string?}]")
		}
	}
}

func (f *faults) fileFormat(c connectors.FormatConfig, lines ...string) {
	all := append(slices.Clone(lines), laidOut...)
	if !slices.Contains(all, c.Name) {
		f.add("format", fmt.Sprintf("%q is no format of files", c.Name), "write "+strings.Join(all, ", "))
		return
	}
	_, err := layoutOf(c)
	var field *connectors.FieldError
	switch {
	case errors.As(err, &field):
		f.add("format."+c.Name+"."+field.Key, field.Msg, field.Help)
	case err != nil:
		f.add("format", err.Error(), "")
	}
}
