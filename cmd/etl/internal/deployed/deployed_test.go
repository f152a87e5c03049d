// Package deployed tests that the files of deploy/ fit the program: their settings and
// pipelines load, and alerts and dashboards name metrics that there are.
package deployed

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-etl/sluice/cmd/etl/internal/daemon"
	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
	_ "github.com/sluice-etl/sluice/connectors/all"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
	_ "github.com/sluice-etl/sluice/storage/all"
)

// root is the top of the repository.
const root = "../../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// glob returns the files of a pattern, of which there is at least one.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("find %s: %v", pattern, err)
	}
	for i := range paths {
		if paths[i], err = filepath.Rel(root, paths[i]); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func TestSettingsOfEachDeploymentLoad(t *testing.T) {
	paths := append(glob(t, "deploy/helm/testdata/*.yaml"), "deploy/packaging/etl.yaml", "deploy/compose/etl.yaml")
	for _, path := range paths {
		s, err := daemon.LoadSettings(filepath.Join(root, path), nil, nil)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if s.Pipelines != "/etc/etl/pipelines" || s.StateDir != "/var/lib/etl" {
			t.Errorf("%s: pipelines in %q, state in %q", path, s.Pipelines, s.StateDir)
		}
	}
}

func TestPipelinesOfTheLocalStackLoad(t *testing.T) {
	for _, path := range glob(t, "deploy/compose/pipelines/*.yaml") {
		p, faults := spec.Parse(path, []byte(read(t, path)), spec.Options{
			Env:      func(name string) (string, bool) { return "kafka:9092", name == "KAFKA_BROKERS" },
			ReadFile: func(string) ([]byte, error) { return []byte("secret"), nil },
		})
		if !faults.HasErrors() {
			pipeline.NewPlan(p)
			faults = p.Diagnostics()
		}
		for _, f := range faults {
			t.Errorf("%s: %s", path, f.Msg)
		}
	}
}

// described matches the text of a description of a metric.
var described = regexp.MustCompile(`^Desc\{fqName: "(\w+)".*variableLabels: \{(.*)\}\}$`)

// metrics are those that the program shows, with their labels.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		web.NewMetrics(nil, nil).Describe(descs)
	}()
	found := map[string][]string{}
	for d := range descs {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("a description reads %s", d)
		}
		found[m[1]] = strings.Split(m[2], ",")
	}
	return found
}

// of the Go client: each process has them.
var ofProcess = []string{"process_resident_memory_bytes", "process_cpu_seconds_total", "go_goroutines"}

// used matches a metric with its selector, if it has one.
var used = regexp.MustCompile(`\b((?:etl|process|go)_\w+)(?:\{([^}]*)\})?`)

var selected = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)

// checkQuery reports metrics and labels of a query that there are not.
func checkQuery(t *testing.T, where, query string, have map[string][]string) {
	t.Helper()
	for _, m := range used.FindAllStringSubmatch(query, -1) {
		labels, ok := have[m[1]]
		if !ok {
			if !slices.Contains(ofProcess, m[1]) {
				t.Errorf("%s: the program has no metric %s", where, m[1])
			}
			continue
		}
		for _, l := range selected.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "instance" && l[1] != "job" && !slices.Contains(labels, l[1]) {
				t.Errorf("%s: %s has no label %s, but %s", where, m[1], l[1], strings.Join(labels, ", "))
			}
		}
	}
}

type rules struct {
	Groups []struct {
		Rules []struct {
			Alert       string
			Expr        string
			Annotations map[string]string
		}
	}
}

func alerts(t *testing.T) rules {
	t.Helper()
	var all rules
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/alerts.yaml")), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Groups) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}

func TestAlertsNameMetricsThatThereAre(t *testing.T) {
	have := metrics(t)
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			checkQuery(t, r.Alert, r.Expr, have)
		}
	}
}

// sections are the headings of the runbook with the text below each.
func sections(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, part := range strings.Split(read(t, "docs/runbook.md"), "\n## ")[1:] {
		heading, text, _ := strings.Cut(part, "\n")
		found[heading] = text
	}
	return found
}

func TestTheRunbookHasEachAlertAndNoOther(t *testing.T) {
	have := sections(t)
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			text, ok := have[r.Alert]
			delete(have, r.Alert)
			if !ok || !strings.Contains(text, "**Means.**") || !strings.Contains(text, "**Find.**") || !strings.Contains(text, "**Do.**") {
				t.Errorf("docs/runbook.md does not say of %s what it means, how to find the cause, and what to do", r.Alert)
			}
			if want := "/docs/runbook.md#" + strings.ToLower(r.Alert); !strings.HasSuffix(r.Annotations["runbook_url"], want) {
				t.Errorf("%s leads to %q, not to %s", r.Alert, r.Annotations["runbook_url"], want)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s has no summary or no description", r.Alert)
			}
		}
	}
	if len(have) > 0 {
		t.Errorf("docs/runbook.md has sections of no alert: %v", slices.Sorted(maps.Keys(have)))
	}
}

// board is a dashboard of Grafana, as far as tests look at it.
type board struct {
	UID           string
	Title         string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ UID string }
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct {
		RefID      string
		Expr       string
		Datasource struct{ UID string }
	}
}

func boards(t *testing.T) map[string]board {
	t.Helper()
	all := map[string]board{}
	for _, path := range glob(t, "deploy/grafana/*.json") {
		var b board
		if err := json.Unmarshal([]byte(read(t, path)), &b); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[path] = b
	}
	return all
}

func TestDashboardsNameMetricsThatThereAre(t *testing.T) {
	have := metrics(t)
	for path, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				checkQuery(t, path+": "+p.Title, q.Expr, have)
			}
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s: %s asks for nothing", path, p.Title)
			}
		}
	}
}

func TestDashboardsCanBeLoadedBesideEachOther(t *testing.T) {
	uids := map[string]string{}
	for path, b := range boards(t) {
		if other, taken := uids[b.UID]; taken || b.UID == "" || len(b.UID) > 40 {
			t.Errorf("%s has the uid %q, as %s", path, b.UID, other)
		}
		uids[b.UID] = path
		if b.SchemaVersion < 39 || b.Title == "" {
			t.Errorf("%s has the schema %d and the title %q", path, b.SchemaVersion, b.Title)
		}
		var names []string
		for _, v := range b.Templating.List {
			names = append(names, v.Name+" "+v.Type)
		}
		for _, want := range []string{"datasource datasource", "instance query", "pipeline query"} {
			if !slices.Contains(names, want) {
				t.Errorf("%s has the variables %v, without %s", path, names, want)
			}
		}
	}
}

func TestPanelsOfADashboardAreApart(t *testing.T) {
	for path, b := range boards(t) {
		ids, cells := map[int]bool{}, map[string]string{}
		for _, p := range b.Panels {
			if ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: the panel %s has the number %d of another one", path, p.Title, p.ID)
			}
			ids[p.ID] = true
			if p.Type != "row" && p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: the panel %s is bound to the data source %q", path, p.Title, p.Datasource.UID)
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					cell := fmt.Sprint(x, ",", y)
					if other, taken := cells[cell]; taken || x >= 24 {
						t.Fatalf("%s: the panel %s lies over %s, or beyond the edge", path, p.Title, other)
					}
					cells[cell] = p.Title
				}
			}
		}
	}
}
