package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	_ "github.com/sluice-etl/sluice/connectors/format/protobuf"

	"github.com/sluice-etl/sluice/connectors/format/registry"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// users is a registry with a subject that has evolved, and one that another refers to.
func users(t *testing.T) *srfake.Registry {
	t.Helper()
	reg := srfake.New()
	t.Cleanup(reg.Close)
	reg.SeedSchema("users-value", 1, 1, sr.Schema{Schema: `{"type":"record","name":"user","namespace":"shop","fields":[{"name":"id","type":"int"},{"name":"name","type":"string"},{"name":"gone","type":"string"}]}`})
	reg.SeedSchema("users-value", 2, 2, sr.Schema{Schema: `{"type":"record","name":"user","namespace":"shop","fields":[{"name":"id","type":"long"},{"name":"mail","type":["null","string"],"default":null},
		{"name":"title","type":"string","aliases":["name"]},{"name":"level","type":"double","default":1.5}]}`})
	reg.SeedSchema("money", 1, 3, sr.Schema{Schema: `{"type":"record","name":"money","namespace":"shop","fields":[{"name":"n","type":"int"}]}`})
	reg.SeedSchema("bids-value", 1, 4, sr.Schema{
		Schema:     `{"type":"record","name":"bid","namespace":"shop","fields":[{"name":"p","type":"money"}]}`,
		References: []sr.SchemaReference{{Name: "shop.money", Subject: "money", Version: 1}},
	})
	reg.SeedSchema("json-value", 1, 5, sr.Schema{Type: sr.TypeJSON, Schema: `{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}`})
	reg.SeedSchema("proto-value", 1, 6, sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; message A { int64 id = 1; }`})
	return reg
}

func TestValuesAreReadAsTheSchemaOfTheRegistryHasThem(t *testing.T) {
	const (
		v1 = "\x00\x00\x00\x00\x01\x02\x02a\x02x"
		v2 = "\x00\x00\x00\x00\x02\x04\x02\x02m\x02b\x00\x00\x00\x00\x00\x00\x00\x40"
		b1 = "\x00\x00\x00\x00\x04\x0e"
		p1 = "\x00\x00\x00\x00\x06\x00\x08\x07"
		av = "{avro: {registry: {url: URL}}}"
	)
	for _, tt := range []struct {
		name, format, schema, steps string
		values, want                []string
	}{
		{
			"the newest", av, "{subject: users-value}", "map: {id: id + 1, title: title, mail: mail ?? '-', level: level * 2}", []string{v1, v2},
			[]string{`{"id":2,"title":"a","mail":"-","level":3}`, `{"id":3,"title":"b","mail":"m","level":4}`},
		},
		{"a version", av, "{subject: users-value, version: 1}", "map: {id: id, name: name, gone: gone}", []string{v1}, []string{`{"id":1,"name":"a","gone":"x"}`}},
		{"one that refers to others", av, "{subject: bids-value, version: latest}", "map: {n: p.n}", []string{b1}, []string{`{"n":7}`}},
		{"of Protobuf", "{protobuf: {registry: {url: URL}}}", "{subject: proto-value}", "map: {n: id + 1}", []string{p1}, []string{`{"n":8}`}},
		{"of values without marks", "json", "{url: URL, subject: json-value}", "map: {n: id + 1}", []string{`{"id":1}`}, []string{`{"n":2}`}},
		{"only the types", "json", "{url: URL, subject: users-value, version: 1}", "map: {n: id + 1}", []string{`{"id":1,"name":"a","gone":"b"}`}, []string{`{"n":2}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "pipeline: read-as\nparallelism: 1\nsource: {feed: {name: FEED-in, format: " + tt.format + "}, schema: {registry: " + tt.schema + "}}\n" +
				"transforms: [{" + tt.steps + "}]\nsink: {collect: {name: TARGET-out}}\ncheckpoint: {storage: STORAGE, interval: 1s}\nrestart: none\n"
			w := pipelinetest.New(t, strings.ReplaceAll(text, "URL", `"`+users(t).URL()+`"`))
			for _, v := range tt.values {
				w.Feed("in", 1).Add(0, pipelinetest.Record{Value: v})
			}
			w.Feed("in", 1).End()
			if _, err := w.Run(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range w.Target("out").Rows() {
				got = append(got, r.Value)
			}
			equal(t, got, tt.want)
		})
	}
}

func TestASchemaOfARegistryIsCheckedWhenThePipelineIsLoaded(t *testing.T) {
	const av = "{avro: {registry: {url: URL}}}"
	for _, tt := range []struct{ format, schema, steps, want string }{
		{av, "{subject: users-value}", "filter: id > 0 && mial == null", "mial"},
		{av, "{subject: none}", "filter: id > 0", "there is no subject none"},
		{av, "{subject: users-value, version: 9}", "filter: id > 0", "subject users-value has no version 9"},
		{av, "{subject: users-value, version: 0}", "filter: id > 0", "a version of the subject from 1 on is wanted, or latest"},
		{av, "{subject: json-value}", "filter: id > 0", "it is of JSON, and the format is avro"},
		{av, "{version: 1}", "filter: id > 0", `needs the key "subject"`},
		{`{avro: {registry: {url: URL}, schema: '"int"'}}`, "{subject: users-value}", "filter: id > 0", "the format has a schema of its own"},
		{"json", "{subject: users-value}", "filter: id > 0", "the source's format has no registry"},
		{"json", "{url: 'http://127.0.0.1:1', subject: users-value, port: 1}", "filter: id > 0", "unknown key"},
	} {
		text := strings.ReplaceAll("pipeline: p\nsource: {feed: {name: x, format: "+tt.format+"}, schema: {registry: "+tt.schema+"}}\n"+
			"transforms: [{"+tt.steps+"}]\nsink: {collect: {name: x}}\n", "URL", `"`+users(t).URL()+`"`)
		p, _ := spec.Parse("p.yaml", []byte(text), spec.Options{ReadSchema: registry.Read})
		pipeline.NewPlan(p)
		if said := fmt.Sprint(p.Diagnostics()); !strings.Contains(said, tt.want) {
			t.Errorf("%s by %s: %s, want %q", tt.schema, tt.format, said, tt.want)
		}
	}
}

func TestARegistryIsNotAskedWhereNothingIsOpened(t *testing.T) {
	p, _ := spec.Parse("p.yaml", []byte("pipeline: p\nsource: {feed: {name: x}, schema: {registry: {url: 'http://127.0.0.1:1', subject: s}}}\n"+
		"transforms: [{filter: anything > 0}]\nsink: {collect: {name: x}}\n"), spec.Options{})
	pipeline.NewPlan(p)
	if p.Diagnostics().HasErrors() {
		t.Error(p.Diagnostics())
	}
}
