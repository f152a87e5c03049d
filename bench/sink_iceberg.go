package main

import (
	"context"
	"database/sql"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	icesql "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"
	_ "modernc.org/sqlite" // the driver sqlite
)

// bareIceberg appends the rows of each interval to a table, as one commit.
func bareIceberg(ctx context.Context, l *sinkLoop) error {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(l.dir, "catalog.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	catalog, err := icesql.NewCatalog("default", db, icesql.SQLite, iceberg.Properties{"warehouse": "file://" + filepath.Join(l.dir, "warehouse")})
	if err != nil {
		return err
	}
	if err := catalog.CreateNamespace(ctx, table.Identifier{"bench"}, nil); err != nil {
		return err
	}
	var fields []iceberg.NestedField
	var columns []arrow.Field
	for i, name := range bidColumns {
		var typed iceberg.Type = iceberg.PrimitiveTypes.Int64
		column := arrow.PrimitiveTypes.Int64
		if _, ok := l.bid(0).values()[i].(string); ok {
			typed, column = iceberg.PrimitiveTypes.String, arrow.BinaryTypes.String
		}
		fields = append(fields, iceberg.NestedField{ID: i + 1, Name: name, Type: typed})
		columns = append(columns, arrow.Field{Name: name, Type: column, Nullable: true})
	}
	t, err := catalog.CreateTable(ctx, table.Identifier{"bench", "bids"}, iceberg.NewSchema(0, fields...))
	if err != nil {
		return err
	}
	schema := arrow.NewSchema(columns, nil)
	rows := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer rows.Release()
	return l.eachInterval(func(from int64, more func(int64) bool) error {
		for i := from; more(i); i++ {
			l.bid(i).appendTo(rows)
		}
		batch := rows.NewRecordBatch()
		defer batch.Release()
		reader, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch})
		if err != nil {
			return err
		}
		defer reader.Release()
		t, err = t.Append(ctx, reader, nil)
		return err
	})
}

func (b *bid) appendTo(rows *array.RecordBuilder) {
	for i, v := range b.values() {
		switch to := rows.Field(i).(type) {
		case *array.Int64Builder:
			to.Append(v.(int64))
		case *array.StringBuilder:
			to.Append(v.(string))
		}
	}
}
