package elasticsearch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/immediate"
	"github.com/sluice-etl/sluice/connectors/retry"
)

// writer implements connectors.Writer.
type writer struct {
	immediate.Idle
	sink    *sink
	ids     immediate.IDs
	actions []action // of the rows of the Write under way
	name    []byte
}

// action is the lines of one row in a bulk request.
type action struct {
	op   string
	text []byte
}

// Write sends the rows and waits for all answers.
func (w *writer) Write(ctx context.Context, rows *connectors.Rows) error {
	w.actions = append(w.actions[:0], make([]action, rows.Len())...)
	items := make([]immediate.Item, 0, rows.Len())
	var refused []connectors.RowError
	for i := range rows.Sel {
		item, kind, err := w.prepare(rows, i)
		if err != nil {
			refused = append(refused, connectors.RowError{Row: i, Kind: kind, Reason: err.Error()})
			continue
		}
		items = append(items, item)
	}
	return immediate.Merge(refused, w.sink.cfg.Batch.Write(ctx, items, w.sink.cfg.Concurrency, w.send))
}

// prepare makes the lines of a row, or says why there are none.
func (w *writer) prepare(rows *connectors.Rows, i int) (item immediate.Item, kind string, err error) {
	cfg, value := w.sink.cfg, rows.Values[i]
	index, err := w.index(rows, i)
	if err != nil {
		return item, "index", err
	}
	id, err := w.id(rows, i)
	if err != nil {
		return item, "id", err
	}
	op := cfg.Operation
	if value == nil {
		switch {
		case rows.DeadLetter != nil || !cfg.ID.Set():
			return item, "id", errors.New("the record has no value (a tombstone), and without id there is no document that it could delete")
		case op == opCreate:
			return item, "operation", errors.New("the record has no value (a tombstone), and operation create deletes nothing")
		}
		op = opDelete
	} else if !json.Valid(value) || bytes.TrimLeft(value, " \t\r\n")[0] != '{' {
		return item, "value", errors.New("a document is an object of JSON")
	}
	line, err := w.line(rows, i, op, index, id)
	if err != nil {
		return item, "version", err
	}
	w.actions[i] = action{op, body(line, op, value)}
	item = immediate.Item{Row: i, Size: len(w.actions[i].text)}
	if id != "" {
		item.Key = index + "\x00" + id
	}
	return item, "", nil
}

// body puts the document behind its action.
func body(line []byte, op string, value []byte) []byte {
	line = append(line, '\n')
	if op == opDelete {
		return line
	}
	if op == opUpdate {
		line = append(line, `{"doc":`...)
	}
	at := len(line)
	line = append(line, value...)
	for k := at; k < len(line); k++ {
		if line[k] == '\n' || line[k] == '\r' { // between tokens only: within text JSON has none
			line[k] = ' '
		}
	}
	if op == opUpdate {
		line = append(line, `,"doc_as_upsert":true}`...)
	}
	return append(line, '\n')
}

func (w *writer) index(rows *connectors.Rows, i int) (string, error) {
	t := &w.sink.cfg.Index
	if name, fixed := t.Fixed(); fixed {
		return name, nil
	}
	if rows.DeadLetter != nil {
		return "", errors.New("a dead letter names no index: give the sink of dead letters a fixed one")
	}
	var err error
	if w.name, err = t.Append(w.name[:0], rows, i, immediate.Text); err != nil {
		return "", err
	}
	if reason := checkIndex(string(w.name)); reason != "" {
		return "", fmt.Errorf("the index that the record names cannot be: %s", reason)
	}
	return string(w.name), nil
}

const mostID = 512 // bytes, the cluster's limit

// id is the document's. A dead letter of nowhere has none, and gets one of the cluster.
func (w *writer) id(rows *connectors.Rows, i int) (string, error) {
	cfg := w.sink.cfg
	var id []byte
	if cfg.ID.Set() && rows.DeadLetter == nil {
		var err error
		if id, err = immediate.Text(nil, rows.Slot(i, cfg.ID.Slot)); err != nil {
			return "", fmt.Errorf("`%s` gives no id: %w", cfg.ID.Text, err)
		}
	} else {
		var ok bool
		if id, ok = w.ids.Append(nil, rows.Record(i)); !ok && rows.DeadLetter == nil {
			return "", errors.New("the record was made by a step and has no topic, partition and offset to be known by: give the sink an id")
		} else if !ok {
			return "", nil
		}
	}
	if len(id) == 0 || len(id) > mostID {
		return "", fmt.Errorf("an id has 1 to %d bytes, this one has %d", mostID, len(id))
	}
	return string(id), nil
}

