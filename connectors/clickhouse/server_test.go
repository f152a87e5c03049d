package clickhouse

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-etl/sluice/connectors"
)

// server is a ClickHouse in memory, as far as the sink asks for one: a table that
// remembers tokens, and the table of marks.
type server struct {
	mu       sync.Mutex
	engine   string
	settings string // of the table, as in engine_full
	create   string
	window   int // tokens that are remembered
	columns  [][3]string
	missing  bool // the table is not there
	rows     []map[string]any
	tokens   []string // newest last
	blocks   []block  // that were inserted
	marked   bool     // the table of marks is there
	marks    []markRow
	ran      []string // statements that make tables
	calls    int
	header   http.Header
	// meet is asked before a request is executed, and may answer it, with status 0 by none; lose says that an
	// executed one gets no answer.
	meet func(call int, query string) *said
	lose func(call int) bool
}

type block struct {
	token, query string
	rows         int
}

type markRow struct {
	pipeline, sink, origin                  string
	generation, number, next, blocks, fence uint64
}

func newServer(columns ...[3]string) *server {
	if columns == nil {
		columns = [][3]string{{"partition", "Int32", ""}, {"offset", "Int64", ""}}
	}
	return &server{engine: "MergeTree", settings: " SETTINGS non_replicated_deduplication_window = 100, index_granularity = 8192", window: 100, columns: columns}
}

var errReset = errors.New("connection reset by peer")

// said is an answer: its status, the code of an error and the text.
type said struct {
	status, code int
	text         string
}

func says(status, code int, text string) *said { return &said{status, code, text} }

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.header = r.Header
	body, err := unpack(r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query().Get("query")
	if query == "" {
		query, body = string(body), nil
	}
	var answer *said
	if s.meet != nil {
		answer = s.meet(s.calls, query)
	}
	if answer == nil {
		answer = s.execute(query, body, r.URL.Query().Get("insert_deduplication_token"))
		if s.lose != nil && s.lose(s.calls) {
			return nil, errReset
		}
	}
	if answer.status == 0 {
		return nil, errReset
	}
	w := httptest.NewRecorder()
	if answer.code != 0 {
		w.Header().Set(exceptionHeader, fmt.Sprint(answer.code))
	}
	w.WriteHeader(answer.status)
	_, _ = io.WriteString(w, answer.text)
	return w.Result(), nil
}

func unpack(r *http.Request) ([]byte, error) {
	var from io.Reader = r.Body
	switch r.Header.Get("Content-Encoding") {
	case compressGzip:
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, err
		}
		from = z
	case compressZstd:
		z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		from = z
	}
	return io.ReadAll(from)
}

func (s *server) execute(query string, body []byte, token string) *said {
	starts := func(text string) bool { return strings.HasPrefix(query, text) }
	switch {
	case starts("SELECT version()"):
		return answer(map[string]any{"Version": "26.9", "Zone": "UTC"})
	case starts("EXISTS TABLE"):
		there := map[bool]int{true: 1}
		if strings.Contains(query, "sluice_commits") {
			return answer(map[string]any{"result": there[s.marked]})
		}
		return answer(map[string]any{"result": there[!s.missing]})
	case starts("CREATE TABLE IF NOT EXISTS"):
		s.ran = append(s.ran, query)
		s.marked = s.marked || strings.Contains(query, "sluice_commits")
		s.missing = s.missing && strings.Contains(query, "sluice_commits")
		return says(200, 0, "")
	case starts("SELECT engine AS") && s.missing:
		return says(200, 0, "")
	case starts("SELECT engine AS"):
		return answer(map[string]any{"Engine": s.engine, "Full": s.engine + " ORDER BY offset" + s.settings, "Create": "CREATE TABLE t " + s.create, "Views": []string{}})
	case starts("SELECT value AS"):
		return answer(map[string]any{"Value": "0"})
	case starts("SELECT name AS"):
		var all []map[string]any
		for _, c := range s.columns {
			all = append(all, map[string]any{"Name": c[0], "Type": c[1], "Kind": c[2]})
		}
		return answer(all...)
	case starts("SELECT origin AS"):
		return s.readMark(query)
	case starts("INSERT INTO `db`.`sluice_commits`"):
		return s.writeMark(query)
	case starts("INSERT INTO `db`.`rows`"):
		return s.insert(query, body, token)
	}
	return says(400, 62, "Code: 62. DB::Exception: Syntax error: "+query)
}

func answer(rows ...map[string]any) *said {
	var out bytes.Buffer
	for _, r := range rows {
		_ = json.NewEncoder(&out).Encode(r)
	}
	return says(200, 0, out.String())
}

