//go:build integration

package iceberg

import (
	"os/exec"
	"strings"
	"testing"
)

// javaRows reads the table by Iceberg's own library, which also finds rows that are in a
// file of another partition than theirs.
func javaRows(t testing.TB, c SinkConfig) []string {
	t.Helper()
	return foreignRows(t, exec.Command("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", variable(t, "ICEBERG_CLASSPATH"),
		"testdata/ReadTable.java", loadTable(t, c).MetadataLocation()))
}

// pythonRows reads the table by PyIceberg.
func pythonRows(t testing.TB, c SinkConfig) []string {
	t.Helper()
	return foreignRows(t, exec.Command(variable(t, "PYTHON"), "testdata/read.py", loadTable(t, c).MetadataLocation()))
}

func foreignRows(t testing.TB, cmd *exec.Cmd) []string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return sortedLines(t, string(out))
}

func TestOtherReadersFindEveryTypeAsItWasWritten(t *testing.T) {
	c, want := typesTable(t)
	t.Run("java", func(t *testing.T) { sameRows(t, javaRows(t, c), want) })
	t.Run("python", func(t *testing.T) {
		// It gives an empty list for a null among lists of structs.
		same := func(lines []string) (out []string) {
			for _, line := range lines {
				out = append(out, strings.ReplaceAll(line, `"b":null`, `"b":[]`))
			}
			return out
		}
		sameRows(t, same(pythonRows(t, c)), same(want))
	})
}

func TestOtherReadersFindRowsInTheirPartitions(t *testing.T) {
	c, want := partitionsTable(t)
	t.Run("java", func(t *testing.T) { sameRows(t, javaRows(t, c), want) })
	t.Run("python", func(t *testing.T) { sameRows(t, pythonRows(t, c), want) })
}

// TestIcebergsOwnReaderFindsUpsertedRows is also about commits of several snapshots, which
// a catalog server takes or refuses as a whole.
func TestIcebergsOwnReaderFindsUpsertedRows(t *testing.T) {
	configs := upsertConfigs(t)
	rest := configs["partitioned"]
	served := restTable(t)
	rest.Catalog, rest.Table = served.Catalog, served.Table
	configs["in a REST catalog"] = rest
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			want := randomUpserts(t, c, func([]string) {})
			sameRows(t, javaRows(t, c), want)
		})
	}
}

func TestIcebergsOwnReaderFindsDeletesByKeysOfEveryType(t *testing.T) {
	c, want := keysTable(t)
	sameRows(t, javaRows(t, c), want)
}
