package expr

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
)

func init() {
	define(
		function{Function: doc("lower(text string) string", "writes text in lower case", `lower("ÄB")`, `"äb"`), run1: lower},
		function{Function: doc("upper(text string) string", "writes text in upper case", `upper("äb")`, `"ÄB"`), run1: upper},
		function{Function: doc("capitalize(text string) string", "writes the first character of text in upper case", `capitalize("äb cd")`, `"Äb cd"`), run1: capitalize},
		function{Function: doc("trim(text string, characters string?) string", "takes white space, or the characters given, off both ends of text", `trim("--a-", "-")`, `"a"`),
			run: func(_ *Env, _ *site, args []connectors.Value) connectors.Value {
				if len(args) == 1 {
					return connectors.StringValue(strings.TrimSpace(args[0].Text()))
				}
				return connectors.StringValue(strings.Trim(args[0].Text(), args[1].Text()))
			}},
		function{Function: doc("trimPrefix(text string, prefix string?) string", "takes a prefix, or one space, off text that starts with it", `trimPrefix("v1.2", "v")`, `"1.2"`),
			run: cutting(strings.TrimPrefix)},
		function{Function: doc("trimSuffix(text string, suffix string?) string", "takes a suffix, or one space, off text that ends with it", `trimSuffix("a.csv", ".csv")`, `"a"`),
			run: cutting(strings.TrimSuffix)},
		function{Function: doc("hasPrefix(text string, prefix string) bool", "tells whether text starts with a prefix", `hasPrefix("abc", "ab")`, `true`), run2: tester(strings.HasPrefix)},
		function{Function: doc("hasSuffix(text string, suffix string) bool", "tells whether text ends with a suffix", `hasSuffix("abc", "bc")`, `true`), run2: tester(strings.HasSuffix)},
		function{Function: doc("indexOf(text string, part string) int", "gives the position of the first occurrence of part in text, in characters, or -1", `indexOf("häab", "a")`, `2`),
			run2: finding(strings.Index)},
		function{Function: doc("lastIndexOf(text string, part string) int", "gives the position of the last occurrence of part in text, in characters, or -1", `lastIndexOf("abab", "a")`, `2`),
			run2: finding(strings.LastIndex)},
		function{Function: doc("replace(text string, old string, new string, n int?) string", "replaces what is old in text, at most n times where that is given", `replace("a-b-c", "-", "+", 1)`, `"a+b-c"`), run: replace},
		function{Function: doc("repeat(text string, n int) string", "writes text n times", `repeat("ab", 3)`, `"ababab"`), run2: repeat},
		function{Function: doc("split(text string, separator string, n int?) list", "splits text at a separator, into at most n parts where that is given", `split("a,b,c", ",")`, `["a","b","c"]`), run: split},
		function{Function: doc("split_part(text string, separator string, n int) string|null", "gives the part n of text that is split at a separator, from 0, from the end where n is negative, or null", `split_part("a/b/c", "/", 1)`, `"b"`), run: splitPart},
		function{Function: doc("join(list list, separator string?) string", "joins the strings of a list", `join(["a", "b"], "-")`, `"a-b"`), run: join},
		function{Function: doc("pad_left(text string, length int, with string?) string", "puts spaces, or the character given, before text until it has a length", `pad_left("7", 3, "0")`, `"007"`), run: padding(true)},
		function{Function: doc("pad_right(text string, length int, with string?) string", "puts spaces, or the character given, behind text until it has a length", `pad_right("7", 3, ".")`, `"7.."`), run: padding(false)},
	)
}

func capitalize(e *Env, s *site, v connectors.Value) connectors.Value {
	text := v.Text()
	r, n := utf8.DecodeRuneInString(text)
	if n == 0 || unicode.ToTitle(r) == r {
		return v
	}
	return e.concat(s, string(unicode.ToTitle(r)), text[n:])
}

func cutting(cut func(s, part string) string) func(*Env, *site, []connectors.Value) connectors.Value {
	return func(_ *Env, _ *site, args []connectors.Value) connectors.Value {
		part := " "
		if len(args) == 2 {
			part = args[1].Text()
		}
		return connectors.StringValue(cut(args[0].Text(), part))
	}
}

func tester(test func(s, part string) bool) func(*Env, *site, connectors.Value, connectors.Value) connectors.Value {
	return func(_ *Env, _ *site, a, b connectors.Value) connectors.Value {
		return connectors.BoolValue(test(a.Text(), b.Text()))
	}
}

func finding(find func(s, part string) int) func(*Env, *site, connectors.Value, connectors.Value) connectors.Value {
	return func(_ *Env, _ *site, a, b connectors.Value) connectors.Value {
		i := find(a.Text(), b.Text())
		if i > 0 {
			i = utf8.RuneCountInString(a.Text()[:i])
		}
		return connectors.IntValue(int64(i))
	}
}

