package expr

import (
	"github.com/sluice-etl/sluice/connectors"
)

func init() {
	define(
		function{Function: doc("match(text string, regex string) bool", "tells whether a regular expression (RE2) matches some part of text", `match("a1", "[0-9]")`, `true`),
			build: withRegex(func(_ *Env, _ *site, re *pattern, text string) connectors.Value {
				return connectors.BoolValue(re.MatchString(text))
			})},
		function{Function: doc("extract(text string, regex string) string|null", "gives what the first group of a regular expression matches, without groups what all of it matches, or null", `extract("id=17;", "id=([0-9]+)")`, `"17"`),
			build: withRegex(extract)},
		function{Function: doc("extract_all(text string, regex string) list", "lists what extract() would give for each match", `extract_all("a1b2", "[0-9]")`, `["1","2"]`),
			build: withRegex(extractAll)},
		function{Function: doc("replace_all(text string, regex string, with string) string", "replaces each match of a regular expression; $1 in the replacement is the first group", `replace_all("a-b", "(\\w)-(\\w)", "$2-$1")`, `"b-a"`),
			build: replaceAll},
	)
}

// withRegex compiles a function of text and a regular expression.
func withRegex(do func(e *Env, s *site, re *pattern, text string) connectors.Value) func(*compiler, *site, []*node) fn {
	return func(c *compiler, at *site, args []*node) fn {
		pattern := c.pattern(args[1])
		if pattern == nil {
			return nil
		}
		subject := c.subject(args[0])
		return func(e *Env) connectors.Value {
			text, ok := subject(e)
			if !ok {
				return failure
			}
			re := pattern(e)
			if re == nil || !e.scan(at, re, text) {
				return failure
			}
			return do(e, at, re, text)
		}
	}
}

// subject is the text that a regular expression is to be matched with.
func (c *compiler) subject(n *node) func(e *Env) (string, bool) {
	run := n.run
	return func(e *Env) (string, bool) {
		v := run(e)
		switch {
		case v.Kind() == connectors.String:
			return v.Text(), true
		case v.Kind() == failed:
		case v.IsNull():
			e.null(n.at, "matched", `""`)
		default:
			e.failf(n.at, KindType, "a regular expression matches strings, and %s is %s", n.at.name, article(v.Kind()))
		}
		return "", false
	}
}

// group is the first group of a match, or all of it where there are no groups.
func group(re *pattern, text string, at []int) connectors.Value {
	i := min(re.NumSubexp(), 1) * 2
	if at == nil || at[i] < 0 {
		return connectors.NullValue()
	}
	return connectors.StringValue(text[at[i]:at[i+1]])
}

func extract(_ *Env, _ *site, re *pattern, text string) connectors.Value {
	return group(re, text, re.FindStringSubmatchIndex(text))
}

func extractAll(e *Env, s *site, re *pattern, text string) connectors.Value {
	b := e.open(s, '[')
	if !e.matches(s, re, text, func(at []int) bool { return b.value(e, group(re, text, at)) }) {
		return failure
	}
	return b.list(e)
}

func replaceAll(c *compiler, at *site, args []*node) fn {
	pattern, subject := c.pattern(args[1]), c.subject(args[0])
	if pattern == nil {
		return nil
	}
	by := checked(functions["replace_all"], 2, args[2])
	return func(e *Env) connectors.Value {
		text, ok := subject(e)
		if !ok {
			return failure
		}
		re := pattern(e)
		with := by(e)
		if re == nil || with.Kind() == failed {
			return failure
		}
		start, last := len(e.scratch), 0
		if !e.matches(at, re, text, func(m []int) bool {
			before := len(e.scratch)
			e.scratch = append(e.scratch, text[last:m[0]]...)
			e.scratch = re.ExpandString(e.scratch, with.Text(), text, m)
			last = m[1]
			return e.spend(at, len(e.scratch)-before)
		}) {
			return failure
		}
		if last == 0 && len(e.scratch) == start {
			return connectors.StringValue(text)
		}
		e.scratch = append(e.scratch, text[last:]...)
		if !e.spend(at, len(text)-last) {
			return failure
		}
		out := e.arena().Copy(e.scratch[start:])
		e.scratch = e.scratch[:start]
		return connectors.TextValue(connectors.String, out)
	}
}
