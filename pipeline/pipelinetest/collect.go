package pipelinetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Target is what sinks of kind collect write to. It outlives crashes, as a
// database would, and can be told to misbehave.
type Target struct {
	mu      sync.Mutex
	rows    []Row
	staged  map[string][]Row // by id of the committable
	done    map[string]bool
	witness connectors.CheckpointID
	origin  string // whose witness it is
	gen     uint64 // the newest generation that revoked
	changed chan struct{}

	// BeforeOpen, BeforeCommit, BeforeWrite and AfterCommit run before and after the
	// steps of that name; their error is the step's. AfterCommit's error is a lost reply.
	BeforeOpen                func() error
	AfterPrepare              func(id connectors.CheckpointID) error
	BeforeCommit, AfterCommit func(id connectors.CheckpointID) error
	BeforeWrite               func(value string) error
	// Refuse tells why a row is refused; empty takes it.
	Refuse func(value string) string
	// Blind makes the target keep no witness, as a folder of files does.
	Blind bool
	// RefuseLate tells why a row is refused when its checkpoint is committed.
	RefuseLate func(value string) string
	late       []Row // refused at commits and not handed over
	// Rolled tells whether the newest barrier asked to leave nothing unpublished.
	Rolled atomic.Bool
}

// Row is one row that a sink was given.
type Row struct {
	Value     string
	Key       string
	Headers   map[string]string
	Tombstone bool
	Partition int32
	Offset    int64
}

func newTarget() *Target {
	return &Target{staged: map[string][]Row{}, done: map[string]bool{}, changed: make(chan struct{})}
}

// Rows are the published rows, in the order of their publication.
func (t *Target) Rows() []Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.rows)
}

// Values are the values of the published rows.
func (t *Target) Values() []string {
	var out []string
	for _, r := range t.Rows() {
		out = append(out, r.Value)
	}
	return out
}

// Lose drops everything that is prepared and not published.
func (t *Target) Lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.staged)
}

// Await waits until n rows are published or ctx ends.
func (t *Target) Await(ctx context.Context, n int) error {
	for {
		t.mu.Lock()
		have, changed := len(t.rows), t.changed
		t.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d rows are published: %w", have, n, ctx.Err())
		}
	}
}

// collectConfig is the block of a collect sink.
type collectConfig struct {
	Name      string                  `key:"name" doc:"The test's name of the target." required:"true"`
	Key       connectors.Expr         `key:"key" doc:"Key of the rows."`
	Once      bool                    `key:"exactly_once" doc:"Publish by checkpoints; otherwise at once."`
	Format    connectors.FormatConfig `key:"format" doc:"Format of the values."`
	PrepareMS int64                   `key:"prepare_ms" doc:"How long a prepare takes."`
	Label     connectors.Template     `key:"label" doc:"A text for each row, kept as its header label."`
	Columns   string                  `key:"columns" doc:"Names of the columns that the rows must have, or any."`
	Changes   string                  `key:"changes" enum:"all|append|changelog|upserts" doc:"How an updating stream is taken."`
}

// changes is how the sink takes an updating stream: as it is by default.
func (c *collectConfig) changes() connectors.Changes {
	switch c.Changes {
	case "append", "changelog":
		return connectors.TakesChangelog(c.Changes == "changelog")
	case "upserts":
		return connectors.Changes{Mode: connectors.Upserts, Key: &c.Key}
	}
	return connectors.Changes{Mode: connectors.AllChanges}
}

// check refuses rows of other columns than those that the file names.
func (c *collectConfig) check(cols []connectors.Column) error {
	got := "any"
	if cols != nil {
		got = DescribeColumns(cols)
	}
	if c.Columns == "" || c.Columns == got {
		return nil
	}
	return &connectors.FieldError{Key: "columns", Msg: "the rows have " + got, Help: "name those"}
}

// DescribeColumns are columns as text, such as id int, tags [string?].
func DescribeColumns(cols []connectors.Column) string {
	parts := make([]string, len(cols))
	for i, col := range cols {
		parts[i] = col.Name + " " + describeType(col.Type)
	}
	return strings.Join(parts, ", ")
}

func describeType(t connectors.Type) string {
	s := t.Base.String()
	switch {
	case t.Elem != nil:
		s = "[" + describeType(*t.Elem) + "]"
	case t.Fields != nil:
		s = "{" + DescribeColumns(t.Fields) + "}"
	}
	if t.Nullable {
		s += "?"
	}
	return s
}

func init() {
	for _, rows := range []bool{false, true} {
		name := map[bool]string{false: "collect", true: "collect_rows"}[rows]
		connectors.RegisterSink(connectors.SinkSpec{
			Name: name, Doc: "Keeps rows for a test; as lines if they can be dead letters' rows.", DeadLetterRows: rows, Lines: rows,
			NewConfig: func() any { return &collectConfig{Once: true} },
			Changes:   func(config any) connectors.Changes { return config.(*collectConfig).changes() },
			Check:     func(config any, cols []connectors.Column) error { return config.(*collectConfig).check(cols) },
			New: func(config any) (connectors.Sink, error) {
				c := config.(*collectConfig)
				s := &collectSink{config: c, target: targetOf(c.Name)}
				if c.Once {
					return &collectTwoPhase{s}, nil
				}
				return s, nil
			},
		})
	}
}

