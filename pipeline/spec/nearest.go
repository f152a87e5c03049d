package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// suggest helps with a name that is none of the candidates: the nearest one, or
// all of them, ten at most.
func suggest(name string, candidates []string) string {
	if c := connectors.Nearest(name, candidates); c != "" {
		return fmt.Sprintf("did you mean %q?", c)
	}
	return oneOf(candidates)
}

// oneOf lists what can be written, ten at most.
func oneOf(candidates []string) string {
	if len(candidates) == 0 {
		return ""
	}
	more := ""
	if len(candidates) > 10 {
		more = fmt.Sprintf(" and %d more", len(candidates)-10)
		candidates = candidates[:10]
	}
	if len(candidates) == 1 {
		return "write " + candidates[0]
	}
	return "write one of " + strings.Join(candidates, ", ") + more
}

func keysOf[T any](list []T, key func(T) string) []string {
	out := make([]string, 0, len(list))
	for _, x := range list {
		out = append(out, key(x))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
