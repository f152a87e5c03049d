package mongodb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

// server speaks as much of MongoDB's protocol as a sink needs, in memory and over pipes.
type server struct {
	mu     sync.Mutex
	wg     sync.WaitGroup
	docs   map[string][]bson.D
	places map[string]int
	writes int
	down   func() bool
	// meet refuses a document of a write by a code; 0 for none.
	meet func(write, index int, doc bson.D) int32
	lose func(write int) bool // executed, not answered
	// rule is the code of a whole command.
	rule func(write int) int32
	slow int // documents of a write that are written in time, 0 for any
}

func newServer(t *testing.T) *server {
	s := &server{docs: map[string][]bson.D{}, places: map[string]int{}}
	t.Cleanup(s.wg.Wait)
	return s
}

// DialContext makes a connection.
func (s *server) DialContext(context.Context, string, string) (net.Conn, error) {
	if s.down != nil && s.down() {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	s.wg.Go(func() {
		defer func() { _ = ours.Close() }()
		for s.answer(ours) == nil {
			continue
		}
	})
	return theirs, nil
}

// network has the hooks of the contract: the server is away, or loses replies to writes.
func (s *server) network() *connectortest.Network {
	var mu sync.Mutex
	var away bool
	var last, lost int // writes that were answered or lost, and the one to lose
	s.down = func() bool {
		mu.Lock()
		defer mu.Unlock()
		return away
	}
	s.lose = func(write int) bool {
		mu.Lock()
		defer mu.Unlock()
		last = write
		return write == lost
	}
	locked := func(do func()) {
		mu.Lock()
		defer mu.Unlock()
		do()
	}
	return &connectortest.Network{
		Down:     func(down bool) { locked(func() { away = down }) },
		Requests: func() (n int) { locked(func() { n = last }); return n },
		LoseReply: func(n int) {
			locked(func() {
				if lost = 0; n > 0 {
					lost = last + n
				}
			})
		},
	}
}

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
)

func (s *server) answer(c net.Conn) error {
	var head [16]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	body := make([]byte, binary.LittleEndian.Uint32(head[:])-16)
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	if s.down != nil && s.down() {
		return io.EOF
	}
	kind := binary.LittleEndian.Uint32(head[12:])
	var cmd bson.D
	if kind == opQuery {
		at := 4 + bytes.IndexByte(body[4:], 0) + 1 + 8
		if err := bson.Unmarshal(body[at:], &cmd); err != nil {
			return err
		}
	} else {
		cmd = message(body[4:])
	}
	if list, _ := get(cmd, "updates").(bson.A); s.slow > 0 && len(list) > s.slow {
		time.Sleep(time.Hour)
		return io.EOF
	}
	reply, lost := s.execute(cmd)
	if lost {
		return io.EOF
	}
	raw, err := bson.Marshal(reply)
	if err != nil {
		return err
	}
	prefix := make([]byte, 5)
	if kind == opQuery {
		prefix = make([]byte, 20)
		prefix[16] = 1
		kind = opReply
	}
	out := make([]byte, 16, 16+len(prefix)+len(raw))
	binary.LittleEndian.PutUint32(out, uint32(16+len(prefix)+len(raw)))
	copy(out[8:], head[4:8])
	binary.LittleEndian.PutUint32(out[12:], kind)
	_, err = c.Write(append(append(out, prefix...), raw...))
	return err
}

// message is the command of an OP_MSG, with its sequences as arrays.
func message(sections []byte) (cmd bson.D) {
	for len(sections) > 0 {
		kind := sections[0]
		size := int(binary.LittleEndian.Uint32(sections[1:]))
		part := sections[1 : 1+size]
		sections = sections[1+size:]
		if kind == 0 {
			var d bson.D
			_ = bson.Unmarshal(part, &d)
			cmd = append(d, cmd...)
			continue
		}
		end := bytes.IndexByte(part[4:], 0)
		name, rest := string(part[4:4+end]), part[4+end+1:]
		var list bson.A
		for len(rest) > 0 {
			n := int(binary.LittleEndian.Uint32(rest))
			var d bson.D
			_ = bson.Unmarshal(rest[:n], &d)
			list, rest = append(list, d), rest[n:]
		}
		cmd = append(cmd, bson.E{Key: name, Value: list})
	}
	return cmd
}

func get(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

func (s *server) execute(cmd bson.D) (reply bson.D, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := bson.E{Key: "ok", Value: 1}
	name := cmd[0].Key
	switch name {
	case "insert", "update", "delete":
	default:
		return bson.D{ok, {Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "helloOk", Value: true}, {Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 21}, {Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48_000_000}, {Key: "maxWriteBatchSize", Value: 100_000}}, false
	}
	s.writes++
	if s.rule != nil {
		if code := s.rule(s.writes); code != 0 {
			return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "not now"}}, false
		}
	}
	list, _ := get(cmd, map[string]string{"insert": "documents", "update": "updates", "delete": "deletes"}[name]).(bson.A)
	n := 0
	var faults bson.A
	for i, x := range list {
		code := int32(0)
		if s.meet != nil {
			code = s.meet(s.writes, i, x.(bson.D))
		}
		if code == 0 {
			code = s.one(name, cmd[0].Value.(string), x.(bson.D))
		}
		if code != 0 {
			faults = bson.A{bson.D{{Key: "index", Value: i}, {Key: "code", Value: code}, {Key: "errmsg", Value: "it is so: index: _id_ dup key: {secret}"}}}
			break
		}
		n++
	}
	reply = bson.D{ok, {Key: "n", Value: n}, {Key: "nModified", Value: n}}
	if faults != nil {
		reply = append(reply, bson.E{Key: "writeErrors", Value: faults})
	}
	return reply, s.lose != nil && s.lose(s.writes)
}

