package pipeline

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// failer makes the function that on_error is at one place of a task, where records
// look like view.
func (t *task) failer(step string, rule spec.OnError, view *transform.View) failFunc {
	limit := t.attempt.limits.of(step, rule)
	return func(ctx context.Context, b *connectors.Batch, row uint16, e *connectors.RecordError) error {
		if e.Step == "" {
			e.Step = step
		}
		if err := t.bear(rule, limit, e); err != nil || rule.Action != spec.DeadLetter {
			return err
		}
		value, err := letterValue(view, b, row)
		if err != nil {
			return connectors.Permanent(fmt.Errorf("dead letter of %w: %w", e, err))
		}
		rec := b.Records[row]
		rec.Value = value
		return t.deadLetter(ctx, rule.Sink, rec, e)
	}
}

// bear counts a record that failed, or ends the run where the rule does not bear it.
func (t *task) bear(rule spec.OnError, limit *errorLimit, e *connectors.RecordError) error {
	e.Expr, e.Reason = t.attempt.plan.Spec.Mask(e.Expr), t.attempt.plan.Spec.Mask(e.Reason)
	if rule.Action != spec.Skip && rule.Action != spec.DeadLetter {
		t.attempt.remember(e, spec.Fail)
		return connectors.Permanent(e)
	}
	if !limit.take(time.Now()) {
		t.attempt.remember(e, spec.Fail)
		return connectors.Permanent(fmt.Errorf("more than %d records failed within %s (max_errors), the last: %w", rule.Max, rule.Per, e))
	}
	t.attempt.counts.failures.add(e.Step, e.Kind)
	t.attempt.failures.add(e.Step, e.Kind)
	t.attempt.remember(e, rule.Action)
	if rule.Action == spec.Skip {
		t.counts.skipped.Add(1)
	} else {
		t.counts.dead.Add(1)
	}
	return nil
}

// letterValue is the value of a dead letter: as the source gave it, or as it would
// be written where a step made the record.
func letterValue(view *transform.View, b *connectors.Batch, row uint16) ([]byte, error) {
	if b.Originals != nil || b.Records[row].Origin != nil {
		return b.Original(int(row)), nil
	}
	enc, err := format.NewEncoder(connectors.FormatConfig{}, view.Layout(), format.EncoderOptions{})
	if err != nil {
		return nil, err
	}
	rows := connectors.Rows{Batch: b, Sel: []uint16{row}, Layout: view.Layout()}
	enc.Encode(&rows, func(_ int, failed error) { err = failed })
	return rows.Values[0], err
}

// limits holds how many failures max_errors bears, over all subtasks of a step.
type limits struct {
	mu     sync.Mutex
	bySpot map[string]*errorLimit
}

func (l *limits) of(step string, rule spec.OnError) *errorLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bySpot == nil {
		l.bySpot = map[string]*errorLimit{}
	}
	if l.bySpot[step] == nil {
		l.bySpot[step] = &errorLimit{most: rule.Max, per: rule.Per}
	}
	return l.bySpot[step]
}

// errorLimit bears a number of failures within any span of a length.
type errorLimit struct {
	mu   sync.Mutex
	most int
	per  time.Duration
	at   []time.Time // of the last most failures, a ring
	next int
}

func (l *errorLimit) take(now time.Time) bool {
	if l.most == 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.at) < l.most {
		l.at = append(l.at, now)
		return true
	}
	oldest := l.at[l.next]
	if now.Sub(oldest) < l.per {
		return false
	}
	l.at[l.next] = now
	l.next = (l.next + 1) % l.most
	return true
}

// deadLetters makes the rows of dead letters for one writer.
type deadLetters struct {
	batch connectors.Batch
	rows  connectors.Rows
}

// deadLetter writes a record that could not be handled to a sink: as it came,
// with what went wrong in headers, or as a row of a table.
func (t *task) deadLetter(ctx context.Context, sink string, rec connectors.Record, e *connectors.RecordError) error {
	w := t.sinkWriter(sink)
	if w.dead == nil {
		w.dead = &deadLetters{}
		w.dead.rows = connectors.Rows{
			Batch: &w.dead.batch, Sel: []uint16{0}, Values: make([][]byte, 1),
			Layout: &connectors.Layout{}, DeadLetter: make([]*connectors.RecordError, 1),
		}
	}
	d := w.dead
	d.batch.Size(1, w.node.stride)
	if w.node.spec.Spec.DeadLetterRows {
		value, err := deadLetterRow(&rec, e)
		if err != nil {
			return connectors.Permanent(fmt.Errorf("dead letter of %w: %w", e, err))
		}
		rec.Value = value
	} else {
		rec.Headers = append(rec.Headers[:len(rec.Headers):len(rec.Headers)], deadLetterHeaders(e)...)
	}
	d.batch.Records[0], d.rows.Values[0], d.rows.DeadLetter[0] = rec, rec.Value, e
	w.counts.in.Add(1)
	w.counts.bytes.Add(int64(len(rec.Value)))
	w.tap.written(&d.rows)
	err := w.writer.Write(ctx, &d.rows)
	var refused *connectors.RowsError
	if errors.As(err, &refused) {
		return connectors.Permanent(fmt.Errorf("sink %s refuses the dead letter of %w: %w", sink, e, refused))
	}
	if err != nil {
		return fmt.Errorf("sink %s: write: %w", sink, err)
	}
	w.counts.out[0].Add(1)
	return nil
}

