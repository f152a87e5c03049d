package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// letterSource reads dead letters back as the records that they were. It notes which ones
// it gave out, so that none comes twice, whatever was chosen in between; those that were
// left out can be chosen later.
type letterSource struct {
	inner  connectors.ReadBack
	rows   bool
	filter LetterFilter
	// only is the source whose records are wanted; nil for those of any.
	only connectors.Source
	// made says that letters which cannot be brought in are wanted too, to be listed: of
	// records which a step made, and of those that are no rows.
	made bool
	seen func(*Letter) // of those given out; nil for nobody

	topics []string // of only, once known
}

// span is a range of positions, up to and without the second.
type span [2]int64

// letterDetail is what a split of dead letters keeps.
type letterDetail struct {
	Inner json.RawMessage `json:"inner,omitempty"`
	Done  []span          `json:"done,omitempty"`
}

func detailOf(s connectors.Split) (d letterDetail, err error) {
	if len(s.Detail) > 0 {
		err = json.Unmarshal(s.Detail, &d)
	}
	return d, err
}

func (d letterDetail) encode() json.RawMessage {
	raw, err := json.Marshal(d)
	if err != nil {
		panic(err) // it holds JSON and numbers
	}
	return raw
}

// Splits lists what is there now. What was given out by earlier runs stays given out.
func (s *letterSource) Splits(ctx context.Context, restored []connectors.Split) ([]connectors.Split, error) {
	if err := s.findTopics(ctx); err != nil {
		return nil, err
	}
	now, err := s.inner.Source.Splits(ctx, nil)
	if err != nil {
		return nil, err
	}
	for i := range now {
		d := letterDetail{Inner: now[i].Detail}
		at := slices.IndexFunc(restored, func(r connectors.Split) bool { return r.ID == now[i].ID })
		if at >= 0 {
			was, err := detailOf(restored[at])
			if err != nil {
				return nil, connectors.Permanent(fmt.Errorf("what was brought in of %s cannot be read: %w", now[i].ID, err))
			}
			old := restored[at]
			old.Detail = was.Inner
			if s.inner.Same == nil || s.inner.Same(old, now[i]) {
				d.Done = was.Done
			}
			now[i].MaxTime = restored[at].MaxTime
		}
		if len(d.Done) > 0 && d.Done[0][0] <= now[i].Offset {
			now[i].Offset = max(now[i].Offset, d.Done[0][1])
		}
		now[i].Detail = d.encode()
	}
	return now, nil
}

// findTopics asks the source whose records are wanted what it reads.
func (s *letterSource) findTopics(ctx context.Context) error {
	if s.only == nil {
		return nil
	}
	splits, err := s.only.Splits(ctx, nil)
	if err != nil {
		return fmt.Errorf("find out which dead letters are from it: %w", err)
	}
	s.topics = nil
	for _, sp := range splits {
		topic := sp.ID
		if i := strings.LastIndexByte(topic, '/'); i > 0 {
			s.topics = append(s.topics, topic[:i])
		}
		s.topics = append(s.topics, topic)
	}
	return nil
}

func (s *letterSource) Discover(context.Context, []connectors.Split) ([]connectors.Split, error) {
	return nil, nil
}

func (s *letterSource) Committed(context.Context, []connectors.Split) error { return nil }

func (s *letterSource) Close() error {
	if s.only != nil {
		_ = s.only.Close()
	}
	return s.inner.Source.Close()
}

// Reader makes a reader of single letters.
func (s *letterSource) Reader(env connectors.ReaderEnv, splits []connectors.Split) (connectors.Reader, error) {
	filter, err := newLetterFilter(s.filter)
	if err != nil {
		return nil, connectors.Permanent(err)
	}
	r := &letterReader{source: s, filter: filter, pool: env.Batches}
	inner := slices.Clone(splits)
	for i := range inner {
		d, err := detailOf(inner[i])
		if err != nil {
			return nil, connectors.Permanent(err)
		}
		inner[i].Detail = d.Inner
		r.splits = append(r.splits, letterSplit{id: inner[i].ID, before: d.Done})
	}
	env.Batches = connectors.NewBatchPool(idleBatches)
	r.inner, err = s.inner.Source.Reader(env, inner)
	return r, err
}

