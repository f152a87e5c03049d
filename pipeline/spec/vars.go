package spec

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// piece is a part of a scalar's text that a ${…} was replaced by.
type piece struct{ text, raw span }

const maxSecretFile = 1 << 20

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// resolve puts variables into all scalars below n, once.
func (l *loader) resolve(n *node) {
	if n == nil || n.resolved {
		return
	}
	n.resolved = true
	for _, item := range n.items {
		l.resolve(item)
	}
	for _, e := range n.entries {
		l.resolve(e.value)
	}
	if n.scalar() && !n.bad && strings.Contains(n.raw, "${") {
		l.substitute(n)
	}
	if n.scalar() && !n.bad {
		l.hidePassword(n)
	}
}

// substitute replaces each ${…} of one scalar. What a variable gives is not
// looked through again; a plain scalar is typed again.
func (l *loader) substitute(n *node) {
	var out strings.Builder
	raw := n.raw
	for at := 0; at < len(raw); {
		i := strings.Index(raw[at:], "${")
		if i < 0 {
			out.WriteString(raw[at:])
			break
		}
		i += at
		if i > at && raw[i-1] == '$' {
			out.WriteString(raw[at : i-1])
			n.replaced(&out, "${", span{i - 1, i + 2})
			at = i + 2
			continue
		}
		out.WriteString(raw[at:i])
		end := strings.IndexByte(raw[i:], '}')
		if end < 0 {
			l.badVariable(n, span{i, len(raw)}, "${ has no } after it", "close it, or write $${ for the two characters themselves")
			return
		}
		end += i + 1
		value, ok := l.variable(n, span{i, end})
		if !ok {
			return
		}
		if n.secret && value != "" {
			l.p.secrets = append(l.p.secrets, value) // alone too: messages name parts of an expression
		}
		n.replaced(&out, value, span{i, end})
		at = end
	}
	n.text = out.String()
	if n.style == plain {
		n.kind = typePlain(n.text)
	}
	if n.secret && n.text != "" {
		l.p.secrets = append(l.p.secrets, n.text)
	}
}

// replaced writes what stands for a part of the raw text, and notes where.
func (n *node) replaced(out *strings.Builder, value string, raw span) {
	start := out.Len()
	out.WriteString(value)
	n.pieces = append(n.pieces, piece{span{start, out.Len()}, raw})
}

// variable resolves one ${…} of a scalar.
func (l *loader) variable(n *node, at span) (string, bool) {
	body := n.raw[at.start+2 : at.end-1]
	if path, ok := strings.CutPrefix(body, "file:"); ok {
		return l.fileVariable(n, at, path)
	}
	name, fallback, hasFallback := strings.Cut(body, ":-")
	if !variableName.MatchString(name) {
		l.badVariable(n, at, fmt.Sprintf("${%s} is no variable", body),
			"write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ stands for the characters ${")
		return "", false
	}
	value, set := l.opts.Env(name)
	switch {
	case set && (value != "" || !hasFallback):
		return value, true
	case hasFallback:
		return fallback, true
	}
	l.badVariable(n, at, fmt.Sprintf("the environment variable %s is not set", name),
		fmt.Sprintf("set it, or give a default: ${%s:-value}", name))
	return "", false
}

// fileVariable reads a secret from a file. A path that is not absolute is taken
// from the folder of the pipeline's file.
func (l *loader) fileVariable(n *node, at span, path string) (string, bool) {
	n.secret = true
	full := path
	if !filepath.IsAbs(path) {
		full = filepath.Join(filepath.Dir(l.p.File), path)
	}
	data, err := l.opts.ReadFile(full)
	switch {
	case path == "":
		l.badVariable(n, at, "${file:} names no file", "write ${file:PATH}")
		return "", false
	case err != nil:
		l.badVariable(n, at, fmt.Sprintf("the file of ${file:%s} cannot be read: %v", path, err), "check the path and its permissions")
		return "", false
	case len(data) > maxSecretFile:
		l.badVariable(n, at, fmt.Sprintf("the file of ${file:%s} is larger than %d bytes", path, maxSecretFile), "")
		return "", false
	}
	return string(bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))), true
}

func (l *loader) badVariable(n *node, at span, msg, help string) {
	n.pieces = nil
	n.text = n.raw
	where := n.place(at.start, at.end-at.start)
	n.bad = true
	l.report(Diagnostic{Severity: Error, Code: CodeVariable, Pos: n.file.at(where.start), End: n.file.at(where.end), Msg: msg, Help: help})
}

// hidePassword keeps the password of an address out of all that is printed, also where
// the key is none of a secret: what says that it does not belong there shows the line.
func (l *loader) hidePassword(n *node) {
	m := addressPassword.FindStringSubmatch(n.text)
	if m == nil {
		return
	}
	l.p.secrets = append(l.p.secrets, m[1]) // with what is around it: alone it can be any word
	if addressPassword.MatchString(n.raw) {
		n.file.masks = append(n.file.masks, n.span)
	}
}

var addressPassword = regexp.MustCompile(`://[^/?#@:]*(:[^/?#@$][^/?#@]*@)`)