type collectSink struct {
	config *collectConfig
	target *Target
	env    connectors.SinkEnv

	writers []*collectWriter
}

// collectTwoPhase is a collectSink that publishes by checkpoints.
type collectTwoPhase struct{ *collectSink }

func (s *collectSink) Guarantee() connectors.Guarantee {
	if s.config.Once {
		return connectors.ExactlyOnce
	}
	return connectors.AtLeastOnce
}

func (s *collectSink) Open(_ context.Context, env connectors.SinkEnv) error {
	s.env = env
	if s.target.BeforeOpen != nil {
		return s.target.BeforeOpen()
	}
	return nil
}

func (s *collectSink) Start(context.Context, connectors.Restored) error { return nil }

func (s *collectSink) Writer(subtask int) (connectors.Writer, error) {
	w := &collectWriter{sink: s, subtask: subtask}
	s.writers = append(s.writers, w)
	return w, nil
}

func (s *collectSink) Close() error { return nil }

// RefusesAtCommit implements connectors.LateRefuser.
func (s *collectSink) RefusesAtCommit() bool { return s.target.RefuseLate != nil }

// Committer implements connectors.TwoPhaseSink.
func (s *collectTwoPhase) Committer() connectors.Committer { return (*collectCommitter)(s.collectSink) }

type collectWriter struct {
	sink    *collectSink
	subtask int
	rows    []Row

	mu      sync.Mutex
	pending []connectors.Committable // prepared and not done, in order
}

func (w *collectWriter) Write(_ context.Context, rows *connectors.Rows) error {
	t := w.sink.target
	var refused connectors.RowsError
	for i := range rows.Len() {
		rec := rows.Record(i)
		row := Row{
			Value: string(rows.Values[i]), Tombstone: rows.Values[i] == nil, Key: string(rec.Key), Offset: rec.Offset,
			Headers: map[string]string{},
		}
		if rec.Origin != nil {
			row.Partition = rec.Origin.Partition
		}
		if w.sink.config.Key.Set() && rows.DeadLetter == nil {
			row.Key = strings.Clone(rows.Slot(i, w.sink.config.Key.Slot).Text())
		}
		for _, h := range rec.Headers {
			row.Headers[h.Key] = string(h.Value)
		}
		if label := &w.sink.config.Label; label.Set() && rows.DeadLetter == nil {
			text, err := label.Append(nil, rows, i, labelValue)
			if err != nil {
				refused.Rows = append(refused.Rows, connectors.RowError{Row: i, Reason: err.Error(), Kind: "label"})
				continue
			}
			row.Headers["label"] = string(text)
		}
		if t.BeforeWrite != nil {
			if err := t.BeforeWrite(row.Value); err != nil {
				return err
			}
		}
		if t.Refuse != nil {
			if reason := t.Refuse(row.Value); reason != "" {
				refused.Rows = append(refused.Rows, connectors.RowError{Row: i, Reason: reason, Kind: "refused"})
				continue
			}
		}
		w.rows = append(w.rows, row)
	}
	if !w.sink.config.Once {
		t.publish(w.rows)
		w.rows = nil
	}
	if len(refused.Rows) > 0 {
		return &refused
	}
	return nil
}

// labelValue writes texts and whole numbers.
func labelValue(dst []byte, v connectors.Value) ([]byte, error) {
	switch v.Kind() {
	case connectors.String:
		return append(dst, v.Text()...), nil
	case connectors.Int:
		return strconv.AppendInt(dst, v.Int(), 10), nil
	default:
		return dst, fmt.Errorf("%s has no place in a label", v.Kind())
	}
}

func (t *Target) publish(rows []Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, rows...)
	close(t.changed)
	t.changed = make(chan struct{})
}

// Tick hands over what commits have refused, once: the target forgets nothing that a
// restore would need, since the rows that stand for them are published with the barrier
// that follows.
func (w *collectWriter) Tick(context.Context, time.Time) error {
	t := w.sink.target
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.late) == 0 {
		return nil
	}
	var e connectors.RejectedError
	for _, r := range t.late {
		rec := connectors.Record{Value: []byte(r.Value), Key: []byte(r.Key), Origin: &connectors.Origin{Topic: "in", Partition: r.Partition}, Offset: r.Offset}
		for k, v := range r.Headers {
			rec.Headers = append(rec.Headers, connectors.Header{Key: k, Value: []byte(v)})
		}
		e.Rows = append(e.Rows, connectors.Rejected{Record: rec, Kind: "constraint", Reason: t.RefuseLate(r.Value)})
	}
	t.late = nil
	return &e
}

