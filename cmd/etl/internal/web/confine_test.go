package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/storage"
)

// tree is a folder with a root, something beside it, and links between them.
func tree(t testing.TB) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"root/in/deep", "rootbeside", "out/deep"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"root/away": "../out", "root/far": filepath.Join(base, "out"), "root/same": "in", "root/loop": "loop", "root/nowhere": "../out/made-later",
		"root/in/up": "..", "root/in/two": "up/away", "into": "root/in", "alias": "root",
	} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	return base
}

func TestPathsOfCallersStayBelowTheirRoots(t *testing.T) {
	base := tree(t)
	roots := []string{filepath.Join(base, "root"), "s3://bucket/etl/", "hdfs://nn:8020/etl", "s3://whole", "file:///no/such%20root"}
	for _, ok := range []string{
		base + "/root", base + "/root/", base + "/root/new/folder", "file://" + base + "/root/in", base + "/root/same/x", base + "/into/x", base + "/alias", base + "/root/in/up/in",
		base + "/root/in/../new", base + "/root/in/up/../out", base + "/out/../root", "file://localhost" + base + "/root", base + "/root/..x", base + "/root/%2e%2e",
		"s3://bucket/etl", "s3://bucket/etl/a/b", "S3://bucket/etl/x", "s3://whole/x", "hdfs://nn:8020/etl/x", "s3://bucket/%65tl/x", "/no/such root/x",
	} {
		got, err := confine(ok, roots)
		if err != nil {
			t.Errorf("%s: %v", ok, err)
			continue
		}
		if again, err := confine(got, roots); err != nil || again != got {
			t.Errorf("%s becomes %s, and that %s, %v", ok, got, again, err)
		}
	}
	for _, bad := range []string{
		base, base + "/rootbeside", base + "/out", base + "/root/../out", base + "/root/away", base + "/root/away/x", base + "/root/far/deep", base + "/root/in/two/x",
		base + "/root/loop", base + "/root/loop/x", base + "/root/nowhere", base + "/root/nowhere/x", base + "/ROOT", base + "/root\x00", "file://" + base + "/root%00x",
		"file://" + base + "/root/%2e%2e/out", "file://" + base + "/root/in%2f..%2f..%2fout", "file://other" + base + "/root", "root", "./root", "", "/", "/etc/passwd", "/proc/self/root" + base + "/out", "file:///", "file:" + base + "/root",
		"s3://bucket", "s3://bucket/", "s3://bucket/etl2", "s3://bucket/et", "s3://bucket/etl/../x", "s3://bucket/etl/%2e%2e/x", "s3://bucket/etl/..%2fx", "s3://bucket/etl//x", "s3://bucket/etl/./x", "s3://bucket/etl/a%5c..", "s3://bucket/etl/%00",
		"s3://bucket/etl/\u202e\x1b", "s3://bucket/ETL/x", "s3://Bucket/etl", "s3://bucket:80/etl", "s3://bucket@evil/etl", "s3://bucket/etl?x=/../", "s3://bucket/etl#x", "s3://bucket/etl/%ff", "s3://bücket/etl", "s3:/bucket/etl", "s3:bucket/etl",
		"hdfs://other:8020/etl", "hdfs://nn/etl", "hdfs:///etl", "hdfs://nn:8020/", "http://169.254.169.254/etl", "mem://x/etl", "ｓ3://bucket/etl",
	} {
		if got, err := confine(bad, roots); err == nil {
			t.Errorf("%q is let through as %s", bad, got)
		}
	}
	if _, err := confine("/x", nil); err == nil || !strings.Contains(err.Error(), "set http.roots") {
		t.Errorf("without roots: %v", err)
	}
}

func TestOnlyCallersFromOutsideAreConfined(t *testing.T) {
	if got, err := Confine(t.Context(), "/anywhere"); got != "/anywhere" || err != nil {
		t.Errorf("over the socket: %q, %v", got, err)
	}
	ctx := context.WithValue(t.Context(), rootsKey{}, func() []string { return []string{"/var/lib/etl"} })
	if got, err := Confine(ctx, ""); got != "" || err != nil {
		t.Errorf("the default: %q, %v", got, err)
	}
	var p *Problem
	if _, err := Confine(ctx, "/etc"); !errors.As(err, &p) || p.Status != http.StatusForbidden || !strings.Contains(p.Detail, "/var/lib/etl") {
		t.Errorf("outside: %v", err)
	}
}

// walk is where the system comes to by a path, element by element, without its links
// being looked at beforehand: the model of FuzzConfine. It ends where nothing is.
func walk(path string, links int) (string, bool) {
	at := "/"
	rest := strings.Split(path, "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		to, err := os.Readlink(next)
		if err != nil {
			at = next // a folder, a file, or nothing yet
			continue
		}
		if links--; links < 0 {
			return "", false
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return at, true
}

func TestARefusalNamesEachRootOnce(t *testing.T) {
	_, err := confine("/elsewhere", []string{"/var/lib/etl", "file:///var/lib/etl", "mem://orders", "/var/lib/etl"})
	if err == nil || strings.Count(err.Error(), "/var/lib/etl") != 1 || strings.Contains(err.Error(), "mem:") {
		t.Errorf("refused with %v", err)
	}
}

func FuzzConfine(f *testing.F) {
	base := tree(f)
	root := filepath.Join(base, "root")
	roots := []string{root, "s3://bucket/etl"}
	for _, seed := range []string{
		"", "x", "/in/deep", "/away/x", "/in/two", "/../out", "/in/up/away", "/%2e%2e/out", "/nowhere/x", "/loop", "/same/../../out", "//x", "/\x00", "/in/./deep", "/..%2f..", "/é/e\u0301", "/\u2025/", "/％2e", "beside",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		for _, address := range []string{root + path, "file://" + root + path, "s3://bucket/etl" + path, path} {
			got, err := confine(address, roots)
			if err != nil {
				continue
			}
			u, err := storage.Parse(got)
			if err != nil {
				t.Fatalf("%q becomes %q, which is no address: %v", address, got, err)
			}
			if u.Scheme == "s3" {
				inBucket(t, address, u)
				continue
			}
			if end, ok := walk(u.Path, 100); !ok || end != root && !strings.HasPrefix(end, root+"/") {
				t.Fatalf("%q becomes %q and leads to %q", address, got, end)
			}
		}
		// What is plainly below the root is let through.
		if plain := strings.Trim(path, "/"); storage.CheckName(plain) == nil && !strings.ContainsAny(plain, "%:") {
			end, ok := walk(filepath.Join(root, plain), 100)
			_, err := confine(filepath.Join(root, plain), roots)
			if inside := ok && (end == root || strings.HasPrefix(end, root+"/")); inside && err != nil && len(plain) < 200 && !strings.Contains(plain, "nowhere") {
				t.Fatalf("%q is refused: %v", plain, err)
			}
		}
	})
}

// inBucket is the model of object stores: their keys are text, and any program may take
// two dots for a step upwards.
func inBucket(t *testing.T, address string, u *url.URL) {
	t.Helper()
	if u.Host != "bucket" || u.Path != "/etl" && !strings.HasPrefix(u.Path, "/etl/") {
		t.Fatalf("%q leads to %q in %q", address, u.Path, u.Host)
	}
	for element := range strings.SplitSeq(strings.TrimSuffix(u.Path, "/")[1:], "/") {
		if element == "" || element == "." || element == ".." || strings.ContainsAny(element, "\x00\\") {
			t.Fatalf("%q has the element %q", address, element)
		}
	}
}
