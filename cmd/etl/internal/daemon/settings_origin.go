package daemon

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Setting is a key with its value in effect, and where that is from.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`  // a secret is ***
	Origin string `json:"origin"` // default, FILE:LINE, variable NAME or flag
}

// origins is where settings come from.
type origins struct {
	path    string         // of the settings file, empty for none
	lines   map[string]int // in it, by key
	environ []string
	flags   map[string]string
}

// of is where the value in effect of a key is from.
func (o *origins) of(key string) string {
	if o.flags[key] != "" {
		return "flag"
	}
	if name := variableNamed(key, o.environ); name != "" {
		return "variable " + name
	}
	if n := lineOf(o.lines, key); n > 0 {
		return fmt.Sprintf("%s:%d", o.path, n)
	}
	return "default"
}

// place stands before what is wrong with a key.
func (o *origins) place(key string) string {
	switch from := o.of(key); {
	case strings.HasPrefix(from, "variable "):
		return from + " (the prefix belongs to the program: give variables of pipeline files another one): "
	case from == "default" || from == "flag":
		return ""
	default:
		return from + ": "
	}
}

// variableNamed is the variable that gives a key, or a part of it that is a map.
func variableNamed(key string, environ []string) string {
	name := envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
	for _, e := range environ {
		if strings.HasPrefix(e, name+"=") {
			return name
		}
	}
	return ""
}

// lineOf is the line of a key, or of the nearest key above it; 0 for none.
func lineOf(lines map[string]int, key string) int {
	for {
		if n := lines[key]; n > 0 {
			return n
		}
		i := strings.LastIndexByte(key, '.')
		if i < 0 {
			return 0
		}
		key = key[:i]
	}
}

// linesOfFile are the lines of the keys of a settings file; empty where it cannot be read,
// which is told by who reads it.
func linesOfFile(path string) map[string]int {
	out := map[string]int{}
	if path == "" {
		return out
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return out
	}
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		return out
	}
	for _, doc := range parsed.Docs {
		noteLines(out, "", doc.Body)
	}
	return out
}

func noteLines(out map[string]int, prefix string, n ast.Node) {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			noteLines(out, prefix, v)
		}
	case *ast.MappingValueNode:
		key := prefix + strings.Trim(n.Key.String(), `"'`)
		switch n.Value.(type) {
		case *ast.MappingNode, *ast.MappingValueNode: // its keys have lines of their own
		default:
			out[key] = n.Key.GetToken().Position.Line
		}
		noteLines(out, key+".", n.Value)
	default:
	}
}

// Effective are all settings in effect, by key. Its arguments are those of LoadSettings.
func Effective(path string, environ []string, flags map[string]string) ([]Setting, error) {
	k, err := readSettings(path, environ, flags)
	if err != nil {
		return nil, err
	}
	from := origins{path: path, lines: linesOfFile(path), environ: environ, flags: flags}
	if _, err := settingsOf(k, from); err != nil {
		return nil, err
	}
	keys := k.Keys()
	slices.Sort(keys)
	out := make([]Setting, 0, len(keys))
	for _, key := range keys {
		out = append(out, Setting{Key: key, Value: shownValue(key, k.Get(key)), Origin: from.of(key)})
	}
	return out, nil
}

// shownValue is a value as text, without secrets.
func shownValue(key string, v any) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+": "+shownValue(name, v[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, one := range v {
			parts = append(parts, shownValue(key, one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case nil:
		return ""
	}
	if key == "http.tokens" || isSecretKey(key) {
		return hideText(fmt.Sprint(v))
	}
	return fmt.Sprint(v)
}

// isSecretKey reports whether the last part of a key names a secret.
func isSecretKey(key string) bool {
	last := key[strings.LastIndexByte(key, '.')+1:]
	if strings.HasSuffix(last, "_file") {
		return false
	}
	return last == "token" || strings.Contains(last, "secret") || strings.Contains(last, "password") || strings.HasSuffix(last, "session_token") ||
		strings.Contains(last, "access_key")
}

func hideText(text string) string {
	if text == "" {
		return ""
	}
	return "***"
}
