package spec

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// keyLine takes a line apart: what leads to its value, and the value.
var keyLine = regexp.MustCompile(`^((?: |- )*(?:[\w.-]+|"[^"]*"|'[^']*') *: +|(?: *- +)+)(\S.*?) *$`)

// repair reports a syntax error. Where its line holds a value that quotes would
// mend, it says so and returns the text with the value quoted.
func (r *reader) repair(text string, err error) (string, bool) {
	var se *yaml.SyntaxError
	if !errors.As(err, &se) || se.Token == nil {
		r.syntax(err)
		return "", false
	}
	line := se.Token.Position.Line
	if line < 1 || line > len(r.file.lines) {
		r.syntax(err)
		return "", false
	}
	prefix, value := splitLine(string(r.file.lineText(line)))
	reason := misread(value)
	if value != "" && (value[0] == '{' || value[0] == '[') && reason == "" {
		col := r.file.offset(line, se.Token.Position.Column) - r.file.lines[line-1] - len(prefix)
		if strings.Contains(se.Message, "invalid tag character") {
			col-- // it is told of the bracket behind the tag
		}
		start, end := flowElement(value, col)
		prefix, value = prefix+value[:start], value[start:end]
		reason = "a text with quotes or brackets in it has to be quoted as a whole inside brackets"
		if strings.HasPrefix(value, "!") {
			reason = "a text that starts with ! is a tag in YAML"
		}
	}
	if reason == "" || value == "" || r.isRepaired(line) {
		r.syntax(err)
		return "", false
	}
	return r.quoteValue(text, line, prefix, value, CodePitfall, reason)
}

// flowElement finds the text at a byte of a map or list in brackets, as its user
// means it: commas in parentheses, quotes and indexes do not end it. Both
// ends are 0 where there is none.
func flowElement(value string, at int) (start, end int) {
	var open []byte
	var quote byte
	from := -1
	inFlow := func() bool { return len(open) > 0 && open[len(open)-1] != '(' }
	for i := range len(value) {
		c := value[i]
		ends := false
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case (c == '[' || c == '{') && (from < 0 || strings.TrimSpace(value[from:i]) == "") && (inFlow() || len(open) == 0):
			open, from = append(open, c), i+1
		case c == '(' || c == '[' || c == '{':
			open = append(open, '(')
		case c == ')' || c == ']' || c == '}':
			ends = inFlow()
			open = open[:max(0, len(open)-1)]
		case c == ',' && inFlow():
			ends = true
		case c == ':' && inFlow() && open[len(open)-1] == '{' && i+1 < len(value) && value[i+1] == ' ' && !strings.Contains(value[from:i], "?"):
			from = i + 1
		}
		if !ends {
			continue
		}
		text := strings.TrimLeft(value[from:i], " ")
		start, end = i-len(text), i-len(text)+len(strings.TrimRight(text, " "))
		if start <= at && at < i && !strings.ContainsAny(text[:min(1, len(text))], "[{") {
			return start, end
		}
		from = i + 1
	}
	return 0, 0
}

// repairTag reports a tag, which is mostly an expression that starts with !.
func (r *reader) repairTag(text string, tk *token.Token) (string, bool) {
	line := tk.Position.Line
	prefix, value := splitLine(string(r.file.lineText(line)))
	reason := fmt.Sprintf("%s is a tag of YAML here, not a text that starts with !", tk.Value)
	switch {
	case strings.HasPrefix(tk.Value, "!!"):
		r.fault(CodeTag, r.token(tk), tk.Value+" is a tag of YAML, and pipelines have none", "remove it: types come from the keys")
		return "", false
	case value == "" || !strings.HasPrefix(value, "!") || r.isRepaired(line):
		r.fault(CodeTag, r.token(tk), reason, `quote the whole text: "!…"`)
		return "", false
	}
	return r.quoteValue(text, line, prefix, value, CodeTag, reason)
}

