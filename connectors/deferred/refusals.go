package deferred

import (
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
)

const (
	// rejectedAtOnce is how many refused rows are handed over at one tick, where they are
	// not large; firstAtOnce is how many, before it is known.
	rejectedAtOnce = 500
	firstAtOnce    = 4
	// pagesAtOnce and rejectedBytes bound how many of those portions are in memory; what is
	// left comes with the commits that follow.
	pagesAtOnce   = 8
	rejectedBytes = 8 << 20
)

// refusals are the rows that the target has refused at commits, on their way to on_error.
// They are read as a part of the commit, beside the stream: a target that does not answer
// holds up no barrier, and no checkpoint is proven before its refused rows are known.
type refusals struct {
	doubt bool  // a reply got lost, perhaps with the number of refused rows
	look  bool  // there may be rows that are not read yet
	read  int64 // mark of the last row that was read
	limit int   // how many are read next

	first *connectors.Rejected // where on_error is fail
	count int

	pages []page // under Sink.mu: not handed over yet
}

// page is rows that are handed over at one tick.
type page struct {
	rows []connectors.Rejected
	last int64
	size int64
}

// askRefused reads what commits have refused, where there may be any.
func (s *Sink) askRefused(ctx context.Context) error {
	r := &s.refusals
	for r.look && s.takesRefused() {
		s.env.Failpoint(s.kind + ".rejected.before")
		r.limit = max(r.limit, firstAtOnce)
		rows, last, err := s.target.Rejected(ctx, r.read, r.limit)
		s.env.Failpoint(s.kind + ".rejected.after")
		fails := s.env.OnError == connectors.RowFail
		if fails && r.first == nil && len(rows) > 0 { // noted even if the reply that settles them got lost
			r.first = &rows[0]
		}
		switch {
		case err != nil:
			return fmt.Errorf("read refused rows: %w", err)
		case len(rows) == 0:
			r.look = false
		default:
			r.read = last
			r.count += len(rows)
			p := page{rows, last, sizeOf(rows)}
			r.adapt(&p)
			if !fails {
				s.mu.Lock()
				r.pages = append(r.pages, p)
				s.mu.Unlock()
			}
		}
	}
	if r.first != nil {
		return s.refusedFails()
	}
	return nil
}

// adapt chooses how many rows are read after a page.
func (r *refusals) adapt(p *page) {
	const wanted = rejectedBytes / pagesAtOnce
	switch {
	case p.size > wanted:
		r.limit = max(firstAtOnce, r.limit/4)
	case len(p.rows) == r.limit && p.size < wanted/2:
		r.limit = min(2*r.limit, rejectedAtOnce)
	}
}

func sizeOf(rows []connectors.Rejected) (n int64) {
	for i := range rows {
		rec := &rows[i].Record
		n += int64(len(rec.Key) + len(rec.Value))
		for _, h := range rec.Headers {
			n += int64(len(h.Key) + len(h.Value))
		}
	}
	return n
}

// takesRefused reports whether memory is left for refused rows.
func (s *Sink) takesRefused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held int64
	for i := range s.refusals.pages {
		held += s.refusals.pages[i].size
	}
	return len(s.refusals.pages) < pagesAtOnce && held < rejectedBytes
}

// nextRefused takes the rows that are handed over next; none where there are none.
func (s *Sink) nextRefused() page {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refusals.pages) == 0 {
		return page{}
	}
	p := s.refusals.pages[0]
	s.refusals.pages = s.refusals.pages[1:]
	return p
}

// refusedFails ends the run where on_error is fail and rows were refused. Their checkpoint
// is applied without them, and the next run goes on behind them.
func (s *Sink) refusedFails() error {
	first, count := s.refusals.first, max(s.refusals.count, 1)
	return connectors.Permanent(fmt.Errorf("rows refused at the commit: %d, which stay in sluice_rejected; the others are applied, and the next run goes on behind them; the first: %w",
		count, &connectors.RecordError{Origin: first.Record.Origin, Offset: first.Record.Offset, Step: s.env.Name, Kind: first.Kind, Reason: first.Reason}))
}
