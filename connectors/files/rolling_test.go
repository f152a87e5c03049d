package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
)

// byHour partitions rows by the value in slot 0; slot 1 is when the hour is over.
func byHour(c *SinkConfig) {
	if err := c.PartitionBy.UnmarshalConfig("hour={h}"); err != nil {
		panic(err)
	}
	c.Roll.Watermark = connectors.Expr{Text: "end", Slot: 1}
}

// hourRows are rows with the slots that byHour reads.
func hourRows(at time.Time, values ...string) *connectors.Rows {
	rows := &connectors.Rows{Batch: new(connectors.Batch)}
	rows.Batch.Size(len(values), 2)
	for i, v := range values {
		rows.Sel = append(rows.Sel, uint16(i))
		rows.Values = append(rows.Values, []byte(v))
		slots := rows.Batch.Row(i)
		slots[0] = connectors.StringValue(at.Format("15"))
		slots[1] = connectors.TimestampValue(at.Truncate(time.Hour).Add(time.Hour))
	}
	return rows
}

// checkpointAt runs a checkpoint with a watermark.
func (b *bench) checkpointAt(roll bool, watermark int64) connectors.Prepared {
	b.t.Helper()
	b.number++
	id := connectors.CheckpointID{Generation: 5, Number: b.number}
	prepare, err := b.writer.Barrier(b.t.Context(), connectors.Barrier{ID: id, Roll: roll, Watermark: watermark})
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := prepare(b.t.Context(), &b.files)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range p.Committables {
		if err := b.sink.Committer().Commit(b.t.Context(), c, false); err != nil {
			b.t.Fatal(err)
		}
	}
	b.sink.Committer().Done(id)
	b.files.Retain(p.Files)
	return p
}

// restart ends the process and goes on from a checkpoint in another one.
func (b *bench) restart(from connectors.Prepared) { b.restartAs(true, from) }

// restartAs is a restart as the same job, or as a new one.
func (b *bench) restartAs(own bool, from connectors.Prepared) {
	b.t.Helper()
	old := b.sink
	if err := b.writer.Close(); err != nil {
		b.t.Fatal(err)
	}
	s, err := NewSink(old.config)
	if err != nil {
		b.t.Fatal(err)
	}
	s.fs, s.now, s.run = old.fs, old.now, old.run
	if err := s.Open(b.t.Context(), old.env); err != nil {
		b.t.Fatal(err)
	}
	if err := s.Committer().Revoke(b.t.Context(), nil); err != nil {
		b.t.Fatal(err)
	}
	if err := s.Start(b.t.Context(), connectors.Restored{Subtasks: []connectors.Prepared{from}, Files: &b.files, Own: own}); err != nil {
		b.t.Fatal(err)
	}
	b.sink = s
	if b.writer, err = s.Writer(0); err != nil {
		b.t.Fatal(err)
	}
}

// An hour of checkpoints every 10 s and rows by hour leaves files of the size that is
// asked for, whatever the format and though the process is restarted every 5 minutes.
// A kilobyte stands for a megabyte: 128 of them are a file, and the hour has more than
// three times that.
func TestAnHourOfShortCheckpointsLeavesFilesOfTheirSize(t *testing.T) {
	cols := []any{pair("n", "int"), pair("text", "string")}
	for name, f := range map[string]connectors.FormatConfig{
		"json": {Name: formatJSON}, "parquet": formatWith(formatParquet, cols, nil), "avro": formatWith(formatAvro, cols, nil),
		"csv": formatWith(formatCSV, []any{pair("n", "int"), pair("text", "string"), pair("tags", []any{"int"})}, nil),
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { shortCheckpoints(t, f) }) })
	}
}

func shortCheckpoints(t *testing.T, f connectors.FormatConfig) {
	const target = 128 << 10
	b := newBench(t, mem.New(), func(c *SinkConfig) {
		byHour(c)
		c.Format, c.Compression = f, "none"
		c.Roll.Size = target
	})
	b.sink.now = time.Now
	begin := time.Now().Truncate(time.Hour)
	rows := 0
	for i := range 360 {
		now := begin.Add(time.Duration(i) * 10 * time.Second)
		for range 10 {
			text := fmt.Sprintf(`{"n":%d,"text":"%0100x"}`, rows, rows*7919*rows)
			if err := b.writer.Write(t.Context(), hourRows(now, text)); err != nil {
				t.Fatal(err)
			}
			rows++
		}
		time.Sleep(10 * time.Second)
		p := b.checkpointAt(false, now.UnixMilli())
		if i%30 == 29 {
			b.restart(p)
		}
	}
	b.checkpointAt(false, begin.Add(time.Hour).UnixMilli()) // the hour is over
	infos, err := b.sink.fs.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	total, small := int64(0), 0
	for _, info := range infos {
		total += info.Size
		t.Logf("%s: %d bytes", info.Name, info.Size)
		if info.Size > target*14/10 {
			t.Errorf("%s has %d bytes, the target is %d", info.Name, info.Size, target)
		}
		if info.Size < target*7/10 {
			small++
		}
	}
	if small > 1 {
		t.Errorf("%d files are far from the target, and not only the last", small)
	}
	if want := int(total/target) + 1; len(infos) < 2 || len(infos) > want+1 {
		t.Errorf("%d files hold %d bytes", len(infos), total)
	}
}

