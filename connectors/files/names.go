package files

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The name of a file is <pipeline>-<sink>-g<g>-<n>-<subtask>-<seq>-<run>.<ext>: the
// generation that wrote it, the number after that of the last checkpoint that its
// writer took part in (its records belong to n or a later one), a count within
// the writer's life, and six random digits of the run: generations begin anew where
// checkpoints are kept in memory or were removed, and a name is never used twice. In the order of g, n and seq, as numbers, the files hold the records of
// each partition in their order.

// namePrefix begins the names of one sink's files. Hyphens in the sink's name are
// doubled: the last odd run of hyphens is then the separator (a pipeline's name
// does not end with one), and no two sinks share a prefix, though pipeline `a`
// with sink `b-c` reads like pipeline `a-b` with sink `c`.
func namePrefix(pipeline, sink string) string {
	return pipeline + "-" + strings.ReplaceAll(sink, "-", "--") + "-g"
}

func fileName(prefix string, generation, number uint64, subtask, seq int, run, ext string) string {
	return fmt.Sprintf("%s%d-%d-%d-%d-%s.%s", prefix, generation, number, subtask, seq, run, ext)
}

// newRun makes the digits of a run.
func newRun() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

var afterPrefix = regexp.MustCompile(`^(\d{1,19})-\d{1,19}-\d{1,9}-\d{1,9}-[0-9a-f]{6}\.[a-z][a-z.]*$`)

// nameGeneration tells which generation wrote a file; ok is false where the name
// is none of this prefix.
func nameGeneration(prefix, name string) (g uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	m := afterPrefix.FindStringSubmatch(rest)
	if m == nil {
		return 0, false
	}
	g, err := strconv.ParseUint(m[1], 10, 64)
	return g, err == nil
}
