package iceberg

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/codec"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/sluice-etl/sluice/connectors"
)

// lake is one table of a catalog.
type lake interface {
	// load reads the table as it is now. errNoTable says that there is none.
	load(ctx context.Context) (*view, error)
	// create makes the table, and nothing where there is one.
	create(ctx context.Context, t newTable) error
	// commit changes the table in one step, if the branch is as it was in v. An error
	// that is errConflict says that nothing has happened; after any other, nobody knows.
	commit(ctx context.Context, v *view, c change) error
	close() error
}

var (
	errNoTable  = errors.New("there is no such table")
	errConflict = errors.New("the table was changed by somebody else at the same time")
)

// newTable is a table to be made.
type newTable struct {
	columns     []connectors.Column
	key         []string // its identifier fields
	partitionBy []string
	location    string
	properties  map[string]string
}

// change is what one commit does: it adds files, or none, as a snapshot with a summary,
// and sets properties.
type change struct {
	files      []*fileSet
	summary    map[string]string
	properties map[string]string
}

// fileSet is files that are written and not yet part of the table.
type fileSet struct {
	Table   string   `json:"table"` // its UUID
	Schema  int      `json:"schema"`
	Spec    int      `json:"spec"`
	Format  int      `json:"format"`
	Files   [][]byte `json:"files"`             // of data, as manifests describe them
	Deletes [][]byte `json:"deletes,omitempty"` // of keys whose older rows go
	Key     []int    `json:"key,omitempty"`     // field ids of the keys
	Step    int      `json:"step,omitempty"`    // of the commit, see inSteps
	Paths   []string `json:"paths"`             // of all files
	Rows    int64    `json:"rows"`              // that were added, replaced or deleted

	hashes []uint64 // of the keys
}

// view is a table as one look at the catalog found it.
type view struct {
	t      *table.Table
	branch string
}

func (v *view) uuid() string { return v.t.Metadata().TableUUID().String() }

// layout says how files are written for the table as it is.
func (v *view) layout() fileSet {
	m := v.t.Metadata()
	return fileSet{Table: v.uuid(), Schema: m.CurrentSchema().ID, Spec: m.DefaultPartitionSpec(), Format: m.Version()}
}

func (v *view) property(key string) string { return v.t.Properties()[key] }

// summaries are those of the branch's snapshots, from its head back.
func (v *view) summaries() iter.Seq[map[string]string] {
	return func(yield func(map[string]string) bool) {
		for s := v.t.SnapshotByName(v.branch); s != nil; {
			if s.Summary != nil && !yield(s.Summary.Properties) {
				return
			}
			if s.ParentSnapshotID == nil {
				return
			}
			s = v.t.SnapshotByID(*s.ParentSnapshotID)
		}
	}
}

// rowSchema is how rows of the table look.
func (v *view) rowSchema() (*arrow.Schema, error) {
	return table.SchemaToArrowSchemaWithOptions(v.t.Schema(), table.ArrowSchemaOptions{IncludeFieldIDs: true, TableProperties: v.t.Properties()})
}

// write writes a batch into files, which are durable then.
func (v *view) write(ctx context.Context, schema *arrow.Schema, key *tableKey, r *rowBatch) (*fileSet, error) {
	out := v.layout()
	out.Rows, out.hashes = r.changes, r.hashes
	if r.data != nil {
		files, err := v.writeData(ctx, schema, r.data)
		if err == nil {
			out.Files, err = v.describe(files, r.data.NumRows(), &out.Paths)
		}
		if err != nil {
			return nil, err
		}
	}
	if r.keys != nil {
		files, err := v.writeDeletes(ctx, key, r.keys)
		if err == nil {
			out.Deletes, err = v.describe(files, r.keys.NumRows(), &out.Paths)
		}
		if err != nil {
			return nil, err
		}
		out.Key = key.ids
	}
	return &out, nil
}

