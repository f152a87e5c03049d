// Package dashboard is the web pages of the daemon. They are written in TypeScript, and
// `make build` builds them into dist, which is part of the binary; a binary that was built
// without Node serves a page that says so. What they show and do goes through the HTTP API.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed all:dist placeholder
var files embed.FS

// page is one file that is served.
type page struct {
	body []byte
	kind string // content type
	etag string
	// hashed files have the hash of their content in the name, and never change.
	hashed bool
}

// Built tells whether the binary holds the dashboard.
func Built() bool {
	_, err := fs.Stat(files, "dist/index.html")
	return err == nil
}

// Handler serves the dashboard below /. An address of one of its views, such as
// /pipelines/orders/checkpoints, gets the page that shows it.
func Handler() http.Handler {
	root := "placeholder"
	if Built() {
		root = "dist"
	}
	sub, err := fs.Sub(files, root)
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	return handler(sub)
}

func handler(folder fs.FS) http.Handler {
	pages := load(folder)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the dashboard answers GET and HEAD only", http.StatusMethodNotAllowed)
			return
		}
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		p, ok := pages[name]
		if !ok && isView(name) {
			p, ok = pages["index.html"]
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		serve(w, r, p)
	})
}

// isView tells addresses of views from those of files. A pipeline's name may have a dot.
func isView(name string) bool {
	return path.Ext(name) == "" || strings.HasPrefix(name, "pipelines/")
}

func serve(w http.ResponseWriter, r *http.Request, p page) {
	h := w.Header()
	h.Set("Content-Type", p.kind)
	h.Set("ETag", p.etag)
	h.Set("X-Content-Type-Options", "nosniff")
	if p.hashed {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache") // asked again each time, and answered by 304
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.body))
}

// load reads all files of the folder.
func load(folder fs.FS) map[string]page {
	pages := map[string]page{}
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		body, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		pages[name] = page{
			body:   body,
			kind:   contentType(name),
			etag:   `"` + hex.EncodeToString(sum[:12]) + `"`,
			hashed: strings.HasPrefix(name, "assets/"),
		}
		return nil
	})
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	return pages
}

// contentType does not ask the machine's table of types, which may be wrong or absent.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}
