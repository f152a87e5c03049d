//go:build integration

package soak

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
)

// pointsOf are the crash points that the code of a sink names, so that a new one is tested
// without being listed here.
func pointsOf(t *testing.T, sink string) []string {
	t.Helper()
	kind, _, _ := strings.Cut(sink, "-")
	packages := []string{kind}
	switch kind {
	case "file", "s3", "hdfs":
		packages = []string{"files"}
	case "postgres", "mysql", "clickhouse":
		packages = []string{kind, "deferred"}
	}
	var names []string
	for _, p := range packages {
		err := filepath.WalkDir(filepath.Join("..", "..", "..", "..", "connectors", p), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			found, err := namedIn(path)
			for _, n := range found {
				if !strings.HasPrefix(n, kind+".") {
					n = kind + "." + strings.TrimPrefix(n, ".")
				}
				names = append(names, n)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// namedIn finds the texts, and ends of texts, that are given to functions for crash points.
func namedIn(path string) (names []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		function := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			function = f.Name
		case *ast.SelectorExpr:
			function = f.Sel.Name
		}
		if !strings.EqualFold(function, "failpoint") && function != "crash" {
			return true
		}
		arg := call.Args[0]
		if sum, ok := arg.(*ast.BinaryExpr); ok {
			arg = sum.Y
		}
		if text, ok := arg.(*ast.BasicLit); ok { // else it hands on what it was given
			var name string
			name, err = strconv.Unquote(text.Value)
			names = append(names, name)
		}
		return err == nil
	})
	return names, err
}

// crashSinks are the sinks that are killed at each of their points, and how many points
// each has at least: fewer means that they are not found.
var crashSinks = map[string]int{
	"kafka": 6, "file": 8, "s3": 8, "hdfs": 8, "postgres" + refusing: 11, "postgres-upsert" + refusing: 13, "mysql" + refusing: 11, "clickhouse": 10, "iceberg": 4,
}

// startPoints are those that each start passes once.
var startPoints = []string{"before-owner-file", "after-owner-file", "before-owner-json-file", "after-owner-json-file"}

// hit is which passing of a point kills: the third, so that there is something to go back
// to and something to lose, or the first of those that a life passes once.
func hit(point string) string {
	if slices.Contains(startPoints, point) || strings.Contains(point, ".revoke.") || strings.HasPrefix(point, "clickhouse.rejected.") {
		return point + "=1"
	}
	return point + "=3"
}

// passes reports whether a pipeline with this sink passes a point: that of a table which is
// there makes none, and the commits that a start catches up with are a fence by themselves.
func passes(sink, point string) bool {
	if strings.HasPrefix(point, "iceberg.create.") || strings.HasPrefix(point, "iceberg.fence.") {
		return false
	}
	return sink != "postgres"+refusing || !strings.HasPrefix(point, "postgres.merge.")
}

func TestCrashAtEachNamedPoint(t *testing.T) {
	for sink, least := range crashSinks {
		t.Run(sink, func(t *testing.T) {
			t.Parallel()
			own := slices.DeleteFunc(pointsOf(t, sink), func(p string) bool { return !passes(sink, p) })
			if len(own) < least {
				t.Fatalf("%d points are found in the code, where there were %d: %v", len(own), least, own)
			}
			began := time.Now()
			j := newJob(t, sink, "")
			stop := j.ledger.feed(t, 2000, 1<<30)
			points := slices.Concat(checkpoint.Failpoints, own, startPoints)
			for _, point := range points {
				p := j.start(t, "SLUICE_FAILPOINT="+hit(point))
				p.wait(patience, killed)
			}
			stop()
			j.drain(t, j.start(t))
			t.Logf("%d records, a kill at each of %d points: 0 lost, 0 twice, in %v: %v", j.ledger.total(), len(points), time.Since(began).Round(time.Second), points)
		})
	}
}

// drain waits until all of the input has come out, ends the process and checks the result.
func (j *job) drain(t *testing.T, p *process) {
	t.Helper()
	p.poll(patience, time.Second, "every record came out of each sink", func() bool { return j.complete(t) })
	p.end()
	j.verify(t)
}
