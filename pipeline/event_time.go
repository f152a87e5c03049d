package pipeline

import (
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// tellTime tells the receivers how far event time has come in the source's splits.
// The end of time is told once the reader says that it is at its end. After a stop
// nothing moves any more.
func (t *task) tellTime() {
	if t.reader.ended || t.reader.waits() {
		return
	}
	watermark, idle := t.reader.clock.current()
	t.tell(mark{time: watermark, idle: idle})
}

// tell hands a mark to all receivers, unless they know.
func (t *task) tell(m mark) {
	if m == t.told {
		return
	}
	t.told = m
	t.shown.watermark.Store(m.time)
	t.shown.idle.Store(m.idle)
	for _, x := range t.out {
		x.mark(m)
	}
}

// eventTime evaluates the source's timestamp.
func (t *task) eventTime(b *connectors.Batch, rows []uint16) []uint16 {
	if t.chain.source == nil || t.chain.source.timestamp == nil {
		return rows
	}
	prog := t.chain.source.timestamp
	ok := rows[:0]
	for _, row := range rows {
		if b.Records[row].Tombstone() {
			ok = append(ok, row)
			continue
		}
		v, failed := prog.Eval(t.exprs, b, int(row))
		ms, reason := epochMillis(v)
		if failed != nil {
			reason = failed.Reason
		}
		if reason != "" {
			e := recordError(b, row, t.chain.name, "timestamp", reason)
			e.Expr = prog.Text()
			t.refused = append(t.refused, refusal{row, e})
			continue
		}
		b.Records[row].Time = ms
		ok = append(ok, row)
	}
	return ok
}

// epochMillis reads an event time: a timestamp, epoch milliseconds, or RFC 3339
// text. reason says why it is none.
func epochMillis(v connectors.Value) (ms int64, reason string) {
	switch v.Kind() {
	case connectors.Int:
		return v.Int(), ""
	case connectors.Timestamp:
		return v.Time().UnixMilli(), ""
	case connectors.String:
		t, err := time.Parse(time.RFC3339Nano, v.Text())
		if err != nil {
			return 0, "the event time is text that is no RFC 3339 time"
		}
		return t.UnixMilli(), ""
	}
	return 0, fmt.Sprintf("the event time is of type %s: a timestamp, epoch milliseconds or RFC 3339 text is wanted", v.Kind())
}
