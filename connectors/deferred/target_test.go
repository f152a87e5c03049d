package deferred

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// table is a target in memory. It outlives the sinks over it, as a database does.
type table struct {
	mu       sync.Mutex
	rows     []string
	witness  connectors.CheckpointID
	fence    uint64
	rejected []refusedRow
	down     error // answers everything while it is set
	lost     int   // so many replies of Apply get lost after it is done
	unheard  int   // the same of Rejected
	asked    int   // for refused rows, so many times
	refuses  string
}

type refusedRow struct {
	connectors.Rejected
	settled bool
}

// memory is one process's way to a table.
type memory struct {
	*table
	env connectors.SinkEnv
	// apply is called at the beginning of Apply.
	apply func(c Commit)
}

func (t *table) sink() *Sink { return NewSink(&memory{table: t}, Options{Kind: "memory"}) }

func (m *memory) Guarantee() connectors.Guarantee { return connectors.ExactlyOnce }

func (m *memory) Open(_ context.Context, env connectors.SinkEnv) error {
	m.env = env
	return nil
}

func (m *memory) Start(context.Context) error { return nil }
func (m *memory) Close() error                { return nil }

func (m *memory) generation() uint64 { return m.env.Generation() }

var errReplyLost = errors.New("the reply got lost")

func (m *memory) Apply(ctx context.Context, c Commit) (int, error) {
	if m.apply != nil {
		m.apply(c)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.generation()
	switch {
	case m.down != nil:
		return 0, m.down
	case m.fence > own || m.witness.Generation > own:
		return 0, connectors.ErrFenced
	case m.witness.Generation > c.ID.Generation, m.witness.Generation == c.ID.Generation && m.witness.Number >= c.ID.Number:
		return 0, nil
	}
	var rows []string
	var refused []refusedRow
	for {
		b, err := c.Rows.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		for i, r := range b.Rows {
			if m.refuses != "" && strings.Contains(string(r), m.refuses) {
				rec := b.Record(i)
				refused = append(refused, refusedRow{Rejected: connectors.Rejected{Record: clone(rec), Kind: "constraint", Reason: "it is not taken"}})
				continue
			}
			rows = append(rows, string(r))
		}
	}
	m.rows, m.witness = append(m.rows, rows...), c.ID
	for i := range m.rejected[:min(int(c.Settled), len(m.rejected))] {
		m.rejected[i].settled = true
	}
	m.rejected = append(m.rejected, refused...)
	if m.lost > 0 {
		m.lost--
		return 0, errReplyLost
	}
	return len(refused), nil
}

// clone copies what a block lends.
func clone(r connectors.Record) connectors.Record {
	r.Key, r.Value = []byte(string(r.Key)), []byte(string(r.Value))
	return r
}

func (m *memory) Witness(context.Context) (connectors.CheckpointID, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.witness, m.witness.Number > 0, m.down
}

func (m *memory) Revoke(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fence = max(m.fence, m.generation())
	return m.down
}

func (m *memory) Rejected(_ context.Context, after int64, limit int) (rows []connectors.Rejected, last int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	for i := range m.rejected {
		r := &m.rejected[i]
		if int64(i+1) <= after || r.settled || len(rows) == limit {
			continue
		}
		r.settled = m.env.OnError == connectors.RowFail
		rows, last = append(rows, r.Rejected), int64(i+1)
	}
	if m.unheard > 0 {
		m.unheard--
		return rows, last, errReplyLost
	}
	return rows, last, m.down
}

func (m *memory) NewRowEncoder() (RowEncoder, error) { return &plain{}, nil }

// plain keeps rows as they are; it leaves out what says "skip" and refuses "bad".
type plain struct{ rows *connectors.Rows }

func (p *plain) Begin(rows *connectors.Rows) error {
	p.rows = rows
	return nil
}

func (p *plain) Append(dst []byte, i int) ([]byte, error) {
	switch v := string(p.rows.Values[i]); v {
	case "skip":
		return dst, nil
	case "bad":
		return append(dst, "half of it"...), &Refused{Kind: "type", Reason: "it is bad"}
	default:
		return append(dst, v...), nil
	}
}

// read is what is in the table.
func (t *table) read() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.rows...)
}
