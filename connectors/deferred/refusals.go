package deferred

import (
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
)

const (
	// rejectedAtOnce is how many refused rows are handed over at one tick.
	rejectedAtOnce = 500
	// pagesAtOnce bounds how many of those portions are in memory; what is left comes with
	// the commits that follow.
	pagesAtOnce = 8
)

// refusals are the rows that the target has refused at commits, on their way to on_error.
// They are read as a part of the commit, beside the stream: a target that does not answer
// holds up no barrier, and no checkpoint is proven before its refused rows are known.
type refusals struct {
	doubt bool  // a reply got lost, perhaps with the number of refused rows
	look  bool  // there may be rows that are not read yet
	read  int64 // mark of the last row that was read

	first *connectors.Rejected // where on_error is fail
	count int

	pages []page // under Sink.mu: not handed over yet
}

// page is rows that are handed over at one tick.
type page struct {
	rows []connectors.Rejected
	last int64
}

// askRefused reads what commits have refused, where there may be any.
func (s *Sink) askRefused(ctx context.Context) error {
	r := &s.refusals
	for r.look && s.pages() < pagesAtOnce {
		s.env.Failpoint(s.kind + ".rejected.before")
		rows, last, err := s.target.Rejected(ctx, r.read, rejectedAtOnce)
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
			if !fails {
				s.mu.Lock()
				r.pages = append(r.pages, page{rows, last})
				s.mu.Unlock()
			}
		}
	}
	if r.first != nil {
		return s.refusedFails()
	}
	return nil
}

func (s *Sink) pages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.refusals.pages)
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
