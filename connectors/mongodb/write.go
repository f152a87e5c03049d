package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/immediate"
	"github.com/sluice-etl/sluice/connectors/retry"
)

// writer implements connectors.Writer.
type writer struct {
	immediate.Idle
	sink   *sink
	ids    immediate.IDs
	models []mongo.WriteModel // of the rows of the Write under way
	name   []byte
}

// Write sends the rows and waits for all answers.
func (w *writer) Write(ctx context.Context, rows *connectors.Rows) error {
	w.models = append(w.models[:0], make([]mongo.WriteModel, rows.Len())...)
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

// prepare makes the write of a row, or says why there is none.
func (w *writer) prepare(rows *connectors.Rows, i int) (item immediate.Item, kind string, err error) {
	item.Row = i
	if item.Group, err = w.collection(rows, i); err != nil {
		return item, "collection", err
	}
	tombstone := rows.Values[i] == nil
	var doc bson.D
	if !tombstone {
		if doc, err = w.sink.docs.document(rows.Values[i]); err != nil {
			return item, "value", err
		}
	}
	filter, err := w.filter(rows, i, &doc)
	if err != nil {
		return item, "id", err
	}
	at, err := bson.Marshal(filter)
	if err != nil {
		return item, "id", err
	}
	item.Key = item.Group + "\x00" + string(at)
	if tombstone {
		item.Size = len(at)
		w.models[i] = mongo.NewDeleteOneModel().SetFilter(bson.Raw(at))
		return item, "", nil
	}
	raw, err := bson.Marshal(doc)
	if err == nil && len(raw) > mostBytes {
		err = fmt.Errorf("the document has %d bytes, and MongoDB takes 16 MiB at most", len(raw))
	}
	if err != nil {
		return item, "value", err
	}
	item.Size = len(raw) + len(at)
	w.models[i], err = w.model(at, raw, doc)
	return item, "value", err
}

// model is the write of a document.
func (w *writer) model(filter, raw bson.Raw, doc bson.D) (mongo.WriteModel, error) {
	switch w.sink.cfg.Operation {
	case opInsert:
		return mongo.NewInsertOneModel().SetDocument(raw), nil
	case opUpdate:
		for _, f := range doc {
			if strings.Contains(f.Key, ".") || strings.HasPrefix(f.Key, "$") {
				return nil, fmt.Errorf("field %q: a name with . or $ has a meaning of its own in an update: rename it, or write operation: replace", f.Key)
			}
		}
		set := slices.DeleteFunc(doc, func(f bson.E) bool { return f.Key == idField })
		if len(set) == 0 {
			return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(bson.D{{Key: "$setOnInsert", Value: bson.D{}}}).SetUpsert(true), nil
		}
		return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(bson.D{{Key: "$set", Value: set}}).SetUpsert(true), nil
	}
	return mongo.NewReplaceOneModel().SetFilter(filter).SetReplacement(raw).SetUpsert(true), nil
}

func (w *writer) collection(rows *connectors.Rows, i int) (string, error) {
	t := &w.sink.cfg.Collection
	if name, fixed := t.Fixed(); fixed {
		return name, nil
	}
	if rows.DeadLetter != nil {
		return "", errors.New("a dead letter names no collection: give the sink of dead letters a fixed one")
	}
	var err error
	if w.name, err = t.Append(w.name[:0], rows, i, immediate.Text); err != nil {
		return "", err
	}
	if reason := checkCollection(string(w.name)); reason != "" {
		return "", fmt.Errorf("the collection that the record names cannot be: %s", reason)
	}
	return string(w.name), nil
}

// filter finds the document of a row, and puts its id into it. doc is nil for a tombstone.
func (w *writer) filter(rows *connectors.Rows, i int, doc *bson.D) (bson.D, error) {
	cfg := w.sink.cfg
	if len(cfg.Key) > 0 && rows.DeadLetter == nil {
		return w.byKey(*doc)
	}
	if cfg.ID.Set() && rows.DeadLetter == nil {
		id, err := idOf(rows.Slot(i, cfg.ID.Slot))
		if text, ok := id.(string); ok && err == nil && slices.Contains(cfg.ObjectIDs, idField) {
			if id, err = bson.ObjectIDFromHex(text); err != nil {
				err = errors.New("an ObjectId of 24 hexadecimal digits is wanted")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("`%s` gives no id: %w", cfg.ID.Text, err)
		}
		if *doc == nil {
			if cfg.Operation == opInsert {
				return nil, errors.New("the record has no value (a tombstone), and operation insert deletes nothing")
			}
			return bson.D{{Key: idField, Value: id}}, nil
		}
		return withID(doc, id), nil
	}
	if *doc == nil {
		return nil, errors.New("the record has no value (a tombstone), and without id there is no document that it could delete")
	}
	if at := slices.IndexFunc(*doc, func(f bson.E) bool { return f.Key == idField }); at >= 0 && (*doc)[at].Value != nil {
		return bson.D{(*doc)[at]}, nil
	}
	id, ok := w.ids.Append(nil, rows.Record(i))
	switch {
	case ok:
		return withID(doc, string(id)), nil
	case rows.DeadLetter != nil: // one of nowhere
		return withID(doc, bson.NewObjectID()), nil
	}
	return nil, errors.New("the record was made by a step and has no topic, partition and offset to be known by: give the sink an id or key")
}

// withID makes id the first field of a document.
func withID(doc *bson.D, id any) bson.D {
	field := bson.E{Key: idField, Value: id}
	rest := slices.DeleteFunc(*doc, func(f bson.E) bool { return f.Key == idField })
	*doc = append(bson.D{field}, rest...)
	return bson.D{field}
}

// byKey finds a document by fields of the record.
func (w *writer) byKey(doc bson.D) (bson.D, error) {
	if doc == nil {
		return nil, errors.New("the record has no value (a tombstone), and so none of the fields of key: use id instead")
	}
	out := make(bson.D, 0, len(w.sink.cfg.Key))
	for _, name := range w.sink.cfg.Key {
		at := slices.IndexFunc(doc, func(f bson.E) bool { return f.Key == name })
		if at < 0 || doc[at].Value == nil {
			return nil, fmt.Errorf("the record has no field %s, which is a part of key", name)
		}
		switch doc[at].Value.(type) {
		case bson.D, bson.A:
			return nil, fmt.Errorf("field %s is a part of key, and cannot be a map or list", name)
		}
		out = append(out, doc[at])
	}
	return out, nil
}

// send writes some rows, again and again until they are taken or refused. A write that the
// server does not finish in time is tried with fewer rows.
func (w *writer) send(ctx context.Context, items []immediate.Item) error {
	var refused connectors.RowsError
	most := len(items)
	policy := retry.Policy{Log: w.sink.env.Log, What: "bulk write", Watch: &w.sink.Watch}
	err := policy.Do(ctx, func(ctx context.Context) error {
		for len(items) > 0 {
			done, reason, err := w.bulk(ctx, items[:min(most, len(items))])
			items = items[done:]
			if err != nil {
				if mongo.IsTimeout(err) {
					most = max(1, most/2)
				}
				return err
			}
			if reason != "" {
				refused.Rows = append(refused.Rows, connectors.RowError{Row: items[0].Row, Kind: "refused", Reason: reason})
				items = items[1:]
			}
		}
		return nil
	})
	if err != nil || len(refused.Rows) == 0 {
		return err
	}
	return &refused
}

// bulk makes one bulk write, in the order of the rows. done is how many are written before
// the one that has a reason, or an error that passes.
func (w *writer) bulk(ctx context.Context, items []immediate.Item) (done int, reason string, err error) {
	models := make([]mongo.WriteModel, len(items))
	for k, item := range items {
		models[k] = w.models[item.Row]
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.sink.cfg.Timeout))
	defer cancel()
	to := w.sink.db.Collection(items[0].Group)
	w.sink.failpoint("mongodb.write.before")
	_, err = to.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
	w.sink.failpoint("mongodb.write.after")
	if err == nil {
		return len(items), "", nil
	}
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || len(bulk.WriteErrors) == 0 {
		// Nobody knows what is written, or it is not where it should be: all goes again.
		return 0, "", fmt.Errorf("write to MongoDB: %w", err)
	}
	first := bulk.WriteErrors[0]
	done = first.Index
	if bulk.WriteConcernError != nil && done > 0 {
		return 0, "", fmt.Errorf("write to MongoDB: %s", bulk.WriteConcernError.Message)
	}
	if passes(first.Code) {
		return done, "", fmt.Errorf("write to MongoDB: %s", short(first.Message))
	}
	if first.Code == codeDuplicate {
		there, err := w.there(ctx, to, &first.WriteError, models[done])
		switch {
		case err != nil:
			return done, "", err
		case there && w.sink.cfg.Operation == opInsert:
			return done + 1, "", nil // it is there already, of an earlier try or run
		case there:
			return done, "", errors.New("write to MongoDB: another process added the document at the same moment")
		}
	}
	return done, "MongoDB refuses the document: " + short(first.Message), nil
}

const codeDuplicate = 11000

// there reports whether a duplicate is one of the _id, not of another unique index. Servers
// that do not say which index it is are asked for the document.
func (w *writer) there(ctx context.Context, to *mongo.Collection, e *mongo.WriteError, model mongo.WriteModel) (bool, error) {
	if keys, ok := e.Raw.Lookup("keyPattern").DocumentOK(); ok {
		_, err := keys.LookupErr(idField)
		return err == nil, nil
	}
	if strings.Contains(e.Message, "index: ") {
		return strings.Contains(e.Message, "index: _id_ "), nil
	}
	insert, ok := model.(*mongo.InsertOneModel)
	if !ok {
		return false, nil
	}
	doc, ok := insert.Document.(bson.Raw)
	if !ok {
		return false, nil
	}
	err := to.FindOne(ctx, bson.D{{Key: idField, Value: doc.Lookup(idField)}}, options.FindOne().SetProjection(bson.D{{Key: idField, Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	return err == nil, err
}

// passing are codes that say nothing of a document: of elections, shutdowns, full disks,
// overload, moves of chunks, lost connections and rights.
var passing = []int{
	6, 7, 13, 18, 24, 43, 46, 50, 63, 64, 89, 91, 112, 117, 133, 134, 149, 150, 189, 202, 234, 262, 317, 358, 384, 391, 462, 9001,
	10058, 10107, 11600, 11602, 13388, 13435, 13436, 14031,
}

func passes(code int) bool { return slices.Contains(passing, code) }

// denied reports whether the server does not know or let in the user.
func denied(err error) bool {
	var s mongo.ServerError
	if errors.As(err, &s) && (s.HasErrorCode(13) || s.HasErrorCode(18)) {
		return true
	}
	return strings.Contains(err.Error(), "auth error")
}

const mostQuoted = 300

// short is the beginning of what the server says, without the values of a duplicate key.
func short(text string) string {
	text, _, _ = strings.Cut(text, " dup key:")
	if len(text) > mostQuoted {
		text = text[:mostQuoted] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
