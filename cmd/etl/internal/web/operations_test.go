package web

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// sample is a request for an operation, what the service is asked for by it, and the
// status that answers it.
type sample struct {
	operation string // method and pattern
	path      string
	body      string
	asked     string
	status    int
}

const definition = `{"definition": "pipeline: orders\n"}`

var samples = []sample{
	{"GET /api/v1/daemon", "/api/v1/daemon", "", "", 200},
	{"GET /api/v1/stream", "/api/v1/stream?pipeline=orders", "", "pipeline orders; flow orders; checkpoints orders", 200},
	{"GET /api/v1/events", "/api/v1/events?pipeline=orders&after=1&limit=7", "", "", 200},
	{"GET /api/v1/logs", "/api/v1/logs?level=warn", "", "", 200},
	{"POST /api/v1/reload", "/api/v1/reload", "", "ann reloads", 200},
	{"POST /api/v1/validate", "/api/v1/validate", definition, "validate 17 bytes", 200},
	{"POST /api/v1/plan", "/api/v1/plan", definition, "plan 17 bytes", 200},
	{"GET /api/v1/pipelines", "/api/v1/pipelines", "", "", 200},
	{"GET /api/v1/pipelines/{name}", "/api/v1/pipelines/orders", "", "pipeline orders", 200},
	{"PUT /api/v1/pipelines/{name}", "/api/v1/pipelines/orders", definition, "ann puts orders of 17 bytes", 200},
	{"DELETE /api/v1/pipelines/{name}", "/api/v1/pipelines/orders", "", "ann deletes orders", 204},
	{"GET /api/v1/pipelines/{name}/definition", "/api/v1/pipelines/orders/definition", "", "definition orders", 200},
	{"GET /api/v1/pipelines/{name}/graph", "/api/v1/pipelines/orders/graph", "", "graph orders", 200},
	{"GET /api/v1/pipelines/{name}/flow", "/api/v1/pipelines/orders/flow", "", "flow orders", 200},
	{"GET /api/v1/pipelines/{name}/failures", "/api/v1/pipelines/orders/failures", "", "failures orders", 200},
	{"GET /api/v1/pipelines/{name}/events", "/api/v1/pipelines/orders/events", "", "pipeline orders", 200},
	{"GET /api/v1/pipelines/{name}/logs", "/api/v1/pipelines/orders/logs", "", "pipeline orders", 200},
	{"GET /api/v1/pipelines/{name}/tap", "/api/v1/pipelines/orders/tap?operator=per-customer&limit=2&input=true", "", "tap orders per-customer {Limit:2 PerSecond:10 Input:true}", 200},
	{"GET /api/v1/pipelines/{name}/checkpoints", "/api/v1/pipelines/orders/checkpoints", "", "checkpoints orders", 200},
	{"GET /api/v1/pipelines/{name}/checkpoints/{number}", "/api/v1/pipelines/orders/checkpoints/3", "", "checkpoints orders", 200},
	{"POST /api/v1/pipelines/{name}/checkpoints", "/api/v1/pipelines/orders/checkpoints", "{}", "ann takes a checkpoint of orders", 200},
	{"GET /api/v1/pipelines/{name}/savepoints", "/api/v1/pipelines/orders/savepoints", "", "savepoints orders", 200},
	{"POST /api/v1/pipelines/{name}/savepoints", "/api/v1/pipelines/orders/savepoints", `{"dir": "/sp"}`, `ann takes a savepoint of orders into "file:///sp"`, 200},
	{"POST /api/v1/pipelines/{name}/start", "/api/v1/pipelines/orders/start", `{"from": "none", "set_offsets": {"orders/0": 7, "orders/1": -1, "orders/2": -2}}`, "ann starts orders {From:none Claim:false AcceptDuplicates:false AllowNonRestoredState:false AllowDrained:false SetOffsets:map[orders/0:7 orders/1:-1 orders/2:-2]}", 200},
	{"POST /api/v1/pipelines/{name}/pause", "/api/v1/pipelines/orders/pause", "", "ann pauses orders", 200},
	{"POST /api/v1/pipelines/{name}/resume", "/api/v1/pipelines/orders/resume", "", "ann resumes orders", 204},
	{"POST /api/v1/pipelines/{name}/restart", "/api/v1/pipelines/orders/restart", "{}", "ann restarts orders", 204},
	{"POST /api/v1/pipelines/{name}/cancel", "/api/v1/pipelines/orders/cancel", "", "ann cancels orders", 200},
	{"POST /api/v1/pipelines/{name}/stop", "/api/v1/pipelines/orders/stop", `{"savepoint": true, "dir": "s3://b/sp", "drain": true}`, "ann stops orders {Savepoint:true Dir:s3://b/sp Drain:true}", 200},
	{"POST /api/v1/pipelines/{name}/skip", "/api/v1/pipelines/orders/skip", `{"topic": "orders", "partition": 0, "offset": 6}`, "ann skips orders/0@6 of orders", 200},
}

