// Package s3test is a server of the S3 protocol within the process, for tests: it
// answers an http.Client without a network, so that it works in the bubbles of
// testing/synctest, and fails by rules.
package s3test

import (
	"bytes"
	"crypto/md5" //nolint:gosec // what S3 calls an ETag
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/s3"
)

// Behaviour is what servers differ in. The zero value is that of Amazon's.
type Behaviour struct {
	Seed uint64 // decides rules with a probability
	// PutCondition and CompleteCondition are what If-None-Match does.
	PutCondition, CompleteCondition Condition
	// CompleteAgain answers a second completion of an upload with success, whatever is
	// under its key by now.
	CompleteAgain bool
	// ConditionFirst looks at the condition of a completion before it looks for the upload.
	ConditionFirst bool
	// LateRefusals says in an answer that begins with success what is wrong with a completion.
	LateRefusals bool
	// ExactUploads lists uploads of the whole key only, not by its beginning.
	ExactUploads bool
	// NoBatchDelete refuses DeleteObjects.
	NoBatchDelete bool
	// SamePage gives the first page of a list in place of every other.
	SamePage bool
	// PageSize is how much a page of a list holds at most; 0 is 1000.
	PageSize int
	// Lifecycle are the lifecycle rules of each bucket, as XML below
	// LifecycleConfiguration; empty for none.
	Lifecycle string
	// NoLifecycle is a code of S3 that questions for the rules are refused with.
	NoLifecycle string
	// Ahead is how far the clock of the server is ahead of the machine's.
	Ahead time.Duration
	// AccessKey is the only one that is let in; empty lets everybody in.
	AccessKey string
}

// Condition is what a server does with a condition on a write.
type Condition int

// What a server does with a condition.
const (
	Obeyed Condition = iota
	Ignored
	Refused
)

// Server keeps buckets in memory. It is safe for concurrent use.
type Server struct {
	behaviour Behaviour

	mu      sync.Mutex
	rand    *rand.Rand
	rules   []*Rule
	down    bool
	count   map[string]int // of requests, by operation; of all under the empty name
	next    int
	buckets map[string]*bucket
}

type bucket struct {
	objects  map[string]object
	uploads  map[string]*upload // by id
	finished map[string]string  // ids of completed uploads, by id, with their ETags
}

type object struct {
	data     []byte
	etag     string
	meta     http.Header
	modified time.Time
}

type upload struct {
	key   string
	id    string
	meta  http.Header
	parts map[int]object
}

var _ http.RoundTripper = (*Server)(nil)

// New makes an empty server.
func New(b Behaviour) *Server {
	return &Server{behaviour: b, rand: rand.New(rand.NewPCG(b.Seed, 1)), count: map[string]int{}, buckets: map[string]*bucket{}}
}

// MakeBucket makes a bucket.
func (s *Server) MakeBucket(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets[name] == nil {
		s.buckets[name] = &bucket{objects: map[string]object{}, uploads: map[string]*upload{}, finished: map[string]string{}}
	}
}

// Serve makes a bucket that every s3:// address of the process leads to until the test
// ends. In a bubble of testing/synctest it is called within the bubble.
func (s *Server) Serve(t testing.TB, bucket string, cfg s3.Config) {
	t.Helper()
	s.MakeBucket(bucket)
	t.Cleanup(s3.Route(bucket, cfg, s))
}

// Open serves a bucket and opens an address in it.
func (s *Server) Open(t testing.TB, address string, cfg s3.Config) storage.FS {
	t.Helper()
	u, err := storage.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(t, u.Host, cfg)
	f, err := storage.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Requests counts the requests of an operation that arrived, those that failed too;
// of all operations where op is empty.
func (s *Server) Requests(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[op]
}

// Keys are the keys of a bucket's objects, in no order.
func (s *Server) Keys(name string) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[name]; b != nil {
		for key := range b.objects {
			keys = append(keys, key)
		}
	}
	return keys
}