func TestAPartitionsFileEndsWhenTheWatermarkPassesIt(t *testing.T) {
	for name, own := range map[string]bool{"the same job": true, "a new job, before the files of the old are removed": false} {
		t.Run(name, func(t *testing.T) { endsByWatermark(t, own) })
	}
}

func endsByWatermark(t *testing.T, own bool) {
	b := newBench(t, mem.New(), byHour)
	at := time.Date(2026, 1, 31, 10, 59, 0, 0, time.UTC)
	write := func(at time.Time, v string) {
		t.Helper()
		if err := b.writer.Write(t.Context(), hourRows(at, v)); err != nil {
			t.Fatal(err)
		}
	}
	write(at, "1")
	write(at.Add(2*time.Minute), "2")
	if b.checkpointAt(false, at.UnixMilli()); len(b.visible()) != 0 {
		t.Errorf("files %q appeared before the hour was over", b.visible())
	}
	p := b.checkpointAt(false, at.Add(time.Minute).UnixMilli())
	if got := b.visible(); len(got) != 1 || !strings.HasPrefix(got[0], "hour=10/p-s-g5-") {
		t.Errorf("files %q", got)
	}
	b.restartAs(own, p)
	b.checkpointAt(false, at.Add(time.Hour).UnixMilli())
	if b.checkpointAt(false, math.MaxInt64); len(b.visible()) != 2 {
		t.Errorf("files %q at the end", b.visible())
	}
	if got := b.lines(); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("lines %q", got)
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	b := newBench(t, mem.New(), func(c *SinkConfig) { byHour(c); c.MaxOpenFiles = 2 })
	day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	for _, hour := range []int{0, 1, 0, 2, 0, 3} { // 1 and then 2 are the coldest
		if err := b.writer.Write(t.Context(), hourRows(day.Add(time.Duration(hour)*time.Hour), fmt.Sprint(hour))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.writer.(*writer).open); n != 2 {
		t.Errorf("%d files are open", n)
	}
	b.checkpointAt(false, math.MinInt64)
	if got := b.lines(); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("complete are %q", got)
	}
}

func TestFoldersAreEscapedAndStayBelowThePath(t *testing.T) {
	long := connectors.StringValue(strings.Repeat("x", 201))
	for _, c := range []struct {
		text  string
		value connectors.Value
		want  string
	}{
		{"r={x}", connectors.StringValue("a b"), "r=a b/"},
		{"r={x}/s", connectors.StringValue("../../etc"), "r=..%2F..%2Fetc/s/"},
		{"r={x}", connectors.StringValue(`a=b\c:%` + "\n\x7f"), "r=a%3Db%5Cc%3A%25%0A%7F/"},
		{"a{x}", connectors.StringValue(".."), "a../"},
		{"{x}", connectors.StringValue(".."), "%2E./"},
		{"{x}", connectors.StringValue("_temporary"), "%5Ftemporary/"},
		{"{x}/y", connectors.StringValue(storage.HiddenPrefix + "1"), "%2Esluice-1/y/"},
		{"r={x}", connectors.NullValue(), "r=__HIVE_DEFAULT_PARTITION__/"},
		{"r={x}", connectors.StringValue(""), "r=__HIVE_DEFAULT_PARTITION__/"},
		{"r={x}", connectors.IntValue(-5), "r=-5/"},
		{"r={x}", connectors.BoolValue(true), "r=true/"},
		{"r={x}", connectors.DecimalValue("1.50"), "r=1.50/"},
		{"r={x}", connectors.TimestampValue(time.Date(2026, 1, 31, 1, 2, 3, 0, time.UTC)), "r=2026-01-31T01%3A02%3A03Z/"},
		{"{x}", connectors.NullValue(), ""},
		{"r={x}", connectors.ListValue([]byte("[1]")), ""},
		{"r={x}", long, ""},
	} {
		var tpl connectors.Template
		if err := tpl.UnmarshalConfig(c.text); err != nil {
			t.Fatal(err)
		}
		var f faults
		if f.partition(&tpl); len(f) > 0 {
			t.Fatal(f[0])
		}
		rows := rowsOf([]byte("{}"))
		rows.Batch.Size(1, 1)
		rows.Batch.Row(0)[0] = c.value
		got, err := appendFolder(nil, &tpl, rows, 0)
		if (err == nil) != (c.want != "") || err == nil && string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.text, got, err, c.want)
		}
		if err == nil && storage.CheckName(string(got)+"f") != nil {
			t.Errorf("%q is no name", got)
		}
	}
	for _, text := range []string{"fixed", "/a={x}", "a={x}/", "../{x}", "a//{x}", "_a={x}", "a={x}/.b"} {
		var tpl connectors.Template
		if err := tpl.UnmarshalConfig(text); err != nil {
			t.Fatal(err)
		}
		var f faults
		if f.partition(&tpl); len(f) != 1 {
			t.Errorf("%s is taken: %v", text, errors.Join(f...))
		}
	}
}

