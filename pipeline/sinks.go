package pipeline

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/registry"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// sinkWriter is a task's way into one sink. Ordinary records and dead letters
// share it.
type sinkWriter struct {
	name   string
	node   *sinkNode
	index  int // among all writers of the sink
	writer connectors.Writer
	counts *operatorCounts
	dead   *deadLetters // made at the first one
	tap    *tapPlace
}

// sinkOp hands the records of one place of the graph to a sink: it evaluates the
// expressions of the sink's configuration, encodes and writes.
type sinkOp struct {
	task    *task
	to      *sinkWriter
	encode  format.Encoder
	output  format.Output // nil where the sink's values are JSON
	exprs   []sinkExpr
	changes sinkChanges
	fail    failFunc
	rows    connectors.Rows
	round   int // rows encoded at once

	evalFailed   []evalFailure
	noteEval     func(row uint16, e *expr.EvalError)
	encodeFailed []encodeFailure
	noteEncode   func(i int, err error)
}

type evalFailure struct {
	row uint16
	err *expr.EvalError
}

func newSinkOp(t *task, n *node, to *sinkWriter, fail failFunc) (*sinkOp, error) {
	opts := format.EncoderOptions{Lines: n.sink.spec.Spec.Lines}
	enc, err := format.NewEncoder(n.sink.spec.Format, n.sink.view.Layout(), opts)
	if err != nil {
		return nil, err
	}
	s := &sinkOp{task: t, to: to, encode: enc, exprs: n.sink.exprs, changes: n.sink.changes, fail: fail, round: firstRound}
	s.rows.Layout = n.sink.view.Layout()
	if t.attempt.plan.marked {
		s.rows.Headers = []connectors.Header{{Key: registry.Header}} // taken away
	}
	s.noteEval = func(row uint16, e *expr.EvalError) { s.evalFailed = append(s.evalFailed, evalFailure{row, e}) }
	s.noteEncode = func(i int, err error) { s.encodeFailed = append(s.encodeFailed, encodeFailure{i, err}) }
	if s.output, err = format.NewOutput(n.sink.spec.Format); err != nil || s.output == nil {
		return s, err
	}
	env := format.Env{Topic: fixedTopic(n.sink.spec.Config), Columns: n.sink.columns}
	t.starts = append(t.starts, start{"the format of sink " + to.name, env, s.output.Start})
	return s, nil
}

// fixedTopic is the topic that a sink writes to, where its configuration has one and no
// expression chooses it.
func fixedTopic(config any) string {
	v := reflect.ValueOf(config).Elem()
	for _, f := range connectors.Fields(v.Type()) {
		if f.Key != "topic" {
			continue
		}
		switch topic := v.Field(f.Index).Interface().(type) {
		case string:
			return topic
		case connectors.Template:
			name, _ := topic.Fixed()
			return name
		}
	}
	return ""
}

func (s *sinkOp) receive(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	if s.to.node.passedBy != nil {
		sel = s.to.node.reached(b, sel)
	}
	s.to.counts.in.Add(int64(len(sel)))
	for i := range s.exprs {
		x := &s.exprs[i]
		sel = x.prog.Fill(s.task.exprs, b, sel, x.slot, s.noteEval)
		for _, f := range s.evalFailed {
			if b.Records[f.row].Op.Retracts() {
				continue // the row that it takes back was refused too
			}
			e := recordError(b, f.row, s.to.name, f.err.Kind, f.err.Reason)
			e.Expr = x.text
			if err := s.fail(ctx, b, f.row, e); err != nil {
				return err
			}
		}
		s.evalFailed = s.evalFailed[:0]
	}
	sel = s.changes.rows(b, sel)
	for len(sel) > 0 {
		n := min(s.round, len(sel))
		if err := s.some(ctx, b, sel[:n:n]); err != nil {
			return err
		}
		sel = sel[n:]
	}
	return nil
}

// Encoded values of as many rows as make about roundBytes are in memory at once.
const (
	firstRound = 64
	roundBytes = 4 << 20
)

// some encodes and writes rows, and gives the memory of their values back.
func (s *sinkOp) some(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	mark, made := b.Arena.Mark(), b.Arena.Made()
	s.rows.Batch, s.rows.Sel = b, sel
	s.encode.Encode(&s.rows, s.noteEncode)
	switch made = b.Arena.Made() - made; {
	case made > roundBytes:
		s.round = max(1, s.round/4)
	case made < roundBytes/4 && len(sel) == s.round:
		s.round = min(2*s.round, connectors.MaxBatch)
	}
	s.encodeFailed = s.changes.tombstones(&s.rows, s.encodeFailed)
	if len(s.encodeFailed) > 0 {
		if err := s.dropUnencoded(ctx); err != nil {
			return err
		}
	}
	s.to.tap.written(&s.rows)
	if s.output != nil && len(s.rows.Sel) > 0 {
		if err := s.convert(ctx); err != nil {
			return err
		}
	}
	err := s.write(ctx)
	b.Arena.Rewind(mark)
	return err
}

// convert turns the values from JSON into the sink's own format.
func (s *sinkOp) convert(ctx context.Context) error {
	if err := s.output.Encode(ctx, &s.rows, s.noteEncode); err != nil {
		return fmt.Errorf("sink %s: encode: %w", s.to.name, err)
	}
	if len(s.encodeFailed) > 0 {
		return s.dropUnencoded(ctx)
	}
	return nil
}

// dropUnencoded takes the rows that have no encoded form out.
func (s *sinkOp) dropUnencoded(ctx context.Context) error {
	failed := s.encodeFailed
	n := 0
	for i, row := range s.rows.Sel {
		if len(failed) > 0 && failed[0].at == i {
			if s.rows.Record(i).Op.Retracts() {
				failed = failed[1:]
				continue
			}
			e := recordError(s.rows.Batch, row, s.to.name, "encode", failed[0].err.Error())
			failed = failed[1:]
			if err := s.fail(ctx, s.rows.Batch, row, e); err != nil {
				return err
			}
			continue
		}
		s.rows.Sel[n], s.rows.Values[n] = row, s.rows.Values[i]
		n++
	}
	s.rows.Sel, s.rows.Values = s.rows.Sel[:n], s.rows.Values[:n]
	s.encodeFailed = s.encodeFailed[:0]
	return nil
}

func (s *sinkOp) write(ctx context.Context) error {
	n := len(s.rows.Sel)
	if n == 0 {
		return nil
	}
	bytes := 0
	for _, v := range s.rows.Values {
		bytes += len(v)
	}
	s.to.counts.bytes.Add(int64(bytes))
	err := s.to.writer.Write(ctx, &s.rows)
	var refused *connectors.RowsError
	if errors.As(err, &refused) {
		for _, r := range refused.Rows {
			row := s.rows.Sel[r.Row]
			if err := s.fail(ctx, s.rows.Batch, row, recordError(s.rows.Batch, row, s.to.name, r.Kind, r.Reason)); err != nil {
				return err
			}
		}
		n -= len(refused.Rows)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("sink %s: write: %w", s.to.name, err)
	}
	s.task.counts.written.Add(int64(n))
	s.to.counts.out[0].Add(int64(n))
	return nil
}

// recordError says why a row cannot be handled.
func recordError(b *connectors.Batch, row uint16, step, kind, reason string) *connectors.RecordError {
	r := &b.Records[row]
	return &connectors.RecordError{Origin: r.Origin, Offset: r.Offset, Step: step, Kind: kind, Reason: reason}
}
