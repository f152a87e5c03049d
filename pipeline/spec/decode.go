package spec

import (
	"fmt"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

var (
	nodeType        = reflect.TypeFor[*node]()
	exprType        = reflect.TypeFor[connectors.Expr]()
	templateType    = reflect.TypeFor[connectors.Template]()
	assignmentsType = reflect.TypeFor[connectors.Assignments]()
	keysType        = reflect.TypeFor[connectors.Keys]()
	durationType    = reflect.TypeFor[time.Duration]()
	missingType     = reflect.TypeFor[transform.Missing]()
	valueType       = reflect.TypeFor[connectors.ConfigValue]()

	fieldCache sync.Map // reflect.Type of a struct to its []connectors.Field
)

func fieldsOf(t reflect.Type) []connectors.Field {
	if f, ok := fieldCache.Load(t); ok {
		return f.([]connectors.Field)
	}
	keyed := slices.DeleteFunc(connectors.Fields(t), func(f connectors.Field) bool { return f.Key == "" })
	f, _ := fieldCache.LoadOrStore(t, keyed)
	return f.([]connectors.Field)
}

// whole is the field that takes the whole value of a block, if it has one.
func whole(fields []connectors.Field) *connectors.Field {
	if len(fields) == 1 && fields[0].Key == "." {
		return &fields[0]
	}
	return nil
}

// fault reports an error at a node.
func (l *loader) fault(n *node, code Code, msg, help string) {
	l.report(Diagnostic{Severity: Error, Code: code, Pos: n.file.at(n.span.start), End: n.file.at(n.span.end), Msg: msg, Help: help})
}

func (l *loader) warn(n *node, code Code, msg, help string) {
	l.report(Diagnostic{Severity: Warning, Code: code, Pos: n.file.at(n.span.start), End: n.file.at(n.span.end), Msg: msg, Help: help})
}

// config decodes a block into a configuration struct and validates it. at is
// the key of the block, what its name in messages. It reports whether all is well.
func (l *loader) config(at, n *node, target any, what string) bool {
	before := len(l.p.diags)
	n, known := l.lookup(at, n, target, what)
	ok := l.structure(at, n, reflect.ValueOf(target).Elem(), what) && known
	if !ok || l.errorsSince(before) {
		return false
	}
	if v, can := target.(connectors.Validator); can {
		if err := v.Validate(); err != nil {
			l.place(at, n, err, CodeValue, "")
		}
	}
	return !l.errorsSince(before)
}

func (l *loader) errorsSince(i int) bool { return l.p.diags[i:].HasErrors() }

// structure decodes a map into the fields of a struct.
func (l *loader) structure(at, n *node, v reflect.Value, what string) bool {
	fields := fieldsOf(v.Type())
	if f := whole(fields); f != nil {
		if n.implicit {
			l.fault(at, CodeMissing, what+" has no value", "write it after the colon")
			return false
		}
		return l.field(n, v.Field(f.Index), f, what)
	}
	if n.bad {
		return false
	}
	if n.kind == nullNode {
		n = &node{kind: mapNode, file: n.file, span: at.span}
	}
	keys := keysOf(fields, func(f connectors.Field) string { return f.Key })
	if n.kind != mapNode {
		l.fault(n, CodeType, fmt.Sprintf("%s takes keys with values, not %s", what, n.words()), keysHelp(keys))
		return false
	}
	unknown := func(e entry) bool { return fieldIndex(fields, e.key) < 0 }
	if slices.ContainsFunc(n.entries, unknown) && !l.checkFlow(n) {
		return false
	}
	ok := true
	for _, e := range n.entries {
		i := fieldIndex(fields, e.key)
		if i < 0 {
			l.fault(e.name, CodeUnknownKey, fmt.Sprintf("unknown key %q in %s", e.key, what), keySuggestion(e.key, keys, what))
			ok = false
			continue
		}
		ok = l.field(e.value, v.Field(fields[i].Index), &fields[i], fields[i].Key) && ok
	}
	for _, f := range fields {
		if f.Required && n.get(f.Key) == nil {
			l.fault(at, CodeMissing, fmt.Sprintf("%s needs the key %q", what, f.Key), fmt.Sprintf("add `%s: …`: %s", f.Key, inSentence(f.Doc)))
			ok = false
		}
	}
	return ok
}

func fieldIndex(fields []connectors.Field, key string) int {
	for i := range fields {
		if fields[i].Key == key {
			return i
		}
	}
	return -1
}

func keysHelp(keys []string) string {
	if len(keys) == 0 {
		return "write {}"
	}
	return "its keys are " + strings.Join(keys[:min(len(keys), 10)], ", ")
}

func keySuggestion(key string, keys []string, what string) string {
	if c := connectors.Nearest(key, keys); c != "" {
		return fmt.Sprintf("did you mean %q?", c)
	}
	if len(keys) == 0 {
		return what + " has no keys"
	}
	return oneOf(keys)
}

// inSentence is a doc without its capital and its full stop.
func inSentence(s string) string {
	s = strings.TrimSuffix(s, ".")
	if len(s) > 1 && s[0] >= 'A' && s[0] <= 'Z' && (s[1] < 'A' || s[1] > 'Z') {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}

// field decodes the value of one key.
func (l *loader) field(n *node, v reflect.Value, f *connectors.Field, what string) bool {
	if n.bad {
		return false
	}
	if f.Secret {
		l.secret(n, what)
	}
	if !l.decode(n, v, what) {
		return false
	}
	if f.Enum == nil {
		return true
	}
	return l.enum(n, f.Enum, what)
}

// enum checks that a text, or each text of a list, is one of those allowed.
func (l *loader) enum(n *node, allowed []string, what string) bool {
	ok := true
	for _, item := range n.items {
		ok = l.enum(item, allowed, what) && ok
	}
	if !n.scalar() {
		return ok
	}
	for _, a := range allowed {
		if a == n.text {
			return ok
		}
	}
	l.fault(n, CodeEnum, fmt.Sprintf("%s cannot be %s", what, n.quote()), suggest(n.text, allowed))
	return false
}

// secret keeps a value out of all that is printed.
func (l *loader) secret(n *node, what string) {
	for _, item := range n.items {
		l.secret(item, what)
	}
	for _, e := range n.entries {
		l.secret(e.value, what)
	}
	if !n.scalar() || n.kind == nullNode {
		return
	}
	if len(n.pieces) == 0 {
		if bareAddress(n.text) {
			return
		}
		l.warn(n, CodePlainSecret, what+" is a secret, and stands in the file as it is", "take it from outside: ${NAME} or ${file:PATH}")
		n.file.masks = append(n.file.masks, n.span)
	}
	n.secret = true
	l.p.secrets = append(l.p.secrets, n.text)
}

// bareAddress reports whether a text is an address that lets nobody in: without a
// password, and without parameters that could hold one.
func bareAddress(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || !strings.HasPrefix(text[len(u.Scheme):], "://") {
		return false
	}
	for name := range u.Query() {
		if secretName.MatchString(name) {
			return false
		}
	}
	_, has := u.User.Password()
	return !has
}

// secretName is what names of parameters that hold secrets have in them.
var secretName = regexp.MustCompile(`(?i)pass|pwd|secret|token|key|auth|cred|sig`)

// decode puts a node into a Go value of any type that configurations have.
func (l *loader) decode(n *node, v reflect.Value, what string) bool {
	t := v.Type()
	switch t {
	case nodeType:
		v.Set(reflect.ValueOf(n))
		return true
	case exprType:
		return l.expression(n, v.Addr().Interface().(*connectors.Expr), what)
	case assignmentsType:
		return l.assignments(n, v.Addr().Interface().(*connectors.Assignments), what)
	case keysType:
		return l.groupKeys(n, v.Addr().Interface().(*connectors.Keys), what)
	case missingType:
		if n.kind == nullNode && !n.implicit {
			v.SetString(string(transform.MissingNull)) // null as YAML reads it
			return true
		}
	}
	if t.Kind() == reflect.Pointer {
		if n.kind == nullNode {
			return true
		}
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		return l.decode(n, v.Elem(), what)
	}
	if v.CanAddr() && v.Addr().Type().Implements(valueType) {
		return l.custom(n, v.Addr().Interface().(connectors.ConfigValue), what)
	}
	if t.Kind() == reflect.Struct {
		return l.structure(n, n, v, what)
	}
	if n.kind == nullNode && t.Kind() != reflect.Interface {
		l.fault(n, CodeType, what+" has no value", "write one after the colon, or remove the key")
		return false
	}
	switch t.Kind() {
	case reflect.Slice:
		return l.list(n, v, what)
	case reflect.Map:
		return l.dictionary(n, v, what)
	case reflect.Interface:
		if x := n.value(); x != nil {
			v.Set(reflect.ValueOf(x))
		}
		return true
	default:
		return l.basic(n, v, what)
	}
}

// custom lets a type read its own forms.
func (l *loader) custom(n *node, v connectors.ConfigValue, what string) bool {
	if n.kind == nullNode {
		l.fault(n, CodeType, what+" has no value", "write one after the colon, or remove the key")
		return false
	}
	if err := v.UnmarshalConfig(n.value()); err != nil {
		l.place(n, n, err, CodeValue, what+": ")
		return false
	}
	return true
}

func (l *loader) list(n *node, v reflect.Value, what string) bool {
	elem := v.Type().Elem()
	if n.kind != listNode {
		// One text stands for a list of one: topics: bid.
		if n.scalar() && (elem.Kind() == reflect.String || elem == exprType) {
			one := reflect.MakeSlice(v.Type(), 1, 1)
			ok := l.decode(n, one.Index(0), what)
			v.Set(one)
			return ok
		}
		l.fault(n, CodeType, fmt.Sprintf("%s must be a list, not %s", what, n.words()), "write [a, b], or one `- ` item a line")
		return false
	}
	if elem == exprType && !l.checkFlow(n) {
		return false
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	ok := true
	for i, item := range n.items {
		ok = !item.bad && l.decode(item, out.Index(i), fmt.Sprintf("item %d of %s", i+1, what)) && ok
	}
	v.Set(out)
	return ok
}

func (l *loader) dictionary(n *node, v reflect.Value, what string) bool {
	if n.kind != mapNode {
		l.fault(n, CodeType, fmt.Sprintf("%s must be a map of names, not %s", what, n.words()), "write {name: value}")
		return false
	}
	if v.Type().Elem() == exprType && !l.checkFlow(n) {
		return false
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.entries))
	ok := true
	for _, e := range n.entries {
		item := reflect.New(v.Type().Elem()).Elem()
		ok = !e.value.bad && l.decode(e.value, item, e.key+" of "+what) && ok
		out.SetMapIndex(reflect.ValueOf(e.key).Convert(v.Type().Key()), item)
	}
	v.Set(out)
	return ok
}

// basic decodes texts, numbers and truth values.
func (l *loader) basic(n *node, v reflect.Value, what string) bool {
	wrong := func(want, help string) bool {
		l.fault(n, CodeType, fmt.Sprintf("%s must be %s, not %s", what, want, n.words()), help)
		return false
	}
	if v.Type() == durationType {
		d, err := connectors.ParseDuration(n.text)
		if n.kind != textNode || err != nil {
			return wrong("a duration such as 500ms, 30s, 5m, 1h30m or 7d", durationHelp(n))
		}
		v.SetInt(int64(d))
		return true
	}
	switch v.Kind() {
	case reflect.String:
		// Numbers and truth values are taken as they are written: a topic may be
		// called 1.10, and a password out of a variable may be all digits.
		if !n.scalar() {
			return wrong("a text", "")
		}
		v.SetString(n.text)
	case reflect.Bool:
		if n.kind != boolNode {
			return wrong("true or false", boolHelp(n))
		}
		v.SetBool(strings.EqualFold(n.text, "true"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n.kind != intNode {
			return wrong("a whole number", numberHelp(n))
		}
		i, _ := parseInt(n.text)
		if v.OverflowInt(i) {
			return wrong(fmt.Sprintf("a whole number of %d bits", v.Type().Bits()), "")
		}
		v.SetInt(i)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n.kind != intNode {
			return wrong("a whole number", numberHelp(n))
		}
		i, _ := parseInt(n.text)
		if i < 0 || v.OverflowUint(uint64(i)) {
			return wrong(fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-v.Type().Bits())), "")
		}
		v.SetUint(uint64(i))
	case reflect.Float32, reflect.Float64:
		if n.kind != intNode && n.kind != floatNode {
			return wrong("a number", numberHelp(n))
		}
		v.SetFloat(parseFloat(n.text))
	default:
		l.fault(n, CodeType, what+" cannot be set in a file", "")
		return false
	}
	return true
}

func boolHelp(n *node) string {
	switch strings.ToLower(n.text) {
	case "yes", "on", "y":
		return "write true: in YAML 1.2 " + n.text + " is a text"
	case "no", "off", "n":
		return "write false: in YAML 1.2 " + n.text + " is a text"
	case "true", "false":
		return "remove the quotes"
	}
	return "write true or false"
}

func numberHelp(n *node) string {
	if n.kind == textNode && n.style != plain && typePlain(n.text) != textNode {
		return "remove the quotes"
	}
	if i, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 10, 64); err == nil {
		return fmt.Sprintf("write %d", i)
	}
	return ""
}

func durationHelp(n *node) string {
	if n.kind == intNode {
		return fmt.Sprintf("add the unit: %ss for seconds, %sms for milliseconds", n.text, n.text)
	}
	return ""
}
