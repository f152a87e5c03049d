//go:build integration

package soak

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// output is where a sink under test writes, and how someone else reads it.
type output struct {
	block string // the sink's block in the pipeline file
	more  string // further sinks that it needs
	read  func(t *testing.T, c *check)
}

// refusing is the end of the kinds of table that refuse every 500th row of a partition, which
// goes to a file of dead letters.
const refusing = "-refusing"

// place makes a new output for a sink.
func (j *job) place(t *testing.T, kind string) output {
	t.Helper()
	switch kind {
	case "kafka":
		j.out = j.name + "-out"
		createTopic(t, j.out)
		return output{
			block: fmt.Sprintf("kafka: {brokers: [%s], topic: %s}", strings.Join(brokers(t), ", "), j.out),
			read:  func(t *testing.T, c *check) { t.Helper(); c.readTopic(t, j.out) },
		}
	case "file":
		dir := filepath.Join(j.dir, "out")
		return output{block: filesBlock("file", dir, ""), read: func(t *testing.T, c *check) { t.Helper(); c.readFiles(t, dir) }}
	case "s3":
		return j.files("s3", "s3://"+variable(t, "S3_BUCKET")+"/"+j.name, "")
	case "s3-parquet":
		return j.files("s3", "s3://"+variable(t, "S3_BUCKET")+"/"+j.name, ", format: {parquet: {columns: [{p: int}, {n: int}, {text: string}, {seen: int}]}}")
	case "hdfs":
		return j.files("hdfs", variable(t, "HDFS_URL")+"/soak/"+j.name, "")
	case "clickhouse":
		return j.remembering(t)
	case "iceberg":
		return j.lake(t)
	}
	return j.table(t, kind)
}

func filesBlock(kind, path, more string) string {
	return fmt.Sprintf("%s: {path: %q, roll: {age: 700ms}, manifest: true%s}", kind, path, more)
}

func (j *job) files(kind, path, more string) output {
	return output{block: filesBlock(kind, path, more), read: func(t *testing.T, c *check) { t.Helper(); c.readElsewhere(t, "files", path) }}
}

// lake is an Iceberg table of a catalog in Postgres, with its files in S3.
func (j *job) lake(t *testing.T) output {
	t.Helper()
	variable(t, "POSTGRES_URL")
	warehouse := "s3://" + variable(t, "S3_BUCKET") + "/" + j.name
	return output{
		block: fmt.Sprintf(`iceberg: {catalog: {type: sql, url: "${POSTGRES_URL}", name: %s, warehouse: %q}, table: soak.rows, create: true, columns: [{p: int}, {n: int}, {seen: int}], unknown_fields: ignore}`, j.name, warehouse),
		read:  func(t *testing.T, c *check) { t.Helper(); c.readElsewhere(t, "iceberg", j.name, warehouse) },
	}
}

// table makes a table, one without a key where rows are inserted, so that one that came
// twice is there twice.
func (j *job) table(t *testing.T, kind string) output {
	t.Helper()
	rest, refuses := strings.CutSuffix(kind, refusing)
	server, mode, _ := strings.Cut(rest, "-")
	variable(t, strings.ToUpper(server)+"_URL")
	name := strings.ReplaceAll(j.name, "-", "_")
	columns := "p int NOT NULL, n int NOT NULL, seen int NOT NULL"
	more := ""
	if mode == "upsert" {
		columns += ", PRIMARY KEY (p, n)"
		more = ", mode: upsert, key: [p, n]"
	}
	more += "}"
	letters, dir := "", ""
	if refuses {
		columns += ", CHECK (n % 500 <> 499)"
		more += ", on_error: {dead_letter: letters}"
		dir = filepath.Join(j.dir, "letters")
		letters = fmt.Sprintf("letters: {%s}", filesBlock("file", dir, ""))
	}
	elsewhere(t, "sql", server, "CREATE TABLE "+name+" ("+columns+")")
	t.Cleanup(func() { elsewhere(t, "sql", server, "DROP TABLE "+name) })
	return output{
		block: fmt.Sprintf(`%s: {url: "${%s_URL}", table: %s, unknown_fields: ignore%s`, server, strings.ToUpper(server), name, more),
		more:  letters,
		read:  func(t *testing.T, c *check) { t.Helper(); c.readElsewhere(t, server, name, dir) },
	}
}

// remembering makes a table of ClickHouse, which drops blocks that come again.
func (j *job) remembering(t *testing.T) output {
	t.Helper()
	name := strings.ReplaceAll(j.name, "-", "_")
	elsewhere(t, "sql", "clickhouse", "CREATE TABLE "+name+" (p Int32, n Int32, seen Int32) ENGINE = MergeTree PARTITION BY p ORDER BY n SETTINGS non_replicated_deduplication_window = 100")
	t.Cleanup(func() { elsewhere(t, "sql", "clickhouse", "DROP TABLE "+name) })
	return output{
		block: fmt.Sprintf(`clickhouse: {url: "${CLICKHOUSE_URL}", username: "${CLICKHOUSE_USER}", password: "${CLICKHOUSE_PASSWORD}", table: %s, unknown_fields: ignore}`, name),
		read:  func(t *testing.T, c *check) { t.Helper(); c.readElsewhere(t, "clickhouse", name) },
	}
}

// elsewhere runs a Python program that knows nothing of this one.
func elsewhere(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(variable(t, "PYTHON"), append([]string{filepath.Join("testdata", "read.py")}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("read.py %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes()
}

func (c *check) readElsewhere(t *testing.T, args ...string) {
	t.Helper()
	if err := c.takeLines(bytes.NewReader(elsewhere(t, args...)), args[0]); err != nil {
		t.Fatal(err)
	}
}

// verify reads all of the job's outputs.
func (j *job) verify(t *testing.T) {
	t.Helper()
	for kind, o := range j.outputs {
		c := j.ledger.check()
		o.read(t, c)
		if err := c.result(); err != nil {
			t.Errorf("sink %s, after %d lives: %v", kind, j.lives, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// complete reports whether every record has come out of every sink.
func (j *job) complete(t *testing.T) bool {
	t.Helper()
	for _, o := range j.outputs {
		c := j.ledger.check()
		o.read(t, c)
		if c.lost() > 0 {
			return false
		}
	}
	return true
}
