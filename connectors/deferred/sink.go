package deferred

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// Options say what a sink over a target is.
type Options struct {
	// Kind is the sink's kind, such as "postgres": committers and failpoints are named by it.
	Kind string
}

// Sink keeps rows with the checkpoint and has its target apply them.
type Sink struct {
	target Target
	kind   string
	env    connectors.SinkEnv
	share  int64 // bytes of kept rows that one subtask has in memory at most

	applying sync.Mutex // held while the target applies
	refusals refusals

	mu       sync.Mutex
	writers  []*writer
	attempts map[uint64]*attempt
	proven   uint64        // the highest checkpoint whose commit is proven
	under    chan struct{} // closed when the commit under way ends; nil where there is none
}

// attempt is what the subtasks have prepared of a checkpoint.
type attempt struct {
	came   int
	pieces []piece
}

// piece is what one subtask took for one checkpoint, the attempt's or one that failed
// before it.
type piece struct {
	subtask int
	of      connectors.CheckpointID
	file    connectors.StateFile
	rows    int64
	settled int64
}

// committableData is the Data of a committable.
type committableData struct {
	// Rows is how many each of its files holds.
	Rows []int64 `json:"rows,omitempty"`
	// Settled is the mark up to which refused rows are handed over with the checkpoint.
	Settled int64 `json:"settled,omitempty"`
}

var (
	_ connectors.TwoPhaseSink = (*Sink)(nil)
	_ connectors.Committer    = (*committer)(nil)
)

// NewSink makes a sink over a target.
func NewSink(target Target, o Options) *Sink {
	return &Sink{target: target, kind: o.Kind, attempts: map[uint64]*attempt{}}
}

// Guarantee is that of the target.
func (s *Sink) Guarantee() connectors.Guarantee { return s.target.Guarantee() }

// RefusesAtCommit implements connectors.LateRefuser.
func (s *Sink) RefusesAtCommit() bool { return true }

// encoderBytes is about what a subtask needs beside its kept rows.
const encoderBytes = 4 * blockSize

// Open opens the target.
func (s *Sink) Open(ctx context.Context, env connectors.SinkEnv) error {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	env.Subtasks = max(1, env.Subtasks)
	if env.Failpoint == nil {
		env.Failpoint = func(string) {}
	}
	s.env = env
	s.share = max(env.Budget/int64(env.Subtasks)-encoderBytes, blockSize)
	return s.target.Open(ctx, env)
}

// Start looks for refused rows that an earlier process left: what of them the restored
// checkpoint has settled is noted by now.
func (s *Sink) Start(ctx context.Context, _ connectors.Restored) error {
	if err := s.target.Start(ctx); err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	s.refusals.look = true
	return s.askRefused(ctx)
}

// Writer makes the writer of one subtask.
func (s *Sink) Writer(subtask int) (connectors.Writer, error) {
	enc, err := s.target.NewRowEncoder()
	if err != nil {
		return nil, err
	}
	w := newWriter(s, subtask, enc)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers = append(s.writers, w)
	return w, nil
}

// Close closes the target.
func (s *Sink) Close() error { return s.target.Close() }

// collect takes what one subtask prepared for checkpoint id. The last one returns the
// committables: of each checkpoint that is not proven, the failed ones before this too.
func (s *Sink) collect(id connectors.CheckpointID, pieces []piece) ([]connectors.Committable, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempts[id.Number]
	if a == nil {
		a = &attempt{}
		s.attempts[id.Number] = a
	}
	a.came++
	a.pieces = append(a.pieces, pieces...)
	if a.came < s.env.Subtasks {
		return nil, nil
	}
	for n := range s.attempts { // those before it have ended: prepares of a writer are in order
		if n <= id.Number {
			delete(s.attempts, n)
		}
	}
	out, err := s.committables(a.pieces)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 || out[len(out)-1].Checkpoint != id {
		out = append(out, connectors.Committable{Committer: s.committerID(), Checkpoint: id, Empty: true})
	}
	return out, nil
}

// committables are those of the checkpoints that are not proven, in their order.
func (s *Sink) committables(pieces []piece) (out []connectors.Committable, err error) {
	// Subtasks come in any order. A target that goes on with a commit of another process
	// counts on the order of live.
	slices.SortFunc(pieces, func(x, y piece) int {
		return cmp.Or(cmp.Compare(x.of.Number, y.of.Number), cmp.Compare(x.subtask, y.subtask))
	})
	for len(pieces) > 0 {
		of := pieces[0].of
		n := 0
		for n < len(pieces) && pieces[n].of == of {
			n++
		}
		// Where it was proven meanwhile, some subtasks have left it out.
		if of.Number > s.proven {
			c, err := s.committable(of, pieces[:n])
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
		pieces = pieces[n:]
	}
	return out, nil
}

func (s *Sink) committable(of connectors.CheckpointID, pieces []piece) (connectors.Committable, error) {
	c := connectors.Committable{Committer: s.committerID(), Checkpoint: of}
	var d committableData
	for _, p := range pieces {
		if p.rows > 0 {
			c.Files, d.Rows = append(c.Files, p.file), append(d.Rows, p.rows)
		}
		c.Records += p.rows
		d.Settled = max(d.Settled, p.settled)
	}
	var err error
	c.Data, err = json.Marshal(d)
	return c, err
}

func (s *Sink) committerID() string { return s.kind + "/" + s.env.Name }

// begin notes that a commit is under way, settle that it has ended.
func (s *Sink) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under == nil { // it is tried again
		s.under = make(chan struct{})
	}
}

