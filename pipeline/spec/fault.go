package spec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// Fault adds a fault found after loading, at the value that the keys lead to, or
// the nearest block around it that the file has. Items of lists are named by
// their number. An *expr.Error is placed within the expression's text, a
// *connectors.FieldError at its own key below the path; joined errors are taken
// apart. What has a fault already is left alone.
func (p *Pipeline) Fault(path []string, err error) {
	if p.root == nil {
		p.report(Diagnostic{Severity: Error, Code: CodeValue, Msg: err.Error()})
		return
	}
	l := &loader{p: p}
	at, n, rest := p.walk(path)
	if len(rest) > 0 {
		n = at
	}
	l.place(at, n, err, CodeValue, "")
}

// Warn adds a warning, as Fault adds a fault.
func (p *Pipeline) Warn(path []string, code Code, msg, help string) {
	if p.root == nil {
		p.report(Diagnostic{Severity: Warning, Code: code, Msg: msg, Help: help})
		return
	}
	at, _, _ := p.walk(path)
	(&loader{p: p}).warn(at, code, msg, help)
}

// Diagnostics are all faults so far, sorted by place.
func (p *Pipeline) Diagnostics() Diagnostics {
	out := append(Diagnostics(nil), p.diags...)
	out.Sort()
	return out.dedupe()
}

// Position is where the value is that the keys lead to, or the key of the
// nearest block around it that the file has. Items of lists are named by their
// number.
func (p *Pipeline) Position(keys ...string) Pos {
	if p.root == nil {
		return Pos{}
	}
	at, n, rest := p.walk(keys)
	if len(rest) > 0 {
		n = at
	}
	return n.file.at(n.span.start)
}

// walk follows a path as far as the file goes. at is the key of the last node
// that it found, rest what it did not find.
func (p *Pipeline) walk(path []string) (at, n *node, rest []string) {
	at, n = p.root, p.root
	for i, key := range path {
		next := n.child(key)
		if next == nil {
			return at, n, path[i:]
		}
		at = next
		if e := n.entry(key); e != nil {
			at = e.name
		}
		n = next
	}
	return at, n, nil
}

// report adds a diagnostic. Secrets never get into one.
func (p *Pipeline) report(d Diagnostic) {
	d.Msg, d.Help = p.Mask(d.Msg), p.Mask(d.Help)
	p.diags = append(p.diags, d)
}

// Mask is text with the secrets of the file replaced, for what is shown or written
// while the pipeline runs, such as an expression that failed.
func (p *Pipeline) Mask(text string) string {
	for _, s := range p.secrets {
		if len(s) >= 4 {
			text = strings.ReplaceAll(text, s, hidden)
		}
	}
	return text
}

// place reports an error from outside of this package at a node, whose key is at.
func (l *loader) place(at, n *node, err error, code Code, prefix string) {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range list.Unwrap() {
			l.place(at, n, one, code, prefix)
		}
		return
	}
	if n.bad {
		return
	}
	var fe *connectors.FieldError
	if errors.As(err, &fe) {
		l.fieldError(at, n, fe, code)
		return
	}
	var ee *expr.Error
	if errors.As(err, &ee) {
		l.expressionError(n, ee)
		return
	}
	l.fault(n, code, prefix+err.Error(), "")
}

// fieldError reports a fault of one key below a block.
func (l *loader) fieldError(at, n *node, fe *connectors.FieldError, code Code) {
	target, name := n, at
	msg := fe.Msg
	if fe.Key != "" {
		msg = fe.Key + ": " + fe.Msg
		for _, key := range strings.Split(fe.Key, ".") {
			next := target.child(key)
			if next == nil {
				target = name
				break
			}
			name = next
			if e := target.entry(key); e != nil {
				name = e.name
			}
			target = next
		}
	}
	if target == n {
		target = at
	}
	if !target.bad {
		l.fault(target, code, msg, fe.Help)
	}
}

// expressionError reports a fault within the text of an expression.
func (l *loader) expressionError(n *node, ee *expr.Error) {
	d := Diagnostic{Severity: Error, Code: CodeExpression, Msg: ee.Msg, Help: ee.Help}
	at := n.span
	if n.scalar() && !n.implicit {
		at = n.place(ee.Offset, ee.Length)
	}
	d.Pos, d.End = n.file.at(at.start), n.file.at(at.end)
	if note := n.cutByComment(); note != "" {
		d.Notes = append(d.Notes, Note{Msg: note})
	}
	l.report(d)
}

// cutByComment says that a comment stands behind a plain scalar, which may have
// been meant as a part of it; empty where none does.
func (n *node) cutByComment() string {
	if n.style != plain || n.file.flag {
		return ""
	}
	rest := n.file.text[n.span.end:n.file.lineEnd(n.file.line(n.span.end))]
	trimmed := strings.TrimLeft(string(rest), " \t")
	if !strings.HasPrefix(trimmed, "#") || len(trimmed) == len(rest) {
		return ""
	}
	if len(trimmed) > 30 {
		trimmed = trimmed[:strings.LastIndex(trimmed[:30]+" ", " ")] + " …"
	}
	return fmt.Sprintf("YAML takes `%s` for a comment; if it belongs to the expression, quote the whole text", trimmed)
}
