package spec

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/sluice-etl/sluice/connectors"
)

var rate = regexp.MustCompile(`^(\d{1,9}) +per +(\S+)$`)

// onError reads on_error and max_errors beside each other. What is not written
// is inherited.
func (l *loader) onError(n, limit *node, inherited OnError) OnError {
	out := inherited
	if n != nil && !n.bad {
		out.Action, out.Sink = "", ""
		switch {
		case n.kind == textNode && (n.text == string(Fail) || n.text == string(Skip)):
			out.Action = Action(n.text)
		case n.kind == textNode && n.text == string(DeadLetter):
			l.fault(n, CodeMissing, "dead_letter needs the name of a sink", "write on_error: {dead_letter: SINK}")
		case n.kind == mapNode && len(n.entries) == 1 && n.entries[0].key == string(DeadLetter):
			l.deadLetter(n.entries[0].value, n.entries[0].name, &out)
		default:
			help := "write fail, skip or {dead_letter: SINK}"
			if n.kind == textNode {
				help = suggest(n.text, []string{string(Fail), string(Skip), "{dead_letter: SINK}"})
			}
			l.fault(n, CodeEnum, "on_error cannot be "+n.words(), help)
		}
		if out.Action == "" {
			out.Action = Fail
		}
		if out.Action == Fail {
			out.Max, out.Per = 0, 0
		}
	}
	if limit == nil || limit.bad {
		return out
	}
	m := rate.FindStringSubmatch(limit.text)
	if m == nil || limit.kind != textNode {
		l.fault(limit, CodeValue, "max_errors cannot be "+limit.words(), "write a number per duration, such as 10 per 1m")
		return out
	}
	most, _ := strconv.Atoi(m[1])
	per, err := connectors.ParseDuration(m[2])
	switch {
	case err != nil || per <= 0:
		l.fault(limit, CodeValue, fmt.Sprintf("max_errors has no duration: %q", m[2]), "write it like 10 per 1m")
	case most == 0:
		l.fault(limit, CodeValue, "max_errors cannot be 0", "write on_error: fail, which bears none")
	case out.Action == Fail && n != nil:
		l.fault(limit, CodeValue, "max_errors has no effect beside on_error: fail, which stops at the first", "remove it, or write on_error: skip")
	case out.Action == Fail:
		l.fault(limit, CodeValue, "max_errors has no effect without on_error, since the first failure stops the pipeline", "add on_error: skip, or {dead_letter: SINK}")
	}
	out.Max, out.Per = most, per
	return out
}

func (l *loader) deadLetter(n, at *node, out *OnError) {
	if n.bad {
		return
	}
	if n.kind == nullNode || !n.scalar() {
		l.fault(at, CodeMissing, "dead_letter needs the name of a sink", "write on_error: {dead_letter: SINK}")
		return
	}
	out.Action, out.Sink = DeadLetter, n.text
	l.letters = append(l.letters, n)
}