// Header is what a writer said of an object: its metadata and encryption.
func (s *Server) Header(name, key string) http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[name]; b != nil {
		return b.objects[key].meta.Clone()
	}
	return nil
}

// Uploads counts the multipart uploads of a bucket that are open.
func (s *Server) Uploads(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[name]; b != nil {
		return len(b.uploads)
	}
	return 0
}

// Put puts an object, as another program would.
func (s *Server) Put(name, key string, data []byte) {
	s.MakeBucket(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[name].objects[key] = newObject(data, nil)
}

func newObject(data []byte, meta http.Header) object {
	sum := md5.Sum(data) //nolint:gosec // as above
	return object{data: data, etag: `"` + hex.EncodeToString(sum[:]) + `"`, meta: meta, modified: time.Now()}
}

// call is one request, taken apart.
type call struct {
	op     string
	bucket string
	key    string
	query  url.Values
	header http.Header
	body   []byte
	host   string
}

// RoundTrip answers a request.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	c := &call{query: req.URL.Query(), header: req.Header, body: body, host: req.URL.Host}
	c.bucket, c.key, _ = strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	c.op = operation(req.Method, c.key, c.query)
	effect := s.arrive(c)
	if err := wait(req.Context(), effect.delay); err != nil {
		return nil, err
	}
	if effect.reset && !effect.after {
		return nil, errReset
	}
	a := effect.answer
	if a == nil {
		a = s.handle(c)
	}
	if effect.reset {
		return nil, errReset
	}
	return a.response(req, effect.cut, time.Now().Add(s.behaviour.Ahead)), nil
}

func operation(method, key string, q url.Values) string {
	has := q.Has
	switch {
	case key == "" && method == http.MethodHead:
		return "HeadBucket"
	case key == "" && method == http.MethodPost && has("delete"):
		return "DeleteObjects"
	case key == "" && method == http.MethodGet && has("uploads"):
		return "ListMultipartUploads"
	case key == "" && method == http.MethodGet && has("lifecycle"):
		return "GetBucketLifecycleConfiguration"
	case key == "" && method == http.MethodGet && has("list-type"):
		return "ListObjectsV2"
	case key == "":
	case method == http.MethodPost && has("uploads"):
		return "CreateMultipartUpload"
	case method == http.MethodPost && has("uploadId"):
		return "CompleteMultipartUpload"
	case method == http.MethodPut && has("uploadId"):
		return "UploadPart"
	case method == http.MethodDelete && has("uploadId"):
		return "AbortMultipartUpload"
	case method == http.MethodGet && has("uploadId"):
		return "ListParts"
	case method == http.MethodPut:
		return "PutObject"
	case method == http.MethodGet:
		return "GetObject"
	case method == http.MethodHead:
		return "HeadObject"
	case method == http.MethodDelete:
		return "DeleteObject"
	}
	return method
}

// answer is what is sent back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a *answer) response(req *http.Request, cut bool, now time.Time) *http.Response {
	h := a.header
	if h == nil {
		h = http.Header{}
	}
	h.Set("X-Amz-Request-Id", "request-1")
	h.Set("Date", now.UTC().Format(http.TimeFormat))
	if h.Get("Content-Length") == "" {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	length, _ := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	body := io.Reader(bytes.NewReader(a.body))
	if cut {
		body = io.MultiReader(bytes.NewReader(a.body[:len(a.body)/2]), broken{})
	}
	if req.Method == http.MethodHead {
		body = http.NoBody
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(body), ContentLength: length, Request: req,
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errReset }

func fail(status int, code, message string) *answer {
	text, _ := xml.Marshal(struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}{Code: code, Message: message})
	return &answer{status: status, header: http.Header{"Content-Type": {"application/xml"}}, body: text}
}

func document(v any) *answer {
	text, err := xml.Marshal(v)
	if err != nil {
		return fail(http.StatusInternalServerError, "InternalError", err.Error())
	}
	return &answer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/xml"}}, body: append([]byte(xml.Header), text...)}
}