func matches(doc, filter bson.D) bool {
	for _, f := range filter {
		a, _ := bson.Marshal(bson.D{{Key: "x", Value: f.Value}})
		b, _ := bson.Marshal(bson.D{{Key: "x", Value: get(doc, f.Key)}})
		if !bytes.Equal(a, b) {
			return false
		}
	}
	return true
}

// find is where a document is, or -1. What it finds by id it remembers.
func (s *server) find(coll string, filter bson.D) int {
	key := ""
	if len(filter) == 1 && filter[0].Key == idField {
		raw, _ := bson.Marshal(filter)
		key = coll + string(raw)
	}
	from := 0
	if key != "" {
		if at, seen := s.places[key]; seen && at < len(s.docs[coll]) && matches(s.docs[coll][at], filter) {
			return at
		}
		if _, seen := s.places[key]; !seen {
			from = len(s.docs[coll]) // it was never asked for, and so never added
			s.places[key] = from
		}
	}
	for i := from; i < len(s.docs[coll]); i++ {
		if matches(s.docs[coll][i], filter) {
			if key != "" {
				s.places[key] = i
			}
			return i
		}
	}
	return -1
}

func (s *server) one(name, coll string, x bson.D) int32 {
	filter, _ := get(x, "q").(bson.D)
	if name == "insert" {
		filter = bson.D{{Key: idField, Value: get(x, idField)}}
	}
	at := s.find(coll, filter)
	doc, _ := get(x, "u").(bson.D)
	switch {
	case name == "delete" && at >= 0:
		s.docs[coll] = append(s.docs[coll][:at:at], s.docs[coll][at+1:]...)
		return 0
	case name == "delete":
		return 0
	case name == "insert" && at >= 0:
		return codeDuplicate
	case name == "insert":
		doc = x
	}
	if set, is := get(doc, "$set").(bson.D); is {
		doc = append(bson.D{}, filter...)
		if at >= 0 {
			doc = append(bson.D{}, s.docs[coll][at]...)
		}
		for _, f := range set {
			found := false
			for i := range doc {
				if doc[i].Key == f.Key {
					doc[i].Value, found = f.Value, true
				}
			}
			if !found {
				doc = append(doc, f)
			}
		}
	}
	if at >= 0 {
		s.docs[coll][at] = doc
	} else {
		s.docs[coll] = append(s.docs[coll], doc)
	}
	return 0
}

// all is the documents of a collection in extended JSON, without their ids on request.
func (s *server) all(coll string, ids bool) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.docs[coll] {
		if !ids {
			d = slices.DeleteFunc(slices.Clone(d), func(f bson.E) bool { return f.Key == idField })
		}
		text, _ := bson.MarshalExtJSON(d, false, false)
		out = append(out, string(text))
	}
	return out
}

func template(text string) (t connectors.Template) {
	if err := t.UnmarshalConfig(text); err != nil {
		panic(err)
	}
	for i := range t.Parts {
		t.Parts[i].Expr.Slot = 1
	}
	return t
}

func testConfig(change func(*Config)) *Config {
	c := newConfig().(*Config)
	c.URI, c.Database, c.Collection = "mongodb://host:27017/", "db", template("c")
	if change != nil {
		change(c)
	}
	return c
}

func opened(t *testing.T, to *server, change func(*Config)) connectors.Writer {
	t.Helper()
	s, err := newSink(testConfig(change))
	if err != nil {
		t.Fatal(err)
	}
	if to != nil {
		s.dialer = to
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Open(t.Context(), connectors.SinkEnv{Log: slog.New(slog.DiscardHandler), Subtasks: 1}); err != nil {
		t.Fatal(err)
	}
	w, err := s.Writer(0)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// row is a value, its id in slot 0 and one more value in slot 1.
type row struct {
	value    string
	id, more connectors.Value
}

func rows(list ...row) *connectors.Rows {
	r := &connectors.Rows{Batch: new(connectors.Batch)}
	r.Batch.Size(len(list), 2)
	origin := &connectors.Origin{Topic: "in", Partition: 1}
	for i, x := range list {
		r.Batch.Records[i] = connectors.Record{Origin: origin, Offset: int64(i)}
		var b []byte
		if x.value != "" {
			b = []byte(x.value)
		}
		r.Sel, r.Values = append(r.Sel, uint16(i)), append(r.Values, b)
		copy(r.Batch.Row(i), []connectors.Value{x.id, x.more})
	}
	return r
}

func byID(c *Config) { c.ID = connectors.Expr{Text: "id", Slot: 0} }

func many(n int) (out []row) {
	for i := range n {
		out = append(out, row{value: fmt.Sprintf(`{"n":%d}`, i), id: connectors.IntValue(int64(i % 10))})
	}
	return out
}

func refusedRows(err error) (out []int) {
	var r *connectors.RowsError
	if errors.As(err, &r) {
		for _, row := range r.Rows {
			out = append(out, row.Row)
		}
	}
	return out
}