// splitLine gives the part of a line before its value and the value, without a
// comment; both empty where the line is none of the kind.
func splitLine(line string) (prefix, value string) {
	m := keyLine.FindStringSubmatch(line)
	if m == nil {
		return "", ""
	}
	prefix, value = m[1], m[2]
	// In `- key: value` the shorter prefix matches too; the longest key wins.
	if inner := keyLine.FindStringSubmatch(value); inner != nil && strings.HasSuffix(strings.TrimRight(prefix, " "), "-") {
		prefix, value = prefix+inner[1], inner[2]
	}
	return prefix, cutComment(value)
}

// cutComment drops a comment that stands behind a value, outside of quotes.
func cutComment(value string) string {
	var quote byte
	for i := range len(value) {
		c := value[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#' && i > 0 && value[i-1] == ' ':
			return strings.TrimRight(value[:i], " ")
		}
	}
	return value
}

// misread says why YAML cannot read a value that is meant as one text; empty
// where it can, or where quotes would not mend it.
func misread(value string) string {
	if value == "" {
		return ""
	}
	switch c := value[0]; c {
	case '"', '\'':
		end := strings.IndexByte(value[1:], c)
		if end >= 0 && end+2 < len(value) {
			return fmt.Sprintf("YAML takes %s as the whole text, and more follows", value[:end+2])
		}
		return ""
	case '`', '@', '%':
		return fmt.Sprintf("a text that starts with %c has to be quoted in YAML", c)
	case '{', '[':
		if end := closing(value); end > 0 && end < len(value)-1 {
			return fmt.Sprintf("YAML takes %s as a whole, and more follows", value[:end+1])
		}
		return ""
	case '*', '&':
		if strings.ContainsAny(value, " .([") {
			return fmt.Sprintf("a text that starts with %c is an alias or anchor in YAML", c)
		}
		return ""
	case '|', '>':
		return ""
	}
	if strings.Contains(value, ": ") || strings.HasSuffix(value, ":") {
		return "YAML takes `: ` for the end of a key, so this text has to be quoted"
	}
	return ""
}

// closing is where the bracket that a value starts with closes, 0 for nowhere.
func closing(value string) int {
	depth := 0
	for i, c := range value {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth == 0 {
			return i
		}
	}
	return 0
}

// closed reports whether the brackets of a value end with it.
func closed(value string) bool { return closing(value) == len(value)-1 }

// repaired is a text that was quoted.
type repaired struct {
	start int    // offset in the file
	text  string // as the file has it
	grown int    // characters that its line has more since
}

func (r *reader) isRepaired(line int) bool { _, ok := r.repaired[line]; return ok }

// quoteValue reports the fault and quotes the value in text, which differs
// from the file only on repaired lines.
func (r *reader) quoteValue(text string, line int, prefix, value string, code Code, reason string) (string, bool) {
	start := r.file.lines[line-1] + len(prefix)
	at := span{start, start + len(value)}
	help := fmt.Sprintf("quote the whole text: %s%s", shownPrefix(prefix), quoteYAML(value))
	r.fault(code, at, reason, help)
	quoted := "'" + strings.ReplaceAll(value, "'", "''") + "'"
	r.repaired[line] = repaired{start, value, len(quoted) - len(value)}
	lines := strings.Split(text, "\n")
	rest := string(r.file.text[at.end:r.file.lineEnd(line)])
	lines[line-1] = prefix + quoted + rest
	return strings.Join(lines, "\n"), true
}

// shownPrefix is the key part of a line, as a help repeats it.
func shownPrefix(prefix string) string {
	if i := strings.LastIndexAny(prefix, "[{,"); i >= 0 {
		prefix = prefix[i+1:]
	}
	return strings.TrimLeft(prefix, " -")
}

// quoteYAML writes a text as a quoted scalar of one line.
func quoteYAML(s string) string {
	switch {
	case !strings.ContainsAny(s, `"\`):
		return `"` + s + `"`
	case !strings.Contains(s, "'"):
		return "'" + s + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
