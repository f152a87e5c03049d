package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/storage"
	_ "github.com/sluice-etl/sluice/storage/all"
)

func TestAddresses(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ address, want, fault string }{
		{address: "/var/lib/etl", want: "file:///var/lib/etl"},
		{address: "/var/lib/etl/", want: "file:///var/lib/etl"},
		{address: "rel/path", want: "file://" + filepath.Join(wd, "rel/path")},
		{address: "./a b?c#d%41", want: "file://" + filepath.Join(wd, "a%20b%3Fc%23d%2541")},
		{address: "a:b", want: "file://" + filepath.Join(wd, "a:b")},
		{address: "file:///a%20b", want: "file:///a%20b"},
		{address: "FILE:///a", want: "file:///a"},
		{address: "file://localhost/a", want: "file:///a"},
		{address: "file:///a/../b", want: "file:///b"},
		{address: "mem://x/y", want: "mem://x/y"},
		{address: "", fault: "empty"},
		{address: "file://host/a", fault: "file:///host/a"},
		{address: "file://", fault: "no path"},
		{address: "file:/a", fault: "two slashes"},
		{address: "s3://key:secret@bucket/a", fault: "credentials"},
		{address: "mem://x?y=z", fault: "%3F"},
		{address: "s3://bucket/a/", want: "s3://bucket/a"},
		{address: "s3://bucket", want: "s3://bucket"},
		{address: "s3:///a", fault: "s3://bucket/prefix"},
		{address: "s3://host:9000/a", fault: "endpoint"},
		{address: "s3://a,b/a", fault: "no name of a bucket"},
		{address: "s3://bucket/a/../b", fault: "not a clean"},
		{address: "gs://bucket/a", fault: "file, "},
		{address: "mem:///a", fault: "mem://name"},
		{address: "a\x00b", fault: "zero byte"},
		{address: "http://[::1", fault: "no URL"},
	} {
		t.Run(c.address, func(t *testing.T) {
			f, err := storage.Open(c.address)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "secret") {
					t.Fatalf("got %v, want an error that says %q", err, c.fault)
				}
				return
			}
			if err != nil || f.URL() != c.want {
				t.Fatalf("got %v, %v; want %s", f, err, c.want)
			}
		})
	}
}

func TestAnAddressLeadsBackToItself(t *testing.T) {
	for _, address := range []string{t.TempDir(), t.TempDir() + "/a b%c#d", "mem://again"} {
		f, err := storage.Open(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := storage.WriteFile(t.Context(), f, "x", []byte("data")); err != nil {
			t.Fatal(err)
		}
		again, err := storage.Open(f.URL())
		if err != nil {
			t.Fatal(err)
		}
		if data, err := storage.ReadFile(t.Context(), again, "x", 10); err != nil || string(data) != "data" {
			t.Fatalf("%s: %q, %v", f.URL(), data, err)
		}
		if err := f.Remove(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"a/b", "..", "a/../b", "/a", "", "a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if storage.CheckName(name) != nil {
			return
		}
		if joined := filepath.Join("/root/x", name); !strings.HasPrefix(joined, "/root/x/") || !filepath.IsLocal(name) {
			t.Fatalf("%q leaves the root: %s", name, joined)
		}
	})
}
