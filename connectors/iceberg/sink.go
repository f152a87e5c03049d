package iceberg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-etl/sluice/connectors"
)

const defaultTimeout = time.Minute

// Sink adds rows to a table.
type Sink struct {
	cfg  SinkConfig
	env  connectors.SinkEnv
	lake lake
	open func(ctx context.Context, c *SinkConfig, readOnly bool) (lake, error)

	committing sync.Mutex // one change of the table at a time

	view   *view // what files are written for; from Start on
	schema *arrow.Schema
	key    *tableKey // nil where rows are only added
	seed   maphash.Seed

	mu       sync.Mutex
	writers  []*writer
	came     map[uint64]int // by checkpoint, how many subtasks have prepared
	prepared []connectors.Committable
}

var _ connectors.TwoPhaseSink = (*Sink)(nil)

// NewSink makes a sink. It does no I/O.
func NewSink(c SinkConfig) *Sink {
	return &Sink{cfg: c, open: openLake, seed: maphash.MakeSeed(), came: map[uint64]int{}}
}

// Guarantee is exactly-once.
func (s *Sink) Guarantee() connectors.Guarantee { return connectors.ExactlyOnce }

func (s *Sink) generation() uint64 {
	if s.env.Generation == nil {
		return 0
	}
	return s.env.Generation()
}

func (s *Sink) owner() owner {
	o := owner{pipeline: s.env.Pipeline, sink: s.env.Name}
	if s.env.Origin != nil {
		o.origin = s.env.Origin()
	}
	return o
}

// Open connects to the catalog and compares the table with the rows.
func (s *Sink) Open(ctx context.Context, env connectors.SinkEnv) error {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.Failpoint == nil {
		env.Failpoint = func(string) {}
	}
	env.Subtasks = max(1, env.Subtasks)
	s.env = env
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.cfg.Timeout))
	defer cancel()
	var err error
	if s.lake, err = s.open(ctx, &s.cfg, env.ReadOnly); err != nil {
		return err
	}
	v, err := s.lake.load(ctx)
	switch {
	case errors.Is(err, errNoTable) && s.cfg.Create:
		return nil
	case errors.Is(err, errNoTable):
		return connectors.Permanent(fmt.Errorf("there is no table %s in the catalog: create it, or add create: true", s.cfg.Table))
	case err != nil:
		return err
	}
	return s.check(ctx, v)
}

// check compares the table with the columns that are declared, or that the plan knows,
// and looks for a key to replace rows by.
func (s *Sink) check(ctx context.Context, v *view) error {
	cols := []connectors.Column(s.cfg.Columns)
	if len(cols) == 0 {
		cols = certain(s.env.Columns)
	}
	if len(cols) > 0 {
		if err := checkColumns(v.t.Schema(), cols); err != nil {
			return connectors.Permanent(fmt.Errorf("the rows do not fit the table %s:\n%w", s.cfg.Table, err))
		}
	}
	spec := v.t.Metadata().PartitionSpec()
	err := checkSpec(v.t.Schema(), &spec)
	if err != nil {
		return connectors.Permanent(fmt.Errorf("the table %s cannot be written: %w", s.cfg.Table, err))
	}
	if s.cfg.Mode != modeUpsert {
		return nil
	}
	if s.key, err = v.key(s.cfg.Key); err == nil {
		err = s.key.among(cols)
	}
	if err == nil {
		err = v.reaches(ctx, v.t.Metadata().DefaultPartitionSpec())
		if err != nil && !errors.Is(err, errSpecs) {
			return err
		}
	}
	if err != nil {
		return connectors.Permanent(fmt.Errorf("the table %s cannot be written with mode: upsert:\n%w", s.cfg.Table, err))
	}
	return nil
}

// Start makes the table where it is to be made, and looks at it once more.
func (s *Sink) Start(ctx context.Context, _ connectors.Restored) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.cfg.Timeout))
	defer cancel()
	v, err := s.lake.load(ctx)
	if errors.Is(err, errNoTable) && s.cfg.Create {
		v, err = s.createTable(ctx)
	}
	if err != nil {
		return err
	}
	if err := s.check(ctx, v); err != nil {
		return err
	}
	s.view = v
	s.schema, err = v.rowSchema()
	return err
}

func (s *Sink) createTable(ctx context.Context) (*view, error) {
	s.env.Failpoint("iceberg.create.before")
	err := s.lake.create(ctx, newTable{s.cfg.Columns, s.cfg.Key, s.cfg.PartitionBy, s.cfg.Location, s.cfg.Properties})
	s.env.Failpoint("iceberg.create.after")
	if err != nil {
		return nil, err
	}
	if err := s.fence(ctx); err != nil {
		return nil, err
	}
	return s.lake.load(ctx)
}

// Writer makes the writer of one subtask.
func (s *Sink) Writer(subtask int) (connectors.Writer, error) {
	o := rowOptions{schema: s.schema, declared: s.cfg.Columns, unknown: s.cfg.Unknown == unknownIgnore, seed: s.seed}
	if s.key != nil {
		o.key = s.key.names
	}
	b, err := newRowBuilder(o)
	if err != nil {
		return nil, err
	}
	w := &writer{sink: s, rows: b, limit: int64(s.cfg.Buffer)}
	if s.env.Budget > 0 {
		// A batch being prepared, one being collected, and what Parquet makes of them.
		w.limit = max(64<<10, min(w.limit, s.env.Budget/int64(s.env.Subtasks)/4))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers = append(s.writers, w)
	return w, nil
}

// Close ends the connection to the catalog.
func (s *Sink) Close() error {
	if s.lake == nil {
		return nil
	}
	return s.lake.close()
}

// collect notes that a subtask has prepared a checkpoint. The one that comes last returns
// one committable for the files of all, and those before it that are not proven.
func (s *Sink) collect(id connectors.CheckpointID) ([]connectors.Committable, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came[id.Number]++
	if s.came[id.Number] < s.env.Subtasks {
		return nil, nil
	}
	for n := range s.came {
		if n <= id.Number { // those before it have ended: prepares of a writer are in order
			delete(s.came, n)
		}
	}
	var d committableData
	own := connectors.Committable{Committer: s.committerID(), Checkpoint: id}
	for _, w := range s.writers {
		for _, f := range w.written(id.Number) {
			d.Files = append(d.Files, f)
			own.Records += f.Rows
		}
	}
	inSteps(d.Files)
	var err error
	if own.Data, err = json.Marshal(d); err != nil {
		return nil, err
	}
	if len(d.Files) == 0 {
		own.Empty, own.Data = true, nil
		return append(slices.Clone(s.prepared), own), nil
	}
	s.prepared = append(s.prepared, own)
	return slices.Clone(s.prepared), nil
}

func (s *Sink) done(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepared = slices.DeleteFunc(s.prepared, func(c connectors.Committable) bool { return c.Checkpoint.Number <= n })
}