func (s *server) writeMark(query string) *said {
	_, values, _ := strings.Cut(query, " VALUES (")
	parts := strings.Split(strings.TrimSuffix(values, ")"), ", ")
	r := markRow{pipeline: unquote(parts[0]), sink: unquote(parts[1]), origin: unquote(parts[2])}
	for i, to := range []*uint64{&r.generation, &r.number, &r.next, &r.blocks, &r.fence} {
		_, _ = fmt.Sscan(parts[3+i], to)
	}
	s.marks = append(s.marks, r)
	return says(200, 0, "")
}

func (s *server) readMark(query string) *said {
	mine := func(r markRow) bool {
		return strings.Contains(query, "pipeline = "+literal(r.pipeline)+" ") && strings.Contains(query, "sink = "+literal(r.sink)+" ")
	}
	last := slices.IndexFunc(s.marks, mine)
	if last < 0 {
		return says(200, 0, "")
	}
	for i, r := range s.marks {
		if mine(r) {
			last = i
		}
	}
	var fence uint64
	done, under := []uint64{0, 0}, []uint64{0, 0, 0}
	for _, r := range s.marks {
		if !mine(r) || r.origin != s.marks[last].origin {
			continue
		}
		fence = max(fence, r.fence)
		if d := []uint64{r.generation, r.number}; r.number > 0 && slices.Compare(d, done) > 0 {
			done = d
		}
		if u := []uint64{r.generation, r.next, r.blocks}; slices.Compare(u, under) > 0 {
			under = u
		}
	}
	return answer(map[string]any{"Origin": s.marks[last].origin, "Fence": fmt.Sprint(fence), "Done": tuple(done), "Under": tuple(under)})
}

func tuple(list []uint64) string {
	return "(" + strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]") + ")"
}

// insert takes a block unless its token is remembered.
func (s *server) insert(query string, body []byte, token string) *said {
	rows, fault := s.decode(body)
	if fault != "" {
		return says(400, 117, "Code: 117. DB::Exception: "+fault)
	}
	if slices.Contains(s.tokens, token) {
		return says(200, 0, "")
	}
	s.tokens = append(s.tokens, token)
	s.tokens = s.tokens[max(0, len(s.tokens)-s.window):]
	s.blocks = append(s.blocks, block{token, query, len(rows)})
	s.rows = append(s.rows, rows...)
	return says(200, 0, "")
}

// decode reads RowBinaryWithNamesAndTypes.
func (s *server) decode(body []byte) (rows []map[string]any, fault string) {
	text := func() string {
		n, size := binary.Uvarint(body)
		out := string(body[size : size+int(n)])
		body = body[size+int(n):]
		return out
	}
	n := int(body[0])
	body = body[1:]
	names, types := make([]string, n), make([]string, n)
	for i := range names {
		names[i] = text()
	}
	for i := range types {
		types[i] = text()
		if !slices.ContainsFunc(s.columns, func(c [3]string) bool { return c[0] == names[i] && c[1] == types[i] }) {
			return nil, "Type of '" + names[i] + "' must be another one"
		}
	}
	for len(body) > 0 {
		row := map[string]any{}
		for i, name := range names {
			switch types[i] {
			case "Int32":
				row[name] = int64(int32(binary.LittleEndian.Uint32(body)))
				body = body[4:]
			case "Int64":
				row[name] = int64(binary.LittleEndian.Uint64(body))
				body = body[8:]
			case "Float64":
				row[name] = math.Float64frombits(binary.LittleEndian.Uint64(body))
				body = body[8:]
			case "String":
				row[name] = text()
			default:
				return nil, "the test's server has no type " + types[i]
			}
		}
		rows = append(rows, row)
	}
	return rows, ""
}

// values are the suite's rows that are in the table.
func (s *server) values() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rows {
		out = append(out, fmt.Sprintf(`{"partition":%d,"offset":%d}`, r["partition"], r["offset"]))
	}
	return out
}

func testConfig(change func(*SinkConfig)) SinkConfig {
	c := newSinkConfig().(*SinkConfig)
	c.URL, c.Username, c.Password, c.Database, c.Table = "http://ch:8123", "etl", "secret!", "db", "rows"
	if change != nil {
		change(c)
	}
	return *c
}

func (s *server) target(change func(*SinkConfig)) (*target, error) {
	t, err := newTarget(testConfig(change))
	if err == nil {
		t.client.transport = s
	}
	return t, err
}

var _ http.RoundTripper = (*server)(nil)

// strict is a sink that is held to write each row once, for what is not restored from
// before the last checkpoint.
type strict struct{ connectors.TwoPhaseSink }

// Guarantee is the stronger one.
func (strict) Guarantee() connectors.Guarantee { return connectors.ExactlyOnce }
