package web

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

var updateDocs = flag.Bool("update", false, "write the table of metrics into docs/metrics.md")

// metricsPage is the page that lists the metrics. Its table stands between a comment that
// names it and one that ends it.
const metricsPage = "../../../../docs/metrics.md"

var metricsTable = regexp.MustCompile(`(?s)(<!-- metrics -->\n)(.*?)(<!-- end -->)`)

func TestThePageListsTheMetricsThatThereAre(t *testing.T) {
	described := make(chan *prometheus.Desc, 1000)
	watching().Describe(described)
	close(described)
	var table strings.Builder
	table.WriteString("| metric | kind | labels | tells |\n| --- | --- | --- | --- |\n")
	registered := map[string]bool{}
	for d := range described {
		registered[d.String()] = true
	}
	if all := metrics(); len(registered) != len(all) {
		t.Errorf("%d metrics are described, %d are known", len(registered), len(all))
	}
	for _, m := range metrics() {
		if !registered[m.desc.String()] {
			t.Errorf("%s is not registered", m.name)
		}
		kind := "gauge"
		if m.kind == prometheus.CounterValue {
			kind = "counter"
		}
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", m.name, kind, labels, m.help)
	}
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	found := metricsTable.FindSubmatch(page)
	switch {
	case found == nil:
		t.Fatal("the page has no place for the table")
	case string(found[2]) == table.String():
	case *updateDocs:
		page = metricsTable.ReplaceAll(page, []byte("${1}"+strings.ReplaceAll(table.String(), "$", "$$")+"${3}"))
		if err := os.WriteFile(metricsPage, page, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("docs/metrics.md is out of date: go test ./cmd/etl/internal/web -run Page -update")
	}
}
