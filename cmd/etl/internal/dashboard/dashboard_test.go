package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func site() http.Handler {
	return handler(fstest.MapFS{
		"index.html":          {Data: []byte("<!doctype html>")},
		"theme.js":            {Data: []byte("1")},
		"assets/app-4f2a.js":  {Data: []byte("2")},
		"assets/app-77c1.css": {Data: []byte("a{}")},
		".gitkeep":            {},
	})
}

func get(h http.Handler, method, path, etag string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestFilesAndViews(t *testing.T) {
	for _, c := range []struct {
		path   string
		status int
		kind   string
		cache  string
	}{
		{"/", 200, "text/html", "no-cache"},
		{"/pipelines/orders/checkpoints", 200, "text/html", "no-cache"},
		{"/pipelines/orders.v2", 200, "text/html", "no-cache"},
		{"/theme.js", 200, "text/javascript", "no-cache"},
		{"/assets/app-4f2a.js", 200, "text/javascript", "immutable"},
		{"/assets/app-77c1.css", 200, "text/css", "immutable"},
		{"/assets/app-0000.js", 404, "", ""}, // of an older binary: not the page under a script's name
		{"/.gitkeep", 404, "", ""},
		{"/../dashboard.go", 404, "", ""},
	} {
		w := get(site(), http.MethodGet, c.path, "")
		if w.Code != c.status {
			t.Errorf("%s: status %d, want %d", c.path, w.Code, c.status)
			continue
		}
		if c.status != 200 {
			continue
		}
		if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, c.kind) {
			t.Errorf("%s: content type %q, want %s", c.path, got, c.kind)
		}
		if got := w.Header().Get("Cache-Control"); !strings.Contains(got, c.cache) {
			t.Errorf("%s: cache control %q, want %s", c.path, got, c.cache)
		}
	}
}

func TestUnchangedFileIsNotSentAgain(t *testing.T) {
	first := get(site(), http.MethodGet, "/", "")
	again := get(site(), http.MethodGet, "/", first.Header().Get("ETag"))
	if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("status %d with %d bytes, want 304 without any", again.Code, again.Body.Len())
	}
}

func TestOnlyReads(t *testing.T) {
	if w := get(site(), http.MethodPost, "/", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d, want 405", w.Code)
	}
	if w := get(site(), http.MethodHead, "/", ""); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("HEAD: status %d with %d bytes", w.Code, w.Body.Len())
	}
}

// Nothing in the pages may need more than the strict policy under which they are served.
func TestPagesHaveNothingInline(t *testing.T) {
	folders := []string{"placeholder"}
	if Built() {
		folders = append(folders, "dist")
	}
	for _, folder := range folders {
		b, err := files.ReadFile(folder + "/index.html")
		if err != nil {
			t.Fatal(err)
		}
		page := string(b)
		for _, bad := range []string{"<style", "style=", "onload=", "onclick=", "<script>", "http://", "https://"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s/index.html has %s", folder, bad)
			}
		}
	}
	if w := get(Handler(), http.MethodGet, "/", ""); w.Code != 200 {
		t.Errorf("status %d of what this binary holds", w.Code)
	}
}