// ask makes a request, and leaves at once where it is for a stream.
func ask(t *testing.T, h *Handler, method, path, body string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithCancel(WithCaller(t.Context(), Caller{"ann", Admin}))
	defer cancel()
	if strings.Contains(path, "/stream") {
		cancel()
	}
	roots := func() []string { return []string{"/sp", "s3://b"} }
	r := httptest.NewRequestWithContext(context.WithValue(ctx, rootsKey{}, roots), method, path, strings.NewReader(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestEachOperationAsksTheServiceAndAnswersAsDescribed(t *testing.T) {
	doc := describedBy(t, NewHandler(&fake{}, HandlerOptions{}))
	seen := map[string]bool{}
	for _, s := range samples {
		f := &fake{}
		f.happens("begins")
		h := NewHandler(f, HandlerOptions{})
		method, pattern, _ := strings.Cut(s.operation, " ")
		seen[s.operation] = true
		resp := ask(t, h, method, s.path, s.body)
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != s.status || f.called() != s.asked {
			t.Errorf("%s: %s %s", s.operation, resp.Status, text)
		}
		doc.check(t, method, pattern, resp, text)
	}
	for _, o := range slices.Sorted(maps.Keys(roles)) {
		if !seen[o] {
			t.Errorf("no sample of %s", o)
		}
	}
}

func TestWhatGoesWrongIsToldAsADescribedProblem(t *testing.T) {
	h := NewHandler(&fake{}, HandlerOptions{})
	doc := describedBy(t, h)
	for name, want := range map[string]struct {
		status int
		code   string
	}{
		"missing": {404, CodeUnknown}, "conflict": {409, CodePhase}, "phase": {409, CodePhase}, "invalid": {400, CodeInvalid}, "fenced": {409, CodeFenced},
		"permanent": {409, CodePermanent}, "failing": {503, CodeFailed}, "nodir": {400, CodeInvalid},
		"No%20Name": {422, CodeInvalid}, "%2e%2e": {422, CodeInvalid}, "a%2fb": {422, CodeInvalid},
	} {
		for _, s := range samples {
			method, pattern, _ := strings.Cut(s.operation, " ")
			if !strings.HasPrefix(pattern, onePath) {
				continue
			}
			resp := ask(t, h, method, strings.Replace(s.path, "/orders", "/"+name, 1), s.body)
			text, _ := io.ReadAll(resp.Body)
			var p Problem
			err := json.Unmarshal(text, &p)
			if err != nil || resp.StatusCode != want.status || p.Code != want.code || p.Status != want.status || p.Detail == "" || p.Title == "" {
				t.Errorf("%s of %s: %s %s", s.operation, name, resp.Status, text)
			}
			if pattern != onePath+"/tap" && want.status == 409 && method == http.MethodGet {
				continue // what the service does not answer to a question
			}
			doc.check(t, method, pattern, resp, text)
		}
	}
}

func TestRequestsThatAreWrongAreRefused(t *testing.T) {
	h := NewHandler(&fake{}, HandlerOptions{})
	doc := describedBy(t, h)
	const orders = "/api/v1/pipelines/orders"
	for _, tt := range []struct {
		method, path, body string
		status             int
		detail             string
	}{
		{"POST", orders + "/savepoints", `{"dir": "saved"}`, 422, "relative"},
		{"POST", orders + "/savepoints", `{"dir": "mem://saved"}`, 400, "ends with it"},
		{"POST", orders + "/savepoints", `{"dir": "/etc"}`, 403, "below none"},
		{"POST", orders + "/savepoints", `{"dir": "/sp/x"}`, 200, ""},
		{"POST", orders + "/stop", `{"savepoint": true, "dir": "../saved"}`, 422, "relative"},
		{"POST", orders + "/stop", `{"drian": true}`, 422, "drian"},
		{"POST", orders + "/stop", `{"drain": true}{}`, 400, "after top-level value"},
		{"POST", orders + "/stop", `{"drain": `, 400, "end of JSON"},
		{"POST", orders + "/stop", `{"dir": "` + strings.Repeat("x", mostBody) + `"}`, 413, "too large"},
		{"POST", orders + "/start", `{"from": "chk-3"}`, 422, "relative"},
		{"POST", orders + "/start", `{"from": "/etc"}`, 403, "below none"},
		{"POST", orders + "/start", `{"from": "none"}`, 200, ""},
		{"POST", orders + "/start", `{"set_offsets": {"orders": 1}}`, 400, "topic/partition"},
		{"POST", orders + "/start", `{"set_offsets": {"orders/0": -3}}`, 422, "orders/0"},
		{"POST", orders + "/start", `{"set_offsets": {"orders/0": 1e40}}`, 422, ""},
		{"POST", orders + "/skip", `{"topic": "orders", "partition": 3}`, 422, "offset"},
		{"POST", orders + "/skip", `{"topic": "orders", "partition": 4294967296, "offset": 1}`, 422, ""},
		{"POST", orders + "/skip", "", 400, "required"},
		{"POST", orders + "/skip", `{"topic": "orders", "partition": 3.0, "offset": 1e3}`, 200, ""},
		{"POST", orders + "/skip", `{"topic": "orders", "partition": 3, "offset": 9007199254740993.5}`, 422, ""},
		{"POST", orders + "/savepoints", `{"dir": null}`, 400, "null"},
		{"POST", orders + "/cancel", `[]`, 422, "object"},
		{"POST", orders + "/cancel", `{"force": true}`, 422, "force"},
		{"PUT", orders, `{"definition": ""}`, 422, "definition"},
		{"PUT", orders, `{"definition": "` + strings.Repeat("x", mostDefinition) + `"}`, 413, "too large"},
		{"PUT", orders, `{"definition": "` + strings.Repeat("x", mostDefinition-100) + `"}`, 200, ""},
		{"GET", orders + "/tap", "", 422, "operator"},
		{"GET", orders + "/tap?operator=x&per_second=0", "", 422, "per_second"},
		{"GET", orders + "/tap?operator=x&limit=many", "", 422, "limit"},
		{"GET", orders + "/checkpoints/0", "", 422, "number"},
		{"GET", orders + "/checkpoints/99", "", 404, "no checkpoint 99"},
		{"GET", orders + "/flow?verbose=1", "", 422, "unknown query parameter"},
		{"GET", "/api/v1/logs?level=loud", "", 422, "level"},
		{"GET", "/api/v1/events?limit=100000", "", 422, "limit"},
		{"GET", "/api/v1/events?after=-1", "", 422, "after"},
	} {
		resp := ask(t, h, tt.method, tt.path, tt.body)
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != tt.status || !strings.Contains(string(text), tt.detail) {
			t.Errorf("%s %s %.60s: %s %s", tt.method, tt.path, tt.body, resp.Status, text)
		}
		path, _, _ := strings.Cut(tt.path, "?")
		pattern := strings.NewReplacer(orders, onePath, "/checkpoints/0", "/checkpoints/{number}", "/checkpoints/99", "/checkpoints/{number}").Replace(path)
		doc.check(t, tt.method, pattern, resp, text)
	}
}

func TestPathsAndMethodsThatAreNotThereAreProblems(t *testing.T) {
	h := NewHandler(&fake{}, HandlerOptions{})
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/api/v1", 404, ""},
		{"GET", "/api/v1/pipelines/", 404, ""},
		{"GET", "/api/v1/pipelines//flow", 404, ""},
		{"GET", "/api/v1/pipelines/orders/../orders", 404, ""},
		{"DELETE", "/api/v1/pipelines/orders/checkpoints", 405, "GET, HEAD, POST"},
		{"POST", "/api/v1/pipelines/orders", 405, "GET, HEAD, PUT, DELETE"},
		{"GET", "/api/v1/pipelines/orders/pause", 405, "POST"},
		{"TRACE", "/openapi.json", 405, "GET, HEAD"},
	} {
		resp := ask(t, h, tt.method, tt.path, "")
		if resp.StatusCode != tt.status || resp.Header.Get("Allow") != tt.allow || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %s, %v", tt.method, tt.path, resp.Status, resp.Header)
		}
	}
}

func TestABodyOfAnotherTypeIsRefused(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/pipelines/orders/stop", strings.NewReader("drain: true"))
	r.Header.Set("Content-Type", "application/yaml")
	w := httptest.NewRecorder()
	NewHandler(&fake{}, HandlerOptions{}).ServeHTTP(w, r)
	if w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestRolesAreThoseOfTheOperations(t *testing.T) {
	for _, s := range samples {
		method, pattern, _ := strings.Cut(s.operation, " ")
		role, ok := RoleOf(method, pattern)
		got, found := RoleFor(httptest.NewRequest(method, s.path, nil))
		if !ok || !found || got != role {
			t.Errorf("%s: %q by its pattern, %q by a request", s.operation, role, got)
		}
	}
	if r, ok := RoleFor(httptest.NewRequest(http.MethodGet, "/api/v1/pipelines/orders/other", nil)); ok {
		t.Errorf("what is no operation has the role %s", r)
	}
	if r, ok := RoleFor(httptest.NewRequest(http.MethodHead, "/api/v1/pipelines/orders/tap", nil)); !ok || r != Operate {
		t.Errorf("HEAD of a tap needs %q", r)
	}
	if !Admin.Includes(Operate) || !Operate.Includes(Operate) || Read.Includes(Operate) || Role("").Includes(Read) || Admin.Includes("root") {
		t.Error("roles do not include those before them, and nothing else")
	}
}

// Moving positions loses or repeats records.
func TestOffsetsAreSetByAdminsOnly(t *testing.T) {
	for role, want := range map[Role]int{Operate: 403, Admin: 200} {
		body := strings.NewReader(`{"set_offsets": {"orders/0": 7}}`)
		r := httptest.NewRequestWithContext(WithCaller(t.Context(), Caller{"ann", role}), http.MethodPost, "/api/v1/pipelines/orders/start", body)
		w := httptest.NewRecorder()
		NewHandler(&fake{}, HandlerOptions{}).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("as %s: %d %s", role, w.Code, w.Body)
		}
	}
}

// document is the description that a handler gives of itself.
type document struct {
	compiler *jsonschema.Compiler
	paths    map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Summary     string
		Role        Role `json:"x-role"`
		Security    []map[string][]string
		Parameters  []struct{ Name, Description string }
		Responses   map[string]struct{ Content map[string]json.RawMessage }
	}
	schemas map[string]struct {
		Properties map[string]struct{ Description string }
	}
}

