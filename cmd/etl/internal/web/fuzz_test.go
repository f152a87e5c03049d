package web

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// Whatever is asked for, the answer is no fault of the program, is described, and is JSON.
func FuzzRequests(f *testing.F) {
	for _, s := range samples {
		method, _, _ := strings.Cut(s.operation, " ")
		path, query, _ := strings.Cut(s.path, "?")
		f.Add(method, path, query, s.body, "application/json")
	}
	f.Add("POST", "/api/v1/pipelines/%2e%2e/start", "", `{"set_offsets": {"a/0": 1e999}}`, "text/plain")
	f.Add("GET", "/api/v1/pipelines/orders/tap", "operator=x&limit=%00&limit=7", "", "")
	h := NewHandler(&fake{}, HandlerOptions{})
	f.Fuzz(func(t *testing.T, method, path, query, body, kind string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") || u.Host != "" {
			return
		}
		u.RawQuery = query
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // streams end at once
		r, err := http.NewRequestWithContext(ctx, method, "http://x/", strings.NewReader(body))
		if err != nil {
			return
		}
		r.URL, r.RequestURI = u, u.RequestURI()
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := w.Result()
		switch got.Header.Get("Content-Type") {
		case "application/json", problemType:
			var v any
			if err := json.NewDecoder(bytes.NewReader(w.Body.Bytes())).Decode(&v); err != nil {
				t.Errorf("%s %s: %d %q: %v", method, u, w.Code, w.Body, err)
			}
		case "text/event-stream", "application/openapi+json":
		default:
			if w.Code != http.StatusNoContent || w.Body.Len() > 0 {
				t.Errorf("%s %s: %d %v %q", method, u, w.Code, got.Header, w.Body)
			}
		}
		if w.Code >= 500 && !strings.Contains(w.Body.String(), failing) {
			t.Errorf("%s %s: %d %s", method, u, w.Code, w.Body)
		}
	})
}