// letterReader gives out one letter at a time: its position is that of the letter, while
// the record's is the one that it had at first.
type letterReader struct {
	source *letterSource
	inner  connectors.Reader
	filter *letterFilter
	pool   *connectors.BatchPool
	splits []letterSplit

	current *connectors.Batch // of the inner reader; nil for none
	at      int               // the next record in it
}

// letterSplit is what of a split was given out: by earlier runs, and by this one.
type letterSplit struct {
	id     string
	before []span
	now    []span
}

// Poll returns the next letter that is chosen, or a position further on.
func (r *letterReader) Poll(ctx context.Context) (*connectors.Batch, error) {
	if r.current == nil {
		b, err := r.inner.Poll(ctx)
		if err != nil {
			return nil, err
		}
		r.current, r.at = b, 0
	}
	b := r.current
	for r.at < len(b.Records) {
		i := r.at
		r.at++
		next := b.Next
		if r.at < len(b.Records) {
			next = b.Records[r.at].Offset
		}
		if out := r.letter(b.Split, &b.Records[i], next); out != nil {
			return out, nil
		}
	}
	out := r.pool.Get()
	out.Size(0, 0)
	out.Split, out.Next = b.Split, b.Next
	b.Recycle()
	r.current = nil
	return out, nil
}

// letter makes the batch of one letter; nil where it is left out.
func (r *letterReader) letter(split int, rec *connectors.Record, next int64) *connectors.Batch {
	sp := &r.splits[split]
	at := rec.Offset
	if within(sp.before, at) {
		return nil
	}
	l, ok := parseLetter(rec, r.source.rows)
	if !ok {
		return nil
	}
	l.Place, l.At = sp.id, at
	switch {
	case (l.Topic == nil || l.Kind == connectors.NoRow) && !r.source.made,
		r.source.only != nil && (l.Topic == nil || !slices.Contains(r.source.topics, *l.Topic)),
		!r.filter.takes(l):
		return nil
	}
	if n := len(sp.now); n > 0 && sp.now[n-1][1] == at {
		sp.now[n-1][1] = next
	} else {
		sp.now = append(sp.now, span{at, next})
	}
	if r.source.seen != nil {
		r.source.seen(l)
	}
	out := r.pool.Get()
	out.Size(1, 0)
	own := l.record
	if l.Topic != nil {
		own = l.original()
	}
	own.Value, own.Key = bytes.Clone(own.Value), bytes.Clone(own.Key)
	headers := make([]connectors.Header, len(own.Headers))
	for i, h := range own.Headers {
		headers[i] = connectors.Header{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)}
	}
	own.Headers = headers
	out.Records[0] = own
	out.Split, out.Next = split, next
	return out
}

func within(spans []span, at int64) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s[0] <= at && at < s[1] })
}

// Add implements connectors.Reader; nothing is discovered.
func (r *letterReader) Add(splits []connectors.Split) error {
	if len(splits) > 0 {
		return connectors.Permanent(fmt.Errorf("dead letters of %s were not there at the start", splits[0].ID))
	}
	return nil
}

// Position tells with a position what was given out before it.
func (r *letterReader) Position(split int, next int64) connectors.Split {
	out := r.inner.Position(split, next)
	sp := &r.splits[split]
	done := slices.Clone(sp.before)
	for _, s := range sp.now {
		if s[0] < next {
			done = append(done, span{s[0], min(s[1], next)})
		}
	}
	out.Detail = letterDetail{Inner: out.Detail, Done: merged(done)}.encode()
	return out
}

// merged sorts spans and joins those that touch.
func merged(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a[0]-b[0], -1), 1)) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && s[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], s[1])
			continue
		}
		out = append(out, s)
	}
	return out
}

func (r *letterReader) Close() error {
	if r.current != nil {
		r.current.Recycle()
		r.current = nil
	}
	return r.inner.Close()
}

// each gives all letters of the splits to seen.
func (s *letterSource) each(ctx context.Context, restored []connectors.Split, seen func(*Letter)) error {
	splits, err := s.Splits(ctx, restored)
	if err != nil {
		return err
	}
	s.seen = seen
	r, err := s.Reader(connectors.ReaderEnv{Log: slog.New(slog.DiscardHandler), Subtasks: 1, Budget: defaultMemory / 8, Batches: connectors.NewBatchPool(idleBatches)}, splits)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it has been read
	for {
		b, err := r.Poll(ctx)
		if err == io.EOF { //nolint:errorlint // as readers give it
			return nil
		}
		if err != nil {
			return err
		}
		b.Recycle()
	}
}