func deadLetterHeaders(e *connectors.RecordError) []connectors.Header {
	h := []connectors.Header{
		{Key: "dead_letter.step", Value: []byte(e.Step)},
		{Key: "dead_letter.reason", Value: []byte(e.Reason)},
		{Key: "dead_letter.kind", Value: []byte(e.Kind)},
		{Key: "dead_letter.time", Value: []byte(time.Now().UTC().Format(time.RFC3339Nano))},
		{Key: "dead_letter.attempt", Value: strconv.AppendInt(nil, int64(attemptOf(e)), 10)},
	}
	if e.Expr != "" {
		h = append(h, connectors.Header{Key: "dead_letter.expression", Value: []byte(e.Expr)})
	}
	if e.Origin != nil {
		h = append(h,
			connectors.Header{Key: "dead_letter.topic", Value: []byte(e.Origin.Topic)},
			connectors.Header{Key: "dead_letter.partition", Value: strconv.AppendInt(nil, int64(e.Origin.Partition), 10)},
			connectors.Header{Key: "dead_letter.offset", Value: strconv.AppendInt(nil, e.Offset, 10)})
	}
	return h
}

// deadLetterRow is the JSON object that stands for a dead letter in a table.
func deadLetterRow(r *connectors.Record, e *connectors.RecordError) ([]byte, error) {
	row := letterRow{
		Headers: []letterHeader{}, Step: e.Step, Expression: e.Expr, Reason: e.Reason, Kind: e.Kind, Time: time.Now().UTC(),
		Timestamp: rowTime(r.Time), Attempt: attemptOf(e),
	}
	if e.Origin != nil {
		row.Topic, row.Partition, row.Offset = &e.Origin.Topic, &e.Origin.Partition, &e.Offset
	}
	row.Key, row.KeyBase64 = textOrBase64(r.Key)
	row.Value, row.Base64 = textOrBase64(r.Value)
	for _, h := range r.Headers {
		out := letterHeader{Key: h.Key}
		out.Value, out.Base64 = textOrBase64(h.Value)
		row.Headers = append(row.Headers, out)
	}
	return json.Marshal(row)
}

// letterRow is a dead letter as a row of a table.
type letterRow struct {
	Topic      *string        `json:"topic"`
	Partition  *int32         `json:"partition"`
	Offset     *int64         `json:"offset"`
	Key        *string        `json:"key"`
	KeyBase64  bool           `json:"key_base64,omitempty"`
	Value      *string        `json:"value"`
	Base64     bool           `json:"value_base64,omitempty"`
	Headers    []letterHeader `json:"headers"`
	Timestamp  *time.Time     `json:"timestamp"` // of the record; nil where no text has room for it
	Step       string         `json:"step"`
	Expression string         `json:"expression"`
	Reason     string         `json:"reason"`
	Kind       string         `json:"kind"`
	Time       time.Time      `json:"time"`
	Attempt    int            `json:"attempt"`
}

// rowTime is an event time for a text, which has room for four digits of a year.
func rowTime(millis int64) *time.Time {
	t := time.UnixMilli(millis).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return nil
	}
	return &t
}

// attemptOf tells how often a record has failed, this time included.
func attemptOf(e *connectors.RecordError) int {
	if e.Origin != nil && e.Origin.Letter != nil {
		return e.Origin.Letter.Attempt + 1
	}
	return 1
}

// letterHeader is one header in the row of a dead letter; headers are a list, in
// which a key can come twice and a value can be null.
type letterHeader struct {
	Key    string  `json:"key"`
	Value  *string `json:"value"`
	Base64 bool    `json:"base64,omitempty"`
}

func textOrBase64(b []byte) (text *string, encoded bool) {
	if b == nil {
		return nil, false
	}
	s := string(b)
	if !utf8.ValidString(s) {
		s, encoded = base64.StdEncoding.EncodeToString(b), true
	}
	return &s, encoded
}
