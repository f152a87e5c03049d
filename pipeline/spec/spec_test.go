package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

func readGood(t *testing.T, name string) *Pipeline {
	t.Helper()
	p, ds := parseGolden(t, filepath.Join("testdata", name+".good.yaml"))
	if ds.HasErrors() {
		t.Fatal(ds[0].Error())
	}
	return p
}

func TestStraightPipelineNeedsNoFrom(t *testing.T) {
	p := readGood(t, "first")
	if got := p.Transforms[0].From; !slices.Equal(got, []Ref{{Node: "source"}}) {
		t.Errorf("the first step reads %v", got)
	}
	if got := p.Sinks[0].From; !slices.Equal(got, []Ref{{Node: "set-2"}}) {
		t.Errorf("the sink reads %v", got)
	}
	if s := p.Sources[0]; s.Name != "source" || s.UID != "source" || s.Kind != "kafka" || s.Format.Name != "json" || s.Timestamp.Text != "date_time" {
		t.Errorf("source is %+v", s)
	}
	if got := p.Sources[0].Config.(*fakeKafkaSource).Topics; !slices.Equal(got, []string{"bid"}) {
		t.Errorf("one topic reads as %v", got)
	}
	if p.Parallelism != 0 || p.MaxParallelism != 128 || p.Restart.Strategy != RestartExponential || p.Checkpoint.Retained != 3 {
		t.Errorf("defaults are %+v", p)
	}
}

func TestGraphIsResolved(t *testing.T) {
	p := readGood(t, "graph")
	if got := p.Transforms[0].From; !slices.Equal(got, []Ref{{Node: "clicks"}, {Node: "demo"}}) {
		t.Errorf("a union reads %v", got)
	}
	low := p.Transforms[2]
	if low.Name != "low" || low.UID != "lower" || !low.Named || !slices.Equal(low.From, []Ref{{"split", "rest"}}) {
		t.Errorf("step is %+v", low)
	}
	for _, s := range p.Sinks {
		switch s.Name {
		case "big":
			if !slices.Equal(s.From, []Ref{{"split", "big"}}) {
				t.Errorf("sink big reads %v", s.From)
			}
		case "dlq":
			if len(s.From) != 0 || s.OnError.Action != Fail || s.Format.Name != "json" || !slices.Contains([]any{true}, s.Format.Options["strict"]) {
				t.Errorf("sink of dead letters is %+v", s)
			}
		}
	}
	if e := p.Transforms[0].OnError; e.Action != DeadLetter || e.Sink != "dlq" || e.Max != 100 {
		t.Errorf("a step does not inherit on_error: %+v", e)
	}
	if e := p.Transforms[3].OnError; e != (OnError{Action: Fail}) {
		t.Errorf("a step does not keep its own on_error: %+v", e)
	}
	if !p.Checkpoint.LostCommitWritten || p.Checkpoint.TolerableFailures != Unlimited {
		t.Errorf("checkpoint is %+v", p.Checkpoint)
	}
}

