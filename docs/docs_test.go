// Package docs holds the pages of documentation. Its tests keep them true: every
// pipeline in them loads, and the tables of keys are those of the program.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	_ "github.com/sluice-etl/sluice/connectors/all"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
	_ "github.com/sluice-etl/sluice/storage/all"
)

// block is one fenced block of YAML. The word fragment after its language says
// that it lacks some of what a pipeline needs, and the test adds it.
type block struct {
	file     string
	line     int
	fragment bool
	text     string
}

// pages are the Markdown files of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			out = append(out, path)
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("find the pages: %v", err)
	}
	return out
}

func blocks(t *testing.T, file string) []block {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	var open *block
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open != nil:
			out = append(out, *open)
			open = nil
		case fence && (info == "yaml" || info == "yaml fragment"):
			open = &block{file: file, line: n, fragment: info != "yaml"}
		case fence && strings.HasPrefix(info, "yaml"):
			t.Errorf("%s:%d: a block is `yaml` or `yaml fragment`, not %q", file, n, info)
		case open != nil:
			open.text += line
		}
	}
	return out
}

// What a fragment may lack, by the keys any of which provides it.
var missing = []struct{ keys, text string }{
	{`pipeline`, "pipeline: fragment\n"},
	{`sources?`, "source: {generate: {kind: bid}}\n"},
	{`sinks?`, "sink: {blackhole: {}}\n"},
}

// whole is the block as a pipeline, with its lines where they are on the page.
func (b block) whole() string {
	text := strings.Repeat("\n", b.line) + b.text
	if b.fragment {
		for _, m := range missing {
			if !regexp.MustCompile(`(?m)^` + m.keys + `:`).MatchString(b.text) {
				text += m.text
			}
		}
	}
	return text
}

// variable is the environment that the files are read in.
func variable(name string) (string, bool) {
	value, ok := map[string]string{
		"KAFKA_BROKERS": "localhost:9092", "BENCH_RUN": "1", "BENCH_TOPIC": "bids", "BENCH_OUT": "out", "BENCH_DIR": "/tmp/bench",
		"BENCH_COUNT": "1000", "BENCH_URL": "http://localhost:8080/bids", "S3_BUCKET": "bucket", "HDFS_URL": "hdfs://localhost:8020",
		"POSTGRES_URL": "postgres://etl@localhost:5432/etl", "MYSQL_URL": "mysql://etl@localhost:3306/etl", "OPENSEARCH_URL": "http://localhost:9200",
		"REDIS_ADDR": "localhost:6379", "MONGODB_URL": "mongodb://localhost:27017",
		"CLIENT_SECRET": "x", "SEARCH_PASSWORD": "x",
	}[name]
	return value, ok
}

func check(t *testing.T, name, text string) {
	t.Helper()
	p, faults := spec.Parse(name, []byte(text), spec.Options{Env: variable})
	if !faults.HasErrors() {
		pipeline.NewPlan(p)
		faults = p.Diagnostics()
	}
	if faults.HasErrors() {
		var b strings.Builder
		_ = faults.Print(&b, false)
		t.Errorf("%s", b.String())
	}
}

func TestEveryPipelineOnAPageLoads(t *testing.T) {
	found := 0
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			found++
			check(t, b.file, b.whole())
		}
	}
	if found == 0 {
		t.Error("there is no pipeline on any page")
	}
}

func TestEveryPipelineFileOfTheRepositoryLoads(t *testing.T) {
	files, err := filepath.Glob("../bench/workloads/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the workloads: %v", err)
	}
	examples, err := filepath.Glob("../pipelines/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, examples...) {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		check(t, f, string(text))
	}
}

var link = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)

func TestEveryLinkBetweenPagesLeadsSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