// line is the line of an action.
func (w *writer) line(rows *connectors.Rows, i int, op, index, id string) ([]byte, error) {
	cfg := w.sink.cfg
	out := append([]byte(`{"`), op...)
	out = format.AppendString(append(out, `":{"_index":`...), index)
	if id != "" {
		out = format.AppendString(append(out, `,"_id":`...), id)
	}
	if op == opUpdate {
		out = append(out, `,"retry_on_conflict":3`...)
	}
	if rows.DeadLetter == nil && cfg.Routing.Set() {
		text, err := immediate.Text(nil, rows.Slot(i, cfg.Routing.Slot))
		if err != nil {
			return nil, fmt.Errorf("`%s` gives no routing: %w", cfg.Routing.Text, err)
		}
		out = format.AppendString(append(out, `,"routing":`...), string(text))
	}
	if rows.DeadLetter == nil && cfg.Version.Set() {
		v := rows.Slot(i, cfg.Version.Slot)
		if v.Kind() != connectors.Int || v.Int() < 0 {
			return nil, fmt.Errorf("`%s` gives no version: an integer from 0 on is wanted", cfg.Version.Text)
		}
		out = strconv.AppendInt(append(out, `,"version_type":"external_gte","version":`...), v.Int(), 10)
	}
	return append(out, "}}"...), nil
}

// send makes the bulk request of some rows; one that is too large in parts.
func (w *writer) send(ctx context.Context, items []immediate.Item) error {
	return immediate.Halve(ctx, items, w.request)
}

// request sends some rows in one bulk request, and those again that the cluster had no
// room for. What the cluster does not finish in time is tried with fewer rows.
func (w *writer) request(ctx context.Context, items []immediate.Item) error {
	var refused connectors.RowsError
	pending, most := items, len(items)
	policy := retry.Policy{Log: w.sink.env.Log, What: "bulk request", Watch: &w.sink.Watch}
	err := policy.Do(ctx, func(ctx context.Context) error {
		for len(pending) > 0 {
			part := pending[:min(most, len(pending))]
			answers, err := w.bulk(ctx, part)
			if err != nil {
				var late net.Error
				if errors.As(err, &late) && late.Timeout() {
					most = max(1, most/2)
				}
				return immediate.Final(err)
			}
			again, err := w.sort(part, answers, &refused)
			pending = append(again, pending[len(part):]...)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(refused.Rows) == 0 {
		return err
	}
	return &refused
}

func (w *writer) bulk(ctx context.Context, items []immediate.Item) ([]item, error) {
	var text []byte
	for _, it := range items {
		text = append(text, w.actions[it.Row].text...)
	}
	if w.sink.client.gzip {
		text = gzipped(text)
	}
	w.sink.failpoint("elasticsearch.bulk.before")
	defer w.sink.failpoint("elasticsearch.bulk.after")
	return w.sink.client.bulk(ctx, text, len(items))
}

// sort takes the answers to a request: it notes what is refused, and returns what to send
// again and why. Behind an action that goes again, all of its id go again, for the last to win.
func (w *writer) sort(items []immediate.Item, answers []item, refused *connectors.RowsError) (again []immediate.Item, err error) {
	waits := map[string]bool{}
	for k, it := range items {
		if waits[it.Key] {
			again = append(again, it)
			continue
		}
		switch verdict, reason := w.judge(w.actions[it.Row].op, &answers[k]); verdict {
		case taken:
		case refusal:
			refused.Rows = append(refused.Rows, connectors.RowError{Row: it.Row, Kind: "refused", Reason: reason})
		case later:
			if err == nil {
				err = errors.New(reason)
			}
			again = append(again, it)
			if it.Key != "" {
				waits[it.Key] = true
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("%d of %d documents, the first: %w", len(again), len(items), err)
	}
	return again, err
}

type verdict uint8

const (
	taken verdict = iota
	refusal
	later
)

// judge says what the answer to one action means.
func (w *writer) judge(op string, a *item) (verdict, string) {
	if a.Error == nil && (a.Status < 300 || op == opDelete && a.Status == http.StatusNotFound) {
		return taken, ""
	}
	reason := fmt.Sprintf("status %d", a.Status)
	kind := ""
	if e := a.Error; e != nil {
		kind = e.Type
		reason = e.Type + ": " + e.Reason
		if e.CausedBy != nil && e.CausedBy.Reason != "" {
			reason += ": " + e.CausedBy.Reason
		}
	}
	reason = short(data.ReplaceAllString(reason, ""))
	switch {
	case a.Status == http.StatusConflict:
		if op == opUpdate {
			return later, reason // somebody else changed the document meanwhile
		}
		if w.sink.cfg.OnConflict == conflictSkip || op == opDelete {
			return taken, ""
		}
		return refusal, reason
	case op == opDelete && kind == "index_not_found_exception":
		return taken, ""
	case a.Status == http.StatusTooManyRequests || a.Status == http.StatusRequestTimeout || a.Status >= 500:
		return later, reason
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden:
		// A full disk blocks indexes so, and credentials come back: neither is the record's fault.
		return later, reason
	case kind == "validation_exception" && strings.Contains(reason, "shards"):
		return later, reason // the cluster has as many as it may have
	}
	return refusal, "the cluster refuses the document: " + reason
}

// data is the part of a reason that repeats the record's own.
var data = regexp.MustCompile(`\.? ?Preview of field's value: '.*?'| in document with id '.*?'`)