func TestVariablesAndFlagsAreTyped(t *testing.T) {
	p := readGood(t, "variables")
	if p.Parallelism != 12 {
		t.Errorf("a plain variable is no number: %d", p.Parallelism)
	}
	c := p.Sources[0].Config.(*fakeKafkaSource)
	if c.Client["request.timeout.ms"] != "12" || c.SASL.Username != "u${x}" || c.SASL.Password != "hunter2-secret" {
		t.Errorf("config is %+v %+v", c, c.SASL)
	}
	if !slices.Equal(c.Topics, []string{"x", "y"}) {
		t.Errorf("--set gave topics %v", c.Topics)
	}
	if got := p.Checkpoint.Interval.String(); got != "2m0s" {
		t.Errorf("--set gave interval %s", got)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	p := readGood(t, "variables")
	p.Fault([]string{"source", "kafka"}, errors.New("login with hunter2-secret failed"))
	p.Fault([]string{"sink", "kafka"}, &connectors.FieldError{Key: "topic", Msg: "sesame-open is wrong", Help: "not sesame-open"})
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	diags, err := json.Marshal(p.Diagnostics())
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := p.Diagnostics().Print(&printed, false); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{string(p.Redacted()), string(text), string(diags), printed.String()} {
		if strings.Contains(out, "hunter2") || strings.Contains(out, "sesame") {
			t.Errorf("a secret is shown in:\n%s", out)
		}
	}
}

func TestSecretsInNamedExpressionsAreNotShown(t *testing.T) {
	file := []byte(`
pipeline: hashes
source: {generate: {}}
transforms:
  - set: {id: 'sha256(user + "${file:password}")', plain: a + 1}
sink: {stdout: {}}
checkpoint: {storage: "file:///x"}
`)
	p, ds := Parse("hashes.yaml", file, testOptions(nil))
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	if out := string(p.Redacted()); strings.Contains(out, "hunter2") || !strings.Contains(out, `id: "***"`) || !strings.Contains(out, "plain: a + 1") {
		t.Errorf("shown as:\n%s", out)
	}
}

func TestDumpReadsBackTheSame(t *testing.T) {
	for _, name := range []string{"first", "graph", "anchors", "styles"} {
		t.Run(name, func(t *testing.T) {
			p := readGood(t, name)
			sameAgain(t, p, p.Redacted())
		})
	}
}

const small = `pipeline: small
source: {kafka: {brokers: ["a:1"], topics: [t], sasl: {mechanism: plain, username: u, password: "${PW}"}}}
transforms:
  - filter: a > 1
sink: {blackhole: {}}
checkpoint: {storage: "file:///x"}
`

func digest(t *testing.T, text, password string) string {
	t.Helper()
	p, ds := Parse("a.yaml", []byte(text), Options{Env: func(string) (string, bool) { return password, true }})
	if ds.HasErrors() {
		t.Fatal(ds[0].Error())
	}
	return p.Digest()
}

func TestDigestFollowsTheMeaning(t *testing.T) {
	base := digest(t, small, "one")
	same := map[string]string{
		"comment":     "# hello\n" + small,
		"description": small + "description: what it does\n",
		"default":     strings.Replace(small, `"file:///x"`, `"file:///x", interval: 60s`, 1),
		"layout":      strings.Replace(small, "- filter: a > 1", "- filter: 'a > 1'", 1),
		"crlf":        strings.ReplaceAll(small, "\n", "\r\n"),
	}
	for name, text := range same {
		if digest(t, text, "one") != base {
			t.Errorf("%s changes the digest", name)
		}
	}
	if digest(t, small, "two") != base {
		t.Error("a secret changes the digest")
	}
	other := map[string]string{
		"expression": strings.Replace(small, "a > 1", "a > 2", 1),
		"key":        strings.Replace(small, "topics: [t]", "topics: [u]", 1),
		"order":      strings.Replace(small, "transforms:\n", "transforms:\n  - drop: x\n", 1),
	}
	for name, text := range other {
		if digest(t, text, "one") == base {
			t.Errorf("another %s does not change the digest", name)
		}
	}
}

func TestFaultPointsAtItsKeys(t *testing.T) {
	const text = `pipeline: x
source: {generate: {}}
transforms:
  - name: a
    set:
      one: 'it''s + bad'
sink: {stdout: }
checkpoint: {storage: "file:///x"}
`
	tests := []struct {
		name string
		path []string
		err  error
		want string
	}{
		{"value", []string{"transforms", "0", "set", "one"}, errors.New("m"), "x.yaml:6:12"},
		{"expression", []string{"transforms", "0", "set", "one"}, fmt.Errorf("compile: %w", &expr.Error{Offset: 7, Length: 3, Msg: "m"}), "x.yaml:6:21"},
		{"missing key", []string{"transforms", "0", "set", "two"}, errors.New("m"), "x.yaml:5:5"},
		{"missing block", []string{"sink", "stdout", "path", "deep"}, errors.New("m"), "x.yaml:7:8"},
		{"missing top", []string{"restart"}, errors.New("m"), "x.yaml:1:1"},
		{"field", []string{"transforms", "0"}, &connectors.FieldError{Key: "set.one", Msg: "m"}, "x.yaml:6:12"},
		{"field that is missing", []string{"transforms", "0"}, &connectors.FieldError{Key: "set.two", Msg: "m"}, "x.yaml:5:5"},
		{"list index", []string{"transforms", "7"}, errors.New("m"), "x.yaml:3:1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, ds := Parse("x.yaml", []byte(text), Options{})
			if len(ds) > 0 {
				t.Fatal(ds[0].Error())
			}
			p.Fault(tt.path, tt.err)
			got := p.Diagnostics()
			if len(got) != 1 || got[0].Pos.String() != tt.want {
				t.Errorf("got %v, want a fault at %s", got, tt.want)
			}
		})
	}
}

func TestJoinedFaultsAreTakenApart(t *testing.T) {
	p, _ := Parse("x.yaml", []byte(small), Options{Env: func(string) (string, bool) { return "", true }})
	p.Fault([]string{"transforms", "0", "filter"}, errors.Join(
		expr.Errors{{Offset: 0, Length: 1, Msg: "one"}, {Offset: 4, Length: 1, Msg: "two"}},
		errors.New("three"),
	))
	if n := len(p.Diagnostics()); n != 3 {
		t.Errorf("%d faults: %v", n, p.Diagnostics())
	}
}