func (v *view) writeData(ctx context.Context, schema *arrow.Schema, data arrow.RecordBatch) ([]ice.DataFile, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, err
	}
	one := func(yield func(arrow.RecordBatch, error) bool) {
		data.Retain() // the library releases what it is given
		yield(data, nil)
	}
	var out []ice.DataFile
	for f, err := range table.WriteRecords(ctx, v.t, schema, one, table.WithWriteUUID(id), table.WithMaxWriteWorkers(1)) {
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// describe gives files as manifests describe them, and adds their paths. They must hold as
// many rows as were written: the library does not tell of every file that it could not
// make.
func (v *view) describe(files []ice.DataFile, rows int64, paths *[]string) ([][]byte, error) {
	var out [][]byte
	for _, f := range files {
		rows -= f.Count()
		spec := v.t.Metadata().PartitionSpecByID(int(f.SpecID()))
		if spec == nil {
			return nil, fmt.Errorf("the table has no partition spec %d", f.SpecID())
		}
		raw, err := codec.EncodeDataFile(f, *spec, v.t.Schema(), v.t.Metadata().Version())
		if err != nil {
			return nil, err
		}
		out, *paths = append(out, raw), append(*paths, f.FilePath())
	}
	if rows != 0 {
		return nil, fmt.Errorf("%d of the rows came into no file", rows)
	}
	return out, nil
}

// read reads files back from their description.
func (v *view) read(s *fileSet) (data, deletes []ice.DataFile, err error) {
	m := v.t.Metadata()
	spec := m.PartitionSpecByID(s.Spec)
	var schema *ice.Schema
	for _, sc := range m.Schemas() {
		if sc.ID == s.Schema {
			schema = sc
		}
	}
	if spec == nil || schema == nil {
		return nil, nil, fmt.Errorf("the table has no schema %d or no partition spec %d any more, which its prepared files were written with", s.Schema, s.Spec)
	}
	list := func(raw [][]byte) (out []ice.DataFile) {
		for _, r := range raw {
			f, fault := codec.DecodeDataFile(r, *spec, schema, s.Format)
			if fault != nil && err == nil {
				err = fmt.Errorf("read the description of a file among %s: %w", strings.Join(s.Paths, ", "), fault)
			}
			out = append(out, f)
		}
		return out
	}
	data, deletes = list(s.Files), list(s.Deletes)
	return data, deletes, err
}

// firstLineage is the table format in which files need ids of rows, which the way of
// adding files that merges manifests does not give them.
const firstLineage = 3

// stage puts a change into a transaction: a snapshot for each step, of which only the
// last one names the checkpoint, since it alone has all of it.
func (v *view) stage(ctx context.Context, c change) (*table.Transaction, error) {
	tx, err := v.t.NewTransactionOnBranchWithError(v.branch)
	if err != nil {
		return nil, err
	}
	if err := tx.AssertRefSnapshotID(v.branch); err != nil {
		return nil, err
	}
	last := 0
	for _, s := range c.files {
		last = max(last, s.Step)
	}
	for step := range last + 1 {
		summary := maps.Clone(c.summary)
		if step < last {
			delete(summary, sumCheckpoint)
		}
		if err := v.stageStep(ctx, tx, c.files, step, summary); err != nil {
			return nil, err
		}
	}
	return tx, tx.SetProperties(c.properties)
}

func (v *view) stageStep(ctx context.Context, tx *table.Transaction, files []*fileSet, step int, summary map[string]string) error {
	var data, deletes []ice.DataFile
	for _, s := range files {
		if s.Step != step {
			continue
		}
		d, gone, err := v.read(s)
		if err != nil {
			return connectors.Permanent(err)
		}
		data, deletes = append(data, d...), append(deletes, gone...)
	}
	switch {
	case len(data)+len(deletes) == 0:
		// An empty snapshot. A look for duplicates would read every manifest of the table.
		return tx.AddFiles(ctx, nil, summary, true)
	case len(deletes) > 0 || v.t.Metadata().Version() >= firstLineage:
		return tx.NewRowDelta(summary).AddRows(data...).AddDeletes(deletes...).Commit(ctx)
	}
	return tx.AddDataFiles(ctx, data, summary, table.WithoutDuplicateCheck(), table.WithoutAutoNameMapping())
}

// iceLake is a lake by the library.
type iceLake struct {
	cat    catalog.Catalog
	ident  table.Identifier
	branch string
	free   func() error
}

func (l *iceLake) load(ctx context.Context) (*view, error) {
	t, err := l.cat.LoadTable(ctx, l.ident)
	if errors.Is(err, catalog.ErrNoSuchTable) || errors.Is(err, catalog.ErrNoSuchNamespace) {
		return nil, errNoTable
	}
	if err != nil {
		return nil, fmt.Errorf("load the table: %w", err)
	}
	return &view{t, l.branch}, nil
}

func (l *iceLake) create(ctx context.Context, n newTable) error {
	schema, err := newSchema(n.columns, n.key)
	if err != nil {
		return connectors.Permanent(err)
	}
	spec, err := newSpec(schema, n.partitionBy)
	if err != nil {
		return connectors.Permanent(fmt.Errorf("partition_by: %w", err))
	}
	opts := []catalog.CreateTableOpt{catalog.WithPartitionSpec(&spec), catalog.WithProperties(n.properties)}
	if n.location != "" {
		opts = append(opts, catalog.WithLocation(n.location))
	}
	space := catalog.NamespaceFromIdent(l.ident)
	if there, err := l.cat.CheckNamespaceExists(ctx, space); err != nil || !there { // the right to make one is not always there
		if err := l.cat.CreateNamespace(ctx, space, nil); err != nil && !errors.Is(err, catalog.ErrNamespaceAlreadyExists) {
			return fmt.Errorf("create the namespace: %w", err)
		}
	}
	_, err = l.cat.CreateTable(ctx, l.ident, schema, opts...)
	if err == nil || errors.Is(err, catalog.ErrTableAlreadyExists) {
		return nil
	}
	if _, lerr := l.cat.LoadTable(ctx, l.ident); lerr == nil {
		return nil // another process was faster, or the answer was lost
	}
	return fmt.Errorf("create the table: %w", err)
}

func (l *iceLake) commit(ctx context.Context, v *view, c change) error {
	tx, err := v.stage(ctx, c)
	if err != nil {
		return fmt.Errorf("write the commit's metadata: %w", err)
	}
	_, err = tx.Commit(ctx)
	if errors.Is(err, table.ErrCommitFailed) {
		return fmt.Errorf("%w: %w", errConflict, err)
	}
	return err
}

func (l *iceLake) close() error { return l.free() }