func (w *collectWriter) Close() error { return nil }

func (w *collectWriter) Barrier(_ context.Context, b connectors.Barrier) (connectors.Prepare, error) {
	rows := w.rows
	w.rows = nil
	w.sink.target.Rolled.Store(b.Roll)
	return func(ctx context.Context, _ connectors.CheckpointFiles) (connectors.Prepared, error) {
		if d := time.Duration(w.sink.config.PrepareMS) * time.Millisecond; d > 0 {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return connectors.Prepared{}, ctx.Err()
			}
		}
		if !w.sink.config.Once {
			return connectors.Prepared{}, nil
		}
		id := fmt.Sprintf("%s-%s-g%d-%d-%d", w.sink.env.Origin(), w.sink.env.Name, b.ID.Generation, b.ID.Number, w.subtask)
		w.sink.target.stage(id, rows)
		data, err := json.Marshal(id)
		if err != nil {
			return connectors.Prepared{}, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pending = append(w.pending, connectors.Committable{
			Committer: (*collectCommitter)(w.sink).ID(), Checkpoint: b.ID, Empty: len(rows) == 0, Records: int64(len(rows)), Data: data,
		})
		if t := w.sink.target; t.AfterPrepare != nil {
			if err := t.AfterPrepare(b.ID); err != nil {
				return connectors.Prepared{}, err
			}
		}
		return connectors.Prepared{Committables: slices.Clone(w.pending)}, nil
	}, nil
}

func (w *collectWriter) done(n connectors.CheckpointID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = slices.DeleteFunc(w.pending, func(c connectors.Committable) bool { return c.Checkpoint.Number <= n.Number })
}

func (t *Target) stage(id string, rows []Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.staged[id] = rows
}

// collectCommitter publishes what was staged.
type collectCommitter collectSink

func (c *collectCommitter) ID() string    { return "collect/" + c.env.Name }
func (c *collectCommitter) Expires() bool { return false }

func (c *collectCommitter) Commit(_ context.Context, cm connectors.Committable, _ bool) error {
	t := c.target
	if t.BeforeCommit != nil {
		if err := t.BeforeCommit(cm.Checkpoint); err != nil {
			return err
		}
	}
	var id string
	if err := json.Unmarshal(cm.Data, &id); err != nil {
		return connectors.Permanent(err)
	}
	if err := c.apply(id, cm.Checkpoint); err != nil {
		return err
	}
	if t.AfterCommit != nil {
		return t.AfterCommit(cm.Checkpoint)
	}
	return nil
}

func (c *collectCommitter) apply(id string, n connectors.CheckpointID) error {
	t := c.target
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done[id] {
		return nil
	}
	if n.Generation < t.gen && t.staged[id] == nil {
		return connectors.ErrFenced
	}
	rows, ok := t.staged[id]
	if !ok {
		return connectors.ErrLost
	}
	delete(t.staged, id)
	t.done[id], t.witness, t.origin = true, n, c.env.Origin()
	for _, r := range rows {
		if t.RefuseLate != nil && t.RefuseLate(r.Value) != "" {
			t.late = append(t.late, r)
			continue
		}
		t.rows = append(t.rows, r)
	}
	close(t.changed)
	t.changed = make(chan struct{})
	return nil
}

// Published implements connectors.PublishedChecker.
func (c *collectCommitter) Published(_ context.Context, cm connectors.Committable) (bool, error) {
	var id string
	if err := json.Unmarshal(cm.Data, &id); err != nil {
		return false, err
	}
	c.target.mu.Lock()
	defer c.target.mu.Unlock()
	return c.target.done[id], nil
}

func (c *collectCommitter) Witness(context.Context) (connectors.CheckpointID, bool, error) {
	c.target.mu.Lock()
	defer c.target.mu.Unlock()
	if c.target.Blind {
		return connectors.CheckpointID{}, false, connectors.ErrNoWitness
	}
	if w := c.target.witness; w.Number > 0 && c.target.origin != c.env.Origin() {
		return connectors.CheckpointID{}, false, &connectors.ForeignWitnessError{Mark: fmt.Sprint(c.target.origin, w), Text: "of another storage"}
	}
	return c.target.witness, c.target.witness.Number > 0, nil
}

func (c *collectCommitter) Revoke(_ context.Context, keep []connectors.Committable) error {
	t := c.target
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gen = c.env.Generation()
	kept := map[string]bool{}
	for _, cm := range keep {
		var id string
		if json.Unmarshal(cm.Data, &id) == nil {
			kept[id] = true
		}
	}
	for id := range t.staged {
		if !kept[id] {
			delete(t.staged, id)
		}
	}
	return nil
}

func (c *collectCommitter) Done(n connectors.CheckpointID) {
	for _, w := range c.writers {
		w.done(n)
	}
}
