package spec

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// common are the keys that stand beside a connector's or an operator's own. A
// block has those of them that its struct names.
type sourceKeys struct {
	Name      string          `key:"name" doc:"Name of the source."`
	UID       string          `key:"uid" doc:"Identity in checkpoints, the name by default."`
	Timestamp connectors.Expr `key:"timestamp" doc:"Event time of a record."`
	Watermark *node           `key:"watermark" doc:"How event time advances."`
	Schema    *node           `key:"schema" doc:"Types of the fields."`
	OnError   *node           `key:"on_error" doc:"What happens to a record that cannot be read."`
	MaxErrors *node           `key:"max_errors" doc:"How many failures are borne: N per DURATION."`
}

type stepKeys struct {
	Name      string `key:"name" doc:"Name of the step, its identity in checkpoints."`
	UID       string `key:"uid" doc:"Identity in checkpoints, the name by default."`
	From      *node  `key:"from" doc:"What the step reads, the item before it by default."`
	OnError   *node  `key:"on_error" doc:"What happens to a record that the step cannot handle."`
	MaxErrors *node  `key:"max_errors" doc:"How many failures are borne: N per DURATION."`
}

type sinkKeys struct {
	Name      string `key:"name" doc:"Name of the sink."`
	UID       string `key:"uid" doc:"Identity in checkpoints, the name by default."`
	From      *node  `key:"from" doc:"What the sink reads, the last step by default."`
	OnError   *node  `key:"on_error" doc:"What happens to a record that the sink refuses."`
	MaxErrors *node  `key:"max_errors" doc:"How many failures are borne: N per DURATION."`
}

// block is one source, step or sink while it is read.
type block struct {
	at   *node // key or dash that it stands at
	node *node
	what string   // its name in messages
	path []string // its keys from the top
}

// kindWords are how messages speak of the key that decides what a block is.
type kindWords struct {
	noun    string // connector or operator
	unknown Code
	kinds   []string // those that there are
	config  func(kind string) any
}

// split decodes the common keys of a block and finds the one key that decides
// what it is; nil where there is not exactly one known.
func (l *loader) split(b block, common any, w kindWords) *entry {
	n := b.node
	if n.bad {
		return nil
	}
	if n.kind != mapNode {
		l.fault(b.pick(n), CodeType, fmt.Sprintf("%s takes keys with values, not %s", b.what, n.words()), b.kindHelp(n, w))
		return nil
	}
	fields := fieldsOf(reflect.TypeOf(common).Elem())
	own := &node{kind: mapNode, file: n.file, span: n.span}
	var others []*entry
	for i := range n.entries {
		e := &n.entries[i]
		if fieldIndex(fields, e.key) >= 0 {
			own.entries = append(own.entries, *e)
		} else {
			others = append(others, e)
		}
	}
	l.structure(b.at, own, reflect.ValueOf(common).Elem(), b.what)
	return l.pickKind(b, others, keysOf(fields, func(f connectors.Field) string { return f.Key }), w)
}

// pick is where a fault of a block as a whole is shown.
func (b block) pick(n *node) *node {
	if n.kind == nullNode {
		return b.at
	}
	return n
}

func (b block) kindHelp(n *node, w kindWords) string {
	if n.kind == textNode && slices.Contains(w.kinds, n.text) {
		return fmt.Sprintf("write the %s as a key: {%s: …}", w.noun, n.text)
	}
	return fmt.Sprintf("write the %s as a key: %s", w.noun, strings.Join(w.kinds[:min(10, len(w.kinds))], ", "))
}

func (l *loader) pickKind(b block, others []*entry, common []string, w kindWords) *entry {
	var known, unknown []*entry
	for _, e := range others {
		if slices.Contains(w.kinds, e.key) {
			known = append(known, e)
		} else {
			unknown = append(unknown, e)
		}
	}
	for _, e := range known[min(1, len(known)):] {
		l.report(Diagnostic{
			Severity: Error, Code: CodeOneKind, Pos: e.name.file.at(e.name.span.start), End: e.name.file.at(e.name.span.end),
			Msg:   fmt.Sprintf("%s has two %ss, %s and %s", b.what, w.noun, known[0].key, e.key),
			Help:  "remove one, or give it a block of its own",
			Notes: []Note{{known[0].name.file.at(known[0].name.span.start), "the first one is here"}},
		})
	}
	for _, e := range unknown {
		if len(known) == 0 && len(unknown) == 1 {
			l.fault(e.name, w.unknown, fmt.Sprintf("unknown %s %q in %s", w.noun, e.key, b.what), w.suggest(e.key, common))
			continue
		}
		l.fault(e.name, CodeUnknownKey, fmt.Sprintf("unknown key %q in %s", e.key, b.what), l.misplaced(e.key, known, common, w))
	}
	switch {
	case len(known) == 0 && len(unknown) == 0:
		l.fault(b.at, CodeOneKind, fmt.Sprintf("%s has no %s", b.what, w.noun), "add one of "+strings.Join(w.kinds[:min(10, len(w.kinds))], ", "))
	case len(known) == 1:
		return known[0]
	}
	return nil
}

