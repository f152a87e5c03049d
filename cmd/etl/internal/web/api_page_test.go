package web

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// apiPage is the page about the API. Its table stands between a comment that names it
// and one that ends it.
const apiPage = "../../../../docs/api.md"

var operationsTable = regexp.MustCompile(`(?s)(<!-- operations -->\n)(.*?)(<!-- end -->)`)

func TestThePageListsTheOperationsThatThereAre(t *testing.T) {
	d := describedBy(t, NewHandler(&fake{}, HandlerOptions{}))
	var table strings.Builder
	table.WriteString("| operation | role | does |\n| --- | --- | --- |\n")
	for _, pattern := range slices.Sorted(maps.Keys(d.paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.paths[pattern])) {
			o := d.paths[pattern][method]
			fmt.Fprintf(&table, "| `%s %s` | %s | %s |\n", strings.ToUpper(method), pattern, o.Role, o.Summary)
		}
	}
	page, err := os.ReadFile(apiPage)
	if err != nil {
		t.Fatal(err)
	}
	found := operationsTable.FindSubmatch(page)
	switch {
	case found == nil:
		t.Fatal("the page has no place for the table")
	case string(found[2]) == table.String():
	case *updateDocs:
		page = operationsTable.ReplaceAll(page, []byte("${1}"+table.String()+"${3}"))
		if err := os.WriteFile(apiPage, page, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("docs/api.md is out of date: go test ./cmd/etl/internal/web -run Page -update")
	}
}

var (
	curlLine = regexp.MustCompile(`(?m)^    curl (.*)$`)
	argument = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

func TestTheExamplesOfThePageWork(t *testing.T) {
	page, err := os.ReadFile(apiPage)
	if err != nil {
		t.Fatal(err)
	}
	lines := curlLine.FindAllStringSubmatch(string(page), -1)
	if len(lines) < 5 {
		t.Errorf("the page has %d examples", len(lines))
	}
	for _, line := range lines {
		r := curl(t, line[1])
		ctx := WithCaller(r.Context(), Caller{"ann", Admin})
		w := httptest.NewRecorder()
		NewHandler(&fake{}, HandlerOptions{}).ServeHTTP(w, r.WithContext(ctx))
		if w.Code >= 300 {
			t.Errorf("curl %s: %d %s", line[1], w.Code, w.Body)
		}
	}
}

// curl is the request that a command line makes.
func curl(t *testing.T, line string) *http.Request {
	t.Helper()
	args := argument.FindAllString(line, -1)
	method, address, body, header := "", "", "", http.Header{}
	for i := 0; i < len(args); i++ {
		next := func() string {
			i++
			return strings.Trim(args[i], `'"`)
		}
		switch args[i] {
		case "-s", "-N":
		case "--unix-socket":
			next()
		case "-X":
			method = next()
		case "-d":
			body = next()
		case "-H":
			key, value, _ := strings.Cut(next(), ": ")
			header.Set(key, value)
		default:
			address = strings.Trim(args[i], `'"`)
		}
	}
	if method == "" {
		method = http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	return r
}
