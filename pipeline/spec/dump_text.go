package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// number writes a float so that it reads back as one.
func number(f float64) string {
	switch s := strconv.FormatFloat(f, 'g', -1, 64); s {
	case "NaN", "+Inf", "-Inf":
		return `"` + s + `"`
	default:
		return s
	}
}

func writeJSON(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case ordered:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, m.key)
			b.WriteByte(':')
			writeJSON(b, m.value)
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, item)
		}
		b.WriteByte(']')
	case float64:
		b.WriteString(number(v))
	default:
		enc := json.NewEncoder(b)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(v) // a string, a bool, a number or nil: no error
		b.Truncate(b.Len() - 1)
	}
}

func writeYAML(b *bytes.Buffer, v any, indent int) {
	margin := strings.Repeat("  ", indent)
	switch v := v.(type) {
	case ordered:
		for i, m := range v {
			if i > 0 || indent == 0 || !bytes.HasSuffix(b.Bytes(), []byte("- ")) {
				b.WriteString(margin)
			}
			b.WriteString(yamlText(m.key) + ":")
			writeNested(b, m.value, indent+1)
		}
	case []any:
		for _, item := range v {
			b.WriteString(margin + "- ")
			if o, ok := item.(ordered); ok && len(o) > 0 {
				writeYAML(b, o, indent+1)
				continue
			}
			if list, ok := item.([]any); ok {
				writeJSON(b, list)
				b.WriteByte('\n')
				continue
			}
			b.WriteString(yamlText(item) + "\n")
		}
	}
}

func writeNested(b *bytes.Buffer, v any, indent int) {
	switch x := v.(type) {
	case ordered:
		if len(x) > 0 {
			b.WriteByte('\n')
			writeYAML(b, x, indent)
			return
		}
	case []any:
		if len(x) > 0 {
			b.WriteByte('\n')
			writeYAML(b, x, indent)
			return
		}
	}
	b.WriteString(" " + yamlText(v) + "\n")
}

// yamlText writes a scalar, or an empty map or list, so that it reads back the same.
func yamlText(v any) string {
	switch v := v.(type) {
	case string:
		if plainSafe(v) {
			return v
		}
		// What looks like a variable must not become one when this is read.
		var b bytes.Buffer
		writeJSON(&b, strings.ReplaceAll(v, "${", "$${"))
		return b.String()
	case float64:
		return number(v)
	case ordered:
		return "{}"
	case []any:
		return "[]"
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

// plainSafe reports whether a text needs no quotes in YAML.
func plainSafe(s string) bool {
	if s == "" || typePlain(s) != textNode || strings.TrimSpace(s) != s || strings.ContainsAny(s, "\"'{}[],#&!|>%@`\\") || printable(s) != s {
		return false
	}
	switch strings.ToLower(s) {
	case "y", "yes", "n", "no", "on", "off", "<<": // other programs read these otherwise
		return false
	}
	return !strings.Contains(s, ": ") && !strings.HasSuffix(s, ":") && !strings.ContainsRune("-?:*=<", rune(s[0]))
}
