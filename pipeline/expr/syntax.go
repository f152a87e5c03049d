package expr

import (
	"errors"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/file"
)

// syntax puts an error of expr-lang's parser into our words, with its place in
// bytes.
func (c *compiler) syntax(err error) *Error {
	out := &Error{Length: len(c.text), Msg: err.Error()}
	var at *file.Error
	if errors.As(err, &at) {
		out.Offset = c.offset(at.From)
		out.Length = c.offset(at.To) - out.Offset
		out.Msg, out.Help = syntaxMessage(at.Message)
		if c.agg != nil && out.Msg == "unexpected `#`" {
			out.Help = "`#` stands for an element of a list; here count, sum and the like are the aggregate functions, and those of lists are written `::count(…)`"
		}
		if help := helpBehind(c.text[:out.Offset], out.Msg); help != "" {
			out.Help = help
		}
	}
	return out
}

// helpBehind is the help for a fault that what stands before it explains.
func helpBehind(before, msg string) string {
	before = strings.TrimRight(before, " ")
	switch {
	case msg == "unexpected `*`" && strings.HasSuffix(before, "("):
		return "count() counts all records"
	case msg == "unexpected `>`" && strings.HasSuffix(before, "<"):
		return elsewhere["<>"]
	case msg == "unexpected `,`" && ifCall.MatchString(before):
		return elsewhere["case"]
	case msg == "unexpected `,`" && inList.MatchString(before):
		return "a list stands in brackets, as in `x in [1, 2]`"
	}
	return ""
}

// The beginnings of what other languages write as if(condition, a, b) and x in (1, 2).
var (
	ifCall = regexp.MustCompile(`(?i)\bif *\([^()]*$`)
	inList = regexp.MustCompile(`(?i)\bin *\([^()]*$`)
)

// elsewhere is what other languages write, with what it is here.
var elsewhere = map[string]string{
	"=": "equality is `==`", "<>": "inequality is `!=`", "&": "both conditions are `&&`", "AND": "both conditions are `&&`",
	"OR": "one of two conditions is `||`", "NOT": "the opposite is `!`", "is": "null is tested by `x == null` or is_null(x)",
	"IS": "null is tested by `x == null` or is_null(x)", "IN": "it is written `in`", "like": "patterns are tested by `x matches \"regex\"`",
	"LIKE": "patterns are tested by `x matches \"regex\"`", "between": "a range is tested by `1 <= x <= 9`", "BETWEEN": "a range is tested by `1 <= x <= 9`",
	"case": "choices are `condition ? a : b`", "CASE": "choices are `condition ? a : b`",
	"when": "choices are `condition ? a : b`", "WHEN": "choices are `condition ? a : b`", "~": "patterns are tested by `x matches \"regex\"`",
	"desc": descending, "DESC": descending, "asc": ascending, "ASC": ascending,
}

const (
	descending = "an order goes behind a colon, as in `{price: desc}`"
	ascending  = "an order goes behind a colon, as in `{price: asc}`"
)

// syntaxMessage puts expr-lang's messages into words that do not speak of
// tokens, and gives the help there is.
func syntaxMessage(msg string) (text, help string) {
	switch {
	case msg == "unexpected token EOF":
		return "the expression ends too early", ""
	case strings.HasPrefix(msg, "unexpected token "):
		_, token, ok := strings.Cut(strings.TrimPrefix(msg, "unexpected token "), "(\"")
		if token = strings.TrimSuffix(token, "\")"); ok && token != "" {
			return "unexpected `" + token + "`", elsewhere[token]
		}
	case strings.HasPrefix(msg, "unrecognized character: "):
		_, char, _ := strings.Cut(msg, "'")
		char = strings.TrimSuffix(char, "'")
		return "`" + char + "` has no meaning here", elsewhere[char]
	case strings.HasPrefix(msg, "Operator (") && strings.Contains(msg, "??"):
		return "`??` next to another operator needs parentheses", "as in `(a ?? 0) + 1`"
	case strings.HasPrefix(msg, "invalid integer literal"):
		return "the number does not fit an int of 64 bits", "decimal(\"…\") takes up to 38 digits"
	case strings.HasPrefix(msg, "invalid float literal"):
		return "the number does not fit a float", "decimal(\"…\") takes up to 38 digits"
	case strings.Contains(msg, "maximum allowed nodes"):
		return "the expression has too many parts", ""
	case strings.HasPrefix(msg, "expected at least "):
		return "a list and an expression for its elements are missing", "the aggregate functions count() and sum() stand only in the `select` of an `aggregate` step; `having` goes by the names given there"
	case msg == "literal not terminated":
		return "a quoted text does not end", ""
	case msg == "invalid char escape":
		return "the escape after `\\` is not known", "a backslash is written `\\\\`, or the text stands in backquotes"
	}
	return msg, ""
}
