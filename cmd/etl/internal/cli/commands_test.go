package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// everyCommand calls f with each command that does something.
func everyCommand(c *cobra.Command, f func(*cobra.Command)) {
	for _, sub := range c.Commands() {
		everyCommand(sub, f)
	}
	if c.Runnable() && !c.Hidden && c.HasParent() {
		f(c)
	}
}

func TestEveryCommandSaysWhatItDoesWithAnExample(t *testing.T) {
	a := &app{version: "test"}
	everyCommand(a.root(), func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Name() == "help" {
			return
		}
		if c.Short == "" || c.Short != strings.TrimSuffix(c.Short, ".") {
			t.Errorf("%s: its short help is missing or ends with a full stop: %q", path, c.Short)
		}
		if !strings.Contains(c.Example, path) {
			t.Errorf("%s has no example of itself", path)
		}
		for line := range strings.Lines(c.Example) {
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: a line of its example is not indented: %q", path, line)
			}
		}
	})
}

func TestEveryCommandThatReachesADaemonTakesAnAddress(t *testing.T) {
	a := &app{version: "test"}
	reach := map[string]bool{}
	everyCommand(a.root(), func(c *cobra.Command) { reach[c.Name()] = c.Flags().Lookup("server") != nil })
	for _, name := range strings.Fields("ps status top tap logs events start pause resume restart stop cancel savepoint trigger skip reload") {
		if !reach[name] {
			t.Errorf("etl %s has no --server", name)
		}
	}
	if reach["validate"] || reach["run"] {
		t.Error("a command that reaches no daemon takes the address of one")
	}
}