func (s *Sink) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.under)
	s.under = nil
}

// committing is closed when the commit under way ends; nil where there is none.
func (s *Sink) committing() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under
}

// Committer has the target apply what is prepared.
func (s *Sink) Committer() connectors.Committer { return (*committer)(s) }

type committer Sink

// ID names the committer by its sink.
func (c *committer) ID() string { return (*Sink)(c).committerID() }

// Expires is false: rows stay with the checkpoint.
func (c *committer) Expires() bool { return false }

// Commit has the target apply a checkpoint.
func (c *committer) Commit(ctx context.Context, com connectors.Committable, restored bool) error {
	if com.Empty {
		return nil
	}
	s := (*Sink)(c)
	s.applying.Lock()
	defer s.applying.Unlock()
	s.begin()
	err := s.apply(ctx, com, restored)
	if err == nil || errors.Is(err, connectors.ErrLost) || errors.Is(err, connectors.ErrAmbiguous) {
		s.settle()
	}
	return err
}

func (s *Sink) apply(ctx context.Context, com connectors.Committable, restored bool) error {
	var d committableData
	if err := json.Unmarshal(com.Data, &d); err != nil {
		return connectors.Permanent(fmt.Errorf("read the committable of checkpoint %d: %w", com.Checkpoint.Number, err))
	}
	parts, err := s.parts(com, &d, restored)
	if err != nil {
		return err
	}
	rows := &Rows{parts: parts}
	defer rows.close()
	for _, n := range d.Rows {
		rows.count += n
	}
	s.env.Failpoint(s.kind + ".apply.before")
	refused, err := s.target.Apply(ctx, Commit{ID: com.Checkpoint, Restored: restored, Rows: rows, Settled: d.Settled})
	s.env.Failpoint(s.kind + ".apply.after")
	r := &s.refusals
	if err != nil {
		r.doubt = true
		return err
	}
	if refused > 0 || r.doubt {
		r.look = true
	}
	r.doubt = false
	if restored { // a later one can have settled what this one refused; Start looks
		return nil
	}
	return s.askRefused(ctx)
}

// parts are where the rows of a committable are read: from what the writers still have,
// else from the files of the checkpoint.
func (s *Sink) parts(com connectors.Committable, d *committableData, restored bool) ([]part, error) {
	if !restored {
		if parts := s.live(com.Checkpoint, len(d.Rows)); parts != nil {
			return parts, nil
		}
	}
	if len(com.Files) == 0 {
		return nil, nil
	}
	var files connectors.CheckpointFiles
	if s.env.Restored != nil {
		files = s.env.Restored()
	}
	switch {
	case files != nil:
	case restored:
		return nil, connectors.Permanent(fmt.Errorf("commit checkpoint %d: its rows cannot be read: there are no files of a restored checkpoint", com.Checkpoint.Number))
	default: // a task has failed, and the next start commits it
		return nil, fmt.Errorf("commit checkpoint %d: its rows are freed, as the run ends", com.Checkpoint.Number)
	}
	return fileParts(files, com, d)
}

// live are the rows of a checkpoint as the writers have them; nil where they have them
// no more.
func (s *Sink) live(id connectors.CheckpointID, want int) []part {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := []part{}
	for _, w := range s.writers {
		if sp := w.spoolOf(id); sp != nil && sp.rows > 0 {
			parts = append(parts, part{
				what: fmt.Sprintf("the rows of checkpoint %d", id.Number), rows: sp.rows,
				open: func(context.Context) (io.ReadCloser, error) { return w.reader(sp) },
			})
		}
	}
	if len(parts) != want {
		return nil
	}
	return parts
}

// Witness is the target's.
func (c *committer) Witness(ctx context.Context) (connectors.CheckpointID, bool, error) {
	return c.target.Witness(ctx)
}

// Revoke has the target refuse what older processes prepared. The rows themselves are
// files of checkpoints that nobody lists any more.
func (c *committer) Revoke(ctx context.Context, _ []connectors.Committable) error {
	return c.target.Revoke(ctx)
}

func (s *Sink) isProven(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return n <= s.proven
}

// Done frees what is proven.
func (c *committer) Done(n connectors.CheckpointID) {
	s := (*Sink)(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven = max(s.proven, n.Number)
	for _, w := range s.writers {
		w.done(n.Number)
	}
}