func replace(e *Env, s *site, args []connectors.Value) connectors.Value {
	text, old, by := args[0].Text(), args[1].Text(), args[2].Text()
	n := int64(-1)
	if len(args) == 4 {
		n = args[3].Int()
	}
	found := int64(strings.Count(text, old))
	if n >= 0 {
		found = min(found, n)
	}
	if found == 0 {
		return args[0]
	}
	size, ok := mulInt(found, int64(len(by)-len(old)))
	if !ok || size > int64(e.bytes) || !e.spend(s, max(0, int(size)+len(text))) {
		e.spend(s, e.bytes+1)
		return failure
	}
	out := strings.Replace(text, old, by, int(min(found, 1<<31)))
	a := e.arena()
	return connectors.TextValue(connectors.String, a.Keep(append(a.Grow(len(out)), out...)))
}

func repeat(e *Env, s *site, text, times connectors.Value) connectors.Value {
	n := times.Int()
	if n < 0 {
		return e.fail(s, KindArgument, "text cannot be repeated a negative number of times")
	}
	size, ok := mulInt(n, int64(len(text.Text())))
	if !ok || size > int64(e.bytes) {
		e.spend(s, e.bytes+1)
		return failure
	}
	e.spend(s, int(size))
	a := e.arena()
	out := a.Grow(int(size))
	if size == 0 {
		return connectors.StringValue("")
	}
	for range n {
		out = append(out, text.Text()...)
	}
	return connectors.TextValue(connectors.String, a.Keep(out))
}

func split(e *Env, s *site, args []connectors.Value) connectors.Value {
	text, sep, n := args[0].Text(), args[1].Text(), int64(-1)
	if len(args) == 3 {
		n = args[2].Int()
	}
	b := e.open(s, '[')
	if n == 0 || sep == "" && text == "" {
		return b.list(e)
	}
	for parts := int64(1); n < 0 || parts < n; parts++ {
		i := strings.Index(text, sep)
		if sep == "" {
			if _, i = utf8.DecodeRuneInString(text); i == len(text) {
				break
			}
		}
		if i < 0 {
			break
		}
		if !e.step(s, 1) || !b.value(e, connectors.StringValue(text[:i])) {
			return failure
		}
		text = text[i+len(sep):]
	}
	if !b.value(e, connectors.StringValue(text)) {
		return failure
	}
	return b.list(e)
}

func splitPart(_ *Env, _ *site, args []connectors.Value) connectors.Value {
	text, sep, n := args[0].Text(), args[1].Text(), args[2].Int()
	if sep == "" {
		return connectors.NullValue()
	}
	if n < 0 {
		for ; n < -1; n++ {
			i := strings.LastIndex(text, sep)
			if i < 0 {
				return connectors.NullValue()
			}
			text = text[:i]
		}
		if i := strings.LastIndex(text, sep); i >= 0 {
			text = text[i+len(sep):]
		}
		return connectors.StringValue(text)
	}
	for ; n > 0; n-- {
		i := strings.Index(text, sep)
		if i < 0 {
			return connectors.NullValue()
		}
		text = text[i+len(sep):]
	}
	text, _, _ = strings.Cut(text, sep)
	return connectors.StringValue(text)
}

func join(e *Env, s *site, args []connectors.Value) connectors.Value {
	sep := ""
	if len(args) == 2 {
		sep = args[1].Text()
	}
	start := len(e.scratch)
	c := over(args[0])
	for n := 0; ; n++ {
		raw, ok := c.next()
		if !ok {
			break
		}
		v := elementOf(raw, e.arena())
		if v.Kind() != connectors.String {
			return e.failf(s, KindType, "join() takes a list of strings, and an element is %s; map(list, string(#)) makes strings", article(v.Kind()))
		}
		if !e.step(s, 1) || !e.spend(s, len(sep)+len(v.Text())) {
			return failure
		}
		if n > 0 {
			e.scratch = append(e.scratch, sep...)
		}
		e.scratch = append(e.scratch, v.Text()...)
	}
	out := e.arena().Copy(e.scratch[start:])
	e.scratch = e.scratch[:start]
	return connectors.TextValue(connectors.String, out)
}

func padding(left bool) func(*Env, *site, []connectors.Value) connectors.Value {
	return func(e *Env, s *site, args []connectors.Value) connectors.Value {
		with := " "
		if len(args) == 3 {
			if with = args[2].Text(); utf8.RuneCountInString(with) != 1 {
				return e.fail(s, KindArgument, "text is padded with one character")
			}
		}
		missing := args[1].Int() - int64(utf8.RuneCountInString(args[0].Text()))
		if missing <= 0 {
			return args[0]
		}
		pad := repeat(e, s, connectors.StringValue(with), connectors.IntValue(missing))
		switch {
		case pad.Kind() == failed:
			return pad
		case left:
			return e.concat(s, pad.Text(), args[0].Text())
		}
		return e.concat(s, args[0].Text(), pad.Text())
	}
}