func describedBy(t *testing.T, h *Handler) *document {
	t.Helper()
	resp := ask(t, h, http.MethodGet, "/openapi.json", "")
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	all, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{compiler: jsonschema.NewCompiler()}
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("openapi.json", all); err != nil {
		t.Fatal(err)
	}
	parts := struct {
		Paths      any
		Components struct{ Schemas any }
	}{Paths: &d.paths}
	parts.Components.Schemas = &d.schemas
	if err := json.Unmarshal(text, &parts); err != nil {
		t.Fatal(err)
	}
	return d
}

// check tells where an answer is not what is described.
func (d *document) check(t *testing.T, method, pattern string, resp *http.Response, text []byte) {
	t.Helper()
	described, ok := d.paths[pattern][strings.ToLower(method)]
	if !ok {
		t.Errorf("%s %s is not described", method, pattern)
		return
	}
	status, _, _ := strings.Cut(resp.Status, " ")
	answer, ok := described.Responses[status]
	if !ok {
		t.Errorf("%s %s: status %s is not described", method, pattern, status)
		return
	}
	kind := resp.Header.Get("Content-Type")
	if len(answer.Content) == 0 && len(text) == 0 {
		return
	}
	if _, ok := answer.Content[kind]; !ok {
		t.Errorf("%s %s: %s as %q is not described", method, pattern, status, kind)
		return
	}
	if kind == "text/event-stream" {
		return
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace
	s, err := d.compiler.Compile("openapi.json#/paths/" + escape(pattern) + "/" + strings.ToLower(method) + "/responses/" + status + "/content/" + escape(kind) + "/schema")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(value); err != nil {
		t.Errorf("%s %s: %v", method, pattern, err)
	}
}

func TestEveryOperationAndFieldIsDescribed(t *testing.T) {
	d := describedBy(t, NewHandler(&fake{}, HandlerOptions{}))
	described, ids := map[string]bool{}, map[string]bool{}
	for pattern, methods := range d.paths {
		for method, o := range methods {
			what := strings.ToUpper(method) + " " + pattern
			described[what] = true
			if role := roles[what]; role == "" || o.Role != role || o.Summary == "" || o.OperationID == "" || ids[o.OperationID] || len(o.Security) != 2 {
				t.Errorf("%s is described as %+v", what, o)
			}
			ids[o.OperationID] = true
			for _, p := range o.Parameters {
				if p.Description == "" {
					t.Errorf("%s: parameter %s is not described", what, p.Name)
				}
			}
		}
	}
	for what := range roles {
		if !described[what] {
			t.Errorf("%s is not described", what)
		}
	}
	for name, s := range d.schemas {
		for field, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s is not described", name, field)
			}
		}
	}
}