// misplaced helps with an unknown key beside a connector: it may belong into
// the connector's own block.
func (l *loader) misplaced(key string, known []*entry, common []string, w kindWords) string {
	if len(known) == 1 {
		if config := w.config(known[0].key); config != nil && fieldIndex(fieldsOf(reflect.TypeOf(config).Elem()), key) >= 0 {
			return fmt.Sprintf("it belongs into the block: {%s: {%s: …}}", known[0].key, key)
		}
		return keySuggestion(key, common, "")
	}
	return w.suggest(key, common)
}

// suggest helps with a key that is neither a kind nor a common key.
func (w kindWords) suggest(key string, common []string) string {
	if c := connectors.Nearest(key, append(slices.Clone(w.kinds), common...)); c != "" {
		return fmt.Sprintf("did you mean %q?", c)
	}
	return oneOf(w.kinds)
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// name checks a name of a source, step or sink.
func (l *loader) name(n *node, name, what string) bool {
	if namePattern.MatchString(name) {
		return true
	}
	if n != nil && !n.bad && n.scalar() {
		l.fault(n, CodeName, fmt.Sprintf("%q cannot be the name of %s", name, what), "names have letters, digits, _ and -, 100 at most")
	}
	return false
}

var labelPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// pipelineName checks that the pipeline's name is a DNS label.
func (l *loader) pipelineName(n *node) {
	name := l.p.Name
	if n == nil || n.bad || !n.scalar() || n.kind == nullNode || labelPattern.MatchString(name) {
		return
	}
	help := "write lower-case letters, digits and -, 63 at most, with a letter or digit at both ends"
	better := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-"), "-")
	if labelPattern.MatchString(better) {
		help = fmt.Sprintf("names of pipelines are DNS labels: write %s", better)
	}
	l.fault(n, CodeName, fmt.Sprintf("%q cannot be the name of a pipeline", name), help)
}

// defaultFormat is the format of values where nothing else is written.
const defaultFormat = "json"

// formatOf is the format that a configuration holds under that key. Files that it names
// are taken from the folder of the pipeline's file.
func (l *loader) formatOf(config any) connectors.FormatConfig {
	var out connectors.FormatConfig
	if own, ok := config.(connectors.RecordFormatter); ok {
		out = own.RecordFormat()
	} else if config != nil {
		v := reflect.ValueOf(config).Elem()
		for _, f := range fieldsOf(v.Type()) {
			if f.Key == "format" {
				if c, ok := v.Field(f.Index).Interface().(connectors.FormatConfig); ok {
					out = c
				}
			}
		}
	}
	if out.Name == "" {
		out.Name = defaultFormat
	}
	return format.InFolder(out, filepath.Dir(l.p.File))
}

// inFolder takes files that a configuration names, in options of formats too, from the
// folder of the pipeline's file. They are the texts with the tag file.
func (l *loader) inFolder(config any) {
	folder := filepath.Dir(l.p.File)
	v := reflect.ValueOf(config).Elem()
	for _, f := range fieldsOf(v.Type()) {
		field := v.Field(f.Index)
		switch x := field.Addr().Interface().(type) {
		case *connectors.FormatConfig:
			*x = format.InFolder(*x, folder)
		case *string:
			if v.Type().Field(f.Index).Tag.Get("file") == "true" && *x != "" && !filepath.IsAbs(*x) {
				*x = filepath.Join(folder, *x)
			}
		}
	}
}

// format checks the name and the options of a format that the file has.
func (l *loader) format(block *node, c connectors.FormatConfig) bool {
	e := block.entry("format")
	if e == nil {
		return true
	}
	err := format.Check(c)
	if err == nil {
		return true
	}
	n := e.value
	if n.kind == mapNode && len(n.entries) == 1 && c.Options != nil {
		n = n.entries[0].value
	}
	l.place(e.name, n, err, CodeValue, "")
	return false
}

// named lists the blocks of the single or the named form.
func (l *loader) named(one, many *node, noun string) []block {
	l.incomplete = l.incomplete || (one == nil) == (many == nil)
	switch {
	case one != nil && many != nil:
		at := l.p.root.entry(noun + "s").name
		l.report(Diagnostic{
			Severity: Error, Code: CodeOneKind, Pos: at.file.at(at.span.start), End: at.file.at(at.span.end),
			Msg: fmt.Sprintf("the pipeline has both %s and %ss", noun, noun), Help: fmt.Sprintf("put all into %ss", noun),
			Notes: []Note{{l.p.Position(noun), "the other one is here"}},
		})
	case one == nil && many == nil:
		l.fault(l.p.root, CodeMissing, "the pipeline has no "+noun, fmt.Sprintf("add `%s: {…}`", noun))
	}
	var out []block
	if one != nil {
		out = append(out, block{l.p.root.entry(noun).name, one, "the " + noun, []string{noun}})
	}
	if many == nil || many.bad {
		return out
	}
	at := l.p.root.entry(noun + "s").name
	if many.kind != mapNode || len(many.entries) == 0 {
		b := block{at: at}
		what := many.words()
		if many.kind == mapNode {
			what = "an empty one"
		}
		l.fault(b.pick(many), CodeType, fmt.Sprintf("%ss must be a map of names, not %s", noun, what), fmt.Sprintf("write %ss: {name: {…}}", noun))
		return out
	}
	for _, e := range many.entries {
		out = append(out, block{e.name, e.value, noun + " " + e.key, []string{noun + "s", e.key}})
	}
	return out
}