func TestPositionOfKeys(t *testing.T) {
	p := readGood(t, "graph")
	for want, keys := range map[string][]string{
		"graph.good.yaml:1:11":  {"pipeline"},
		"graph.good.yaml:8:12":  {"checkpoint", "storage"},
		"graph.good.yaml:21:11": {"transforms", "0", "name"},
		"graph.good.yaml:7:1":   {"checkpoint", "nothing"},
	} {
		if got := p.Position(keys...).String(); got != want {
			t.Errorf("%v is at %s, want %s", keys, got, want)
		}
	}
}

func TestExpressionsAreFoundInConfigurations(t *testing.T) {
	config := &fakeKafkaSink{Key: connectors.Expr{Text: "a"}, Headers: connectors.Assignments{{Name: "h", Expr: connectors.Expr{Text: "b"}}}}
	got := Expressions(config)
	if len(got) != 2 || got[0].Path[0] != "key" || !slices.Equal(got[1].Path, []string{"headers", "h"}) {
		t.Fatalf("got %v", got)
	}
	got[1].Expr.Slot = 7
	if config.Headers[0].Expr.Slot != 7 {
		t.Error("a slot set on a found expression does not reach the configuration")
	}
	files := &fakeFileSink{PartitionBy: []connectors.Expr{{Text: "x"}, {Text: "y"}}}
	if got := Expressions(files); len(got) != 2 || !slices.Equal(got[1].Path, []string{"partition_by", "1"}) {
		t.Fatalf("got %v", got)
	}
}

// TestCharactersOfScalarsAreFound writes random texts in each style of YAML and
// checks that each character is found where it stands in the file.
func TestCharactersOfScalarsAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune(`abc'"\<(é名😀.`)), 1, 6, -1), 1, 6).Draw(t, "words")
		style := rapid.SampledFrom([]string{"plain", "single", "double", "literal", "folded"}).Draw(t, "style")
		breaks := rapid.SliceOfN(rapid.SampledFrom([]string{" ", "  ", "\n", "\n\n"}), len(words), len(words)).Draw(t, "breaks")
		checkStyle(t, style, words, breaks)
	})
}

// checkStyle writes words with what stands between them as one scalar.
func checkStyle(t *rapid.T, style string, words, breaks []string) {
	var body strings.Builder
	for i, w := range words {
		switch style {
		case "single":
			w = strings.ReplaceAll(w, "'", "''")
		case "double":
			w = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "é", `\u00e9`).Replace(w)
		case "plain":
			w = "x" + w
		}
		body.WriteString(w)
		if i < len(words)-1 {
			body.WriteString(strings.ReplaceAll(breaks[i], "\n", "\n    "))
		}
	}
	text := map[string]string{
		"plain": "k: " + body.String() + "\n", "single": "k: '" + body.String() + "'\n", "double": `k: "` + body.String() + "\"\n",
		"literal": "k: |\n    " + body.String() + "\n", "folded": "k: >-\n    " + body.String() + "\n",
	}[style]
	f := newFile("f", []byte(text))
	root := parseFile(f, func(d Diagnostic) { t.Fatalf("%s in %q", d.Error(), text) })
	n := root.get("k")
	for i, c := range n.text {
		at := n.place(i, utf8.RuneLen(c))
		found := text[at.start:at.end]
		if c == ' ' || c == '\n' || strings.HasPrefix(found, `\`) || found == "''" {
			continue
		}
		if found != string(c) {
			t.Fatalf("%q of %q is found as %q at %d in %q", c, n.text, found, at.start, text)
		}
	}
}

func TestNearestNameIsNeverInvented(t *testing.T) {
	names := []string{"interval", "topic", "topics", "exactly_once", "on"}
	for name, want := range map[string]string{
		"intervall": "interval", "topik": "topic", "tpoic": "topic", "exactly-once": "exactly_once", "ExactlyOnce": "exactly_once",
		"at": "", "retained": "", "": "",
	} {
		if got := connectors.Nearest(name, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", name, got, want)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]Code{filepath.Join(dir, "missing.yaml"): CodeRead, dir: CodeRead, large: CodeLimit} {
		p, ds := Load(path, Options{})
		if p == nil || len(ds) != 1 || ds[0].Code != code {
			t.Errorf("%s: %v, want %s", path, ds, code)
		}
	}
}

func TestLoadReadsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(path, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PW", "from-environment")
	p, ds := Load(path, Options{})
	if ds.HasErrors() || p.Sources[0].Config.(*fakeKafkaSource).SASL.Password != "from-environment" {
		t.Errorf("got %v %+v", ds, p.Sources)
	}
}

func TestHostileFilesAreRefusedBeforeTheyAreParsed(t *testing.T) {
	for name, text := range map[string]string{
		"brackets": strings.Repeat("[", 200_000), "dashes": strings.Repeat("- ", 100_000), "keys": strings.Repeat("abcd: 1\n", 100_000),
		"anchors": strings.Repeat("- &a b\n", 60_000), "items": "a: [" + strings.Repeat("b,", 100_000) + "]", "questions": strings.Repeat("? ", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			_, ds := Parse("x.yaml", []byte(text), Options{})
			if len(ds) != 1 || ds[0].Code != CodeLimit {
				t.Errorf("got %v", ds)
			}
		})
	}
}

func TestEveryCodeHasAGoldenFile(t *testing.T) {
	files, err := filepath.Glob("testdata/*.want")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	source, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(source), "\n") {
		_, rest, ok := strings.Cut(line, ` = "`)
		if !ok {
			continue
		}
		code, _, _ := strings.Cut(rest, `"`)
		if code != string(CodeRead) && !strings.Contains(all.String(), "["+code+"]") {
			t.Errorf("no golden file shows %s", code)
		}
	}
}

