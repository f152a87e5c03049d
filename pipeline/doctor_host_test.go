package pipeline

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sluice-etl/sluice/connectors"
)

func TestTheSmallestLimitOfMemoryCounts(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	machine := file("MemFree: 1 kB\nMemTotal:       8388608 kB\n")
	for name, c := range map[string]struct {
		fs   fstest.MapFS
		want int64
		from string
	}{
		"a machine alone": {fstest.MapFS{"proc/meminfo": machine, "sys/fs/cgroup/memory.max": file("max\n")}, 8 << 30, "of the machine"},
		"a container":     {fstest.MapFS{"proc/meminfo": machine, "sys/fs/cgroup/memory.max": file("1073741824\n")}, 1 << 30, "control group"},
		"a unit": {fstest.MapFS{
			"proc/meminfo": machine, "proc/self/cgroup": file("0::/system.slice/etl.service\n"),
			"sys/fs/cgroup/system.slice/etl.service/memory.max": file("max\n"), "sys/fs/cgroup/system.slice/memory.max": file("2147483648\n"),
		}, 2 << 30, "control group"},
		"the first version": {fstest.MapFS{"proc/meminfo": machine, "sys/fs/cgroup/memory/memory.limit_in_bytes": file("536870912\n")}, 512 << 20, "control group"},
		"no Linux":          {fstest.MapFS{}, 0, ""},
	} {
		if got, from := memoryLimit(c.fs); got != c.want || !strings.Contains(from, c.from) {
			t.Errorf("%s: %d %s, want %d %s", name, got, from, c.want, c.from)
		}
	}
}

func TestAFolderIsLookedForInTheNearestOneThatIsThere(t *testing.T) {
	var got connectors.Finding
	d := &connectors.Diagnosis{Report: func(f connectors.Finding) { got = f }}
	folder{path: t.TempDir() + "/a/b", use: "state"}.look(d)
	if got.Level == connectors.LevelFailed || !strings.Contains(got.Detail, "are free") {
		t.Errorf("found %+v", got)
	}
	folder{path: "/proc/version/state", use: "state"}.look(d)
	if got.Level != connectors.LevelFailed {
		t.Errorf("below a file: found %+v", got)
	}
}
