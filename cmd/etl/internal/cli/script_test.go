package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	_ "github.com/sluice-etl/sluice/connectors/all"
	_ "github.com/sluice-etl/sluice/storage/all"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"etl": func() { os.Exit(Main("test", os.Args[1:])) }})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "await": await, "flip": flip, "count": count,
		},
	})
}

// exits CODE COMMAND ARG... runs a command and wants that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strconv.Itoa(exitStatus(err))
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// await COMMAND ARG... runs a command until it succeeds.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: await COMMAND ARG...")
	}
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err = ts.Exec(args[0], args[1:]...); err == nil {
			return
		}
	}
	ts.Fatalf("it does not succeed: %v", err)
}

func exitStatus(err error) int {
	if e, ok := err.(interface{ ExitCode() int }); ok {
		return e.ExitCode()
	}
	return -1
}

// flip PATTERN changes one bit in the middle of each file that matches.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	names, err := filepath.Glob(ts.MkAbs(args[0]))
	if err != nil || len(names) == 0 || neg {
		ts.Fatalf("nothing matches %s", args[0])
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		ts.Check(err)
		data[len(data)/2] ^= 1
		ts.Check(os.WriteFile(name, data, 0o600))
	}
}

// count N PATTERN wants that many lines in all files that match.
func count(ts *testscript.TestScript, neg bool, args []string) {
	names, err := filepath.Glob(ts.MkAbs(args[1]))
	ts.Check(err)
	n := 0
	for _, name := range names {
		data, err := os.ReadFile(name)
		ts.Check(err)
		for _, c := range data {
			if c == '\n' {
				n++
			}
		}
	}
	if strconv.Itoa(n) != args[0] || neg {
		ts.Fatalf("%d lines in %d files, want %s", n, len(names), args[0])
	}
}