func TestColorsSurroundWhatMatters(t *testing.T) {
	_, ds := Parse("x.yaml", []byte("pipeline: X\n"), Options{})
	var b strings.Builder
	if err := ds.Print(&b, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), red+"error[E0304]"+reset) || !strings.Contains(b.String(), red+"^"+reset) {
		t.Errorf("got %q", b.String())
	}
}

func TestDiagnosticsAsJSON(t *testing.T) {
	_, ds := Parse("x.yaml", []byte("pipeline: a\npipeline: b\nsource: {generate: {}}\nsink: {stdout: }\ncheckpoint: {storage: \"file:///x\"}\n"), Options{})
	got, err := json.Marshal(ds)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"severity":"error","code":"E0104","file":"x.yaml","line":2,"column":1,"end_line":2,"end_column":9,` +
		`"message":"the key \"pipeline\" is written twice","help":"remove one of the two",` +
		`"notes":[{"file":"x.yaml","line":1,"column":1,"message":"it is here for the first time"}]}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTerminalIsKeptFromControlCharacters(t *testing.T) {
	_, ds := Parse("x.yaml", []byte("pipeline: \"a\\e[31m\"\n\"b\\u202e\": 1\n"), Options{})
	var b strings.Builder
	if err := ds.Print(&b, false); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\u202e") {
		t.Errorf("got %q", b.String())
	}
}

func BenchmarkParse(b *testing.B) {
	data, err := os.ReadFile("testdata/graph.good.yaml")
	if err != nil {
		b.Fatal(err)
	}
	opts := testOptions(data)
	b.ReportAllocs()
	for b.Loop() {
		Parse("graph.yaml", data, opts)
	}
}

func TestWarningsOfOthersAreNoErrors(t *testing.T) {
	p := readGood(t, "graph")
	p.Warn([]string{"sinks", "big", "file"}, CodeStepUnread, "m", "h")
	ds := p.Diagnostics()
	if len(ds) != 1 || ds.HasErrors() || ds[0].Error() != "warning[W0501] graph.good.yaml:38:9: m" {
		t.Errorf("got %v", ds)
	}
}

// A password within an address is not shown either, where the fault is that it stands there.
func TestPasswordsInAddressesAreNotShown(t *testing.T) {
	for name, address := range map[string]string{"as it is": "redis://etl:hunter2@a:1", "by a variable": "redis://etl:${KAFKA_PASSWORD}@a:1", "with a host before": "a:1,redis://etl:hunter2@a:1"} {
		_, ds := Parse("p.yaml", []byte("pipeline: p\nsource: {kafka: {brokers: [\""+address+"\"], topics: [t], x: y}}\nsink: {kafka: {brokers: [a:1], topic: t}}\n"), testOptions(nil))
		var out strings.Builder
		if err := ds.Print(&out, false); err != nil {
			t.Fatal(err)
		}
		if !ds.HasErrors() || strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), "sesame") {
			t.Errorf("%s: %s", name, &out)
		}
	}
}

func TestSecretsInOptionsOfFormatsAreNotShown(t *testing.T) {
	const inner = `{json_schema: {registry: {url: "http://r:1", username: etl, password: hunter2}}}`
	p, ds := Parse("p.yaml", []byte("pipeline: p\nsource: {kafka: {brokers: [a:1], topics: [t], format: {debezium: {format: "+inner+"}}}}\nsink: {kafka: {brokers: [a:1], topic: t, format: "+inner+"}}\n"), testOptions(nil))
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	if out := string(p.Redacted()); strings.Contains(out, "hunter2") || strings.Count(out, "***") != 2 || strings.Count(out, "username: etl") != 2 {
		t.Errorf("it shows:\n%s", out)
	}
}
