package spec

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/pipeline/expr"
)

var update = flag.Bool("update", false, "write what the golden files should say")

// testOptions resolve variables from a fixed environment, and take flags from
// the first line of a file: # set: key=value.
func testOptions(data []byte) Options {
	opts := Options{
		Env: func(name string) (string, bool) {
			v, ok := map[string]string{"TOPIC": "bids", "EMPTY": "", "COUNT": "12", "EXPR": "price >", "KAFKA_PASSWORD": "sesame-open"}[name]
			return v, ok
		},
		ReadFile: func(path string) ([]byte, error) {
			switch filepath.Base(path) {
			case "password":
				return []byte("hunter2-secret\n"), nil
			case "auction.schema.json":
				return []byte(`{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "expires": {"type": "string", "format": "date-time"}}}`), nil
			case "broken.schema.json":
				return []byte(`{"type": "object", "properties": {"id": {"type": "whole"}}}`), nil
			case "list.schema.json":
				return []byte(`{"type": "array"}`), nil
			}
			return nil, os.ErrNotExist
		},
	}
	for line := range strings.Lines(string(data)) {
		if flag, ok := strings.CutPrefix(line, "# set: "); ok {
			opts.Set = append(opts.Set, strings.TrimSpace(flag))
		}
	}
	return opts
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}

func parseGolden(t *testing.T, path string) (*Pipeline, Diagnostics) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := Parse(filepath.Base(path), data, testOptions(data))
	compile(p)
	return p, p.Diagnostics()
}

func TestBadFilesPrintExactly(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".bad.yaml"), func(t *testing.T) {
			_, ds := parseGolden(t, path)
			var out bytes.Buffer
			if err := ds.Print(&out, false); err != nil {
				t.Fatal(err)
			}
			if !ds.HasErrors() && !strings.Contains(out.String(), "warning[") {
				t.Error("the file has no fault")
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".want", out.String())
		})
	}
}

func TestGoodFilesHaveNoFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".good.yaml"), func(t *testing.T) {
			p, ds := parseGolden(t, path)
			if len(ds) > 0 {
				var out bytes.Buffer
				_ = ds.Print(&out, false)
				t.Errorf("faults in a good file:\n%s", out.String())
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".want", string(p.Redacted()))
		})
	}
}

// compile stands for the engine, which compiles the expressions of a pipeline
// and reports their faults by the path of their keys: every totl is one, and coarse
// in a key, a source called untimed, and topics called weaker and expiring are warnings.
func compile(p *Pipeline) {
	check := func(config any, path []string) {
		if config == nil {
			return
		}
		for _, e := range Expressions(config) {
			if i := strings.Index(e.Expr.Text, "totl"); i >= 0 {
				p.Fault(below(path, e.Path...), expr.Errors{{Offset: i, Length: 4, Msg: `unknown field "totl"`, Help: `did you mean "total"?`}})
			}
		}
	}
	for _, s := range p.Sources {
		if s.Name == "untimed" {
			p.Warn(s.Path, CodeNoTime, "step a goes by event time, and without a timestamp that of each record of source untimed is loose", "add timestamp")
		}
	}
	for i := range p.Transforms {
		check(p.Transforms[i].Config, p.Transforms[i].ConfigPath())
	}
	for i := range p.Sinks {
		warnOfSettings(p, &p.Sinks[i])
		check(p.Sinks[i].Config, p.Sinks[i].ConfigPath())
		if c, ok := p.Sinks[i].Config.(*fakeKafkaSink); ok && c.Key.Text == "coarse" {
			p.Warn(below(p.Sinks[i].ConfigPath(), "key"), CodeCoarseKey,
				"rows are told apart by auction, and the key does not read auction: different rows replace each other", "put all of them into the key")
		}
		if c, ok := p.Sinks[i].Config.(*fakeKafkaSink); ok && c.Key.Text == "spread" {
			p.Warn(below(p.Sinks[i].ConfigPath(), "key"), CodeSpread,
				"rows come from the subtasks that own their auction, which the key does not read: where a change moves a row to another one, its tombstone can come behind its new row", "put all of them into the key")
		}
	}
}

func warnOfSettings(p *Pipeline, s *Sink) {
	c, ok := s.Config.(*fakeKafkaSink)
	if !ok {
		return
	}
	switch c.Topic {
	case "weaker":
		p.Warn([]string{"checkpoint", "mode"}, CodeWeaker, "sink sink promises exactly_once and the pipeline does not keep it", "leave mode out")
	case "expiring":
		p.Warn(below(s.ConfigPath(), "transaction_timeout"), CodeExpiry, "transaction_timeout, by default at most 15m, is shorter than interval + timeout + a restart", "set it")
	}
}