func TestAManifestListsWhatACheckpointPublished(t *testing.T) {
	b := newBench(t, mem.New(), func(c *SinkConfig) { c.Manifest, c.SuccessFile, c.Roll.Records = true, "_SUCCESS", 2 })
	b.write(`{"a":1}`, `{"a":2}`, `{"a":3}`)
	p := b.checkpointAt(true, 0)
	b.checkpointAt(true, 0) // publishes nothing
	names := b.visible()
	want := []string{"_manifests/p-s-g5-1.json", "p-s-g5-1-0-1-0a1b2c.jsonl", "p-s-g5-1-0-2-0a1b2c.jsonl"}
	if !slices.Equal(names, want) {
		t.Fatalf("files %q", names)
	}
	text, err := storage.ReadFile(t.Context(), b.sink.fs, names[0], 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.Records != 3 || m.Bytes != 24 || len(m.Files) != 2 || m.Files[1] != (manifestFile{Name: want[2], Bytes: 8, Records: 1}) || m.Checkpoint.Number != 1 {
		t.Errorf("it says %s", text)
	}
	for _, c := range p.Committables { // as a restart does
		if err := b.sink.Committer().Commit(t.Context(), c, true); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := storage.ReadFile(t.Context(), b.sink.fs, names[0], 1<<20); err != nil || string(again) != string(text) {
		t.Errorf("it is now %s, %v", again, err)
	}
	if b.checkpointAt(true, math.MaxInt64); !slices.Contains(b.visible(), "_SUCCESS") {
		t.Errorf("there is no success file at the end: %q", b.visible())
	}
}

// A stop may come while each row of the newest file was refused.
func TestAFileOfWhichEachRowWasRefusedIsNone(t *testing.T) {
	b := newBench(t, mem.New(), func(c *SinkConfig) { c.Format = connectors.FormatConfig{Name: formatRaw} })
	for range 2 {
		var refused *connectors.RowsError
		if err := b.writer.Write(t.Context(), rowsOf([]byte("two\nlines"))); !errors.As(err, &refused) {
			t.Fatal(err)
		}
		if p := b.checkpointAt(true, 0); len(p.Committables) != 1 || !p.Committables[0].Empty {
			t.Errorf("committables %v", p.Committables)
		}
	}
	if got := b.visible(); len(got) != 0 {
		t.Errorf("files %q", got)
	}
}

// A checkpoint failed; its files are published with the next one.
func TestAManifestIsWrittenOfAFailedCheckpointsFilesToo(t *testing.T) {
	b := newBench(t, mem.New(), func(c *SinkConfig) { c.Manifest = true })
	b.sink.env.Subtasks = 2
	other, err := b.sink.Writer(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.writer.Write(t.Context(), rowsOf([]byte("1"))); err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= 2; n++ {
		id := connectors.CheckpointID{Generation: 5, Number: n}
		for _, w := range []connectors.Writer{b.writer, other} {
			prepare, err := w.Barrier(t.Context(), connectors.Barrier{ID: id, Roll: true})
			if err != nil {
				t.Fatal(err)
			}
			p, err := prepare(t.Context(), &b.files)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range p.Committables {
				if n == 1 {
					break // it fails
				}
				if err := b.sink.Committer().Commit(t.Context(), c, false); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	b.sink.Committer().Done(connectors.CheckpointID{Generation: 5, Number: 2})
	if got := b.visible(); len(got) != 2 || got[0] != "_manifests/p-s-g5-1.json" {
		t.Errorf("files %q", got)
	}
}
