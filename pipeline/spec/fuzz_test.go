package spec

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzParse checks that no text makes the reader panic, that faults can be
// printed, and that a pipeline without faults reads back from its dump the same.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		start := time.Now()
		defer func() {
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%d bytes took %s", len(data), took)
			}
		}()
		p, _ := Parse("fuzz.yaml", data, testOptions(nil))
		compile(p)
		p.Fault([]string{"transforms", "0"}, io.EOF)
		ds := p.Diagnostics()
		for _, d := range ds {
			if d.End.off < d.Pos.off {
				t.Errorf("%s ends before it starts", d.Error())
			}
		}
		if err := ds.Print(io.Discard, true); err != nil {
			t.Error(err)
		}
		for _, s := range []string{p.Name, p.File} {
			_ = p.Position(s)
		}
		out := p.Redacted()
		if ds.HasErrors() || bytes.Contains(out, []byte(hidden)) {
			return
		}
		sameAgain(t, p, out)
	})
}

// sameAgain checks that a dump means what the pipeline means.
func sameAgain(t *testing.T, p *Pipeline, dump []byte) {
	t.Helper()
	again, ds := Parse("dump.yaml", dump, testOptions(nil))
	if ds.HasErrors() {
		var b strings.Builder
		_ = ds.Print(&b, false)
		t.Fatalf("the dump has faults:\n%s\n%s", b.String(), dump)
	}
	if got := again.Redacted(); !bytes.Equal(got, dump) {
		t.Fatalf("the dump reads back otherwise:\n%s\nfirst:\n%s", got, dump)
	}
	if again.Digest() != p.Digest() {
		t.Fatalf("the digest changed:\n%s", dump)
	}
}

// FuzzSet checks that no --set flag makes the reader panic.
func FuzzSet(f *testing.F) {
	for _, flag := range []string{"pipeline=x", "transforms.0.filter=a > 1", "a.b.c=[1, {x: y}]", "source={kafka: ", "=", ".=", "checkpoint=", "transforms.0=", "x=\"\\"} {
		f.Add(flag)
	}
	f.Fuzz(func(t *testing.T, flag string) {
		opts := testOptions(nil)
		opts.Set = []string{flag, flag}
		p, ds := Parse("fuzz.yaml", []byte(small), opts)
		compile(p)
		if err := ds.Print(io.Discard, true); err != nil {
			t.Error(err)
		}
		_ = p.Redacted()
	})
}
