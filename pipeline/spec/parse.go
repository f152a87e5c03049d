package spec

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a pipeline file. The parser's time grows with the square of some of
// them, so they are checked before it starts.
const (
	maxFileSize = 1 << 20
	maxDepth    = 64
	maxTokens   = 30_000
	maxAliases  = 100
	maxNodes    = 100_000 // aliases counted at each use
	maxRepairs  = 20
)

// reader turns the text of one file into nodes.
type reader struct {
	file    *file
	report  func(Diagnostic)
	anchors map[string]*node
	// repaired holds what was quoted to get over a fault, by its line.
	repaired map[int]repaired
	depth    int
}

// parseFile reads the file's one document. nil says that nothing of it could be
// read; the faults are reported.
func parseFile(f *file, report func(Diagnostic)) (root *node) {
	r := &reader{file: f, report: report, anchors: map[string]*node{}, repaired: map[int]repaired{}}
	if !r.checkText() {
		return nil
	}
	defer r.rescue(&root)
	doc := r.parse()
	if doc == nil {
		return nil
	}
	return r.document(doc)
}

// value reads a text that is any one value; nil where it cannot be read.
func (r *reader) value() (n *node) {
	if !r.checkText() {
		return nil
	}
	defer r.rescue(&n)
	doc := r.parse()
	if doc == nil || len(doc.Docs) != 1 || doc.Docs[0].Body == nil {
		return nil
	}
	return r.convert(doc.Docs[0].Body)
}

// rescue turns a panic of the parser into a fault: it is not ours, and not every
// text that it can meet has been tried.
func (r *reader) rescue(n **node) {
	if p := recover(); p != nil {
		r.fault(CodeSyntax, span{}, "the file is no valid YAML that this program can read", "look for brackets, quotes or anchors without their end")
		*n = nil
	}
}

func (r *reader) fault(code Code, at span, msg, help string) {
	r.report(Diagnostic{Severity: Error, Code: code, Pos: r.file.at(at.start), End: r.file.at(at.end), Msg: msg, Help: help})
}

// checkText refuses what is no text of a reasonable size.
func (r *reader) checkText() bool {
	text := r.file.text
	if len(text) > maxFileSize {
		r.fault(CodeLimit, span{}, fmt.Sprintf("the file has %d bytes; a pipeline may have %d", len(text), maxFileSize), "move test data into files of their own")
		return false
	}
	if !utf8.Valid(text) {
		at := 0
		for at < len(text) {
			c, n := utf8.DecodeRune(text[at:])
			if c == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		r.fault(CodeSyntax, span{at, at + 1}, fmt.Sprintf("byte 0x%02x is no UTF-8", text[at]), "save the file as UTF-8")
		return false
	}
	control := func(c rune) bool { return c < ' ' && c != '\t' && c != '\n' || c == 0x7f }
	if at := bytes.IndexFunc(text, control); at >= 0 {
		r.fault(CodeSyntax, span{at, at + 1}, fmt.Sprintf("the file has the control character 0x%02x", text[at]), fmt.Sprintf(`remove it; inside double quotes it can be written as \x%02x`, text[at]))
		return false
	}
	return true
}

// parse runs the YAML parser. Over a line that it stumbles on because an
// expression is not quoted it goes on, with the text quoted, so that the faults
// below are found too.
func (r *reader) parse() *ast.File {
	text := string(r.file.text)
	if !strings.HasSuffix(text, "\n") {
		text += "\n" // without it the parser folds a last line of one character otherwise
	}
	for range maxRepairs {
		tokens := lexer.Tokenize(text)
		if !r.checkTokens(tokens) {
			return nil
		}
		if at := findToken(tokens, token.TagType); at != nil {
			if fixed, ok := r.repairTag(text, at); ok {
				text = fixed
				continue
			}
			return nil
		}
		doc, err := parser.Parse(joinColons(tokens), 0, parser.AllowDuplicateMapKey())
		if err == nil {
			return doc
		}
		fixed, ok := r.repair(text, err)
		if !ok {
			return nil
		}
		text = fixed
	}
	return nil
}

func findToken(tokens token.Tokens, t token.Type) *token.Token {
	for _, tk := range tokens {
		if tk.Type == t {
			return tk
		}
	}
	return nil
}

// checkTokens bounds the number of tokens, aliases and nested blocks.
func (r *reader) checkTokens(tokens token.Tokens) bool {
	if len(tokens) > maxTokens {
		r.fault(CodeLimit, span{}, fmt.Sprintf("the file has more than %d tokens", maxTokens), "move test data into files of their own")
		return false
	}
	var columns []int // of the block keys and dashes that are open
	flow, aliases := 0, 0
	for _, tk := range tokens {
		column := tk.Position.Column
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow = max(0, flow-1)
		case token.AliasType:
			aliases++
		case token.MappingValueType, token.SequenceEntryType, token.MappingKeyType:
			if flow > 0 {
				break
			}
			if tk.Type == token.MappingValueType && tk.Prev != nil {
				column = tk.Prev.Position.Column
			}
			for len(columns) > 0 && columns[len(columns)-1] >= column {
				columns = columns[:len(columns)-1]
			}
			columns = append(columns, column)
		default:
		}
		at := r.token(tk)
		if flow+len(columns) > maxDepth {
			r.fault(CodeLimit, at, fmt.Sprintf("blocks are nested deeper than %d", maxDepth), "")
			return false
		}
		if aliases > maxAliases {
			r.fault(CodeLimit, at, fmt.Sprintf("the file has more than %d aliases", maxAliases), "write the values out")
			return false
		}
	}
	return true
}

// offset is where a token starts in the file.
func (r *reader) offset(tk *token.Token) int {
	line, column := tk.Position.Line, tk.Position.Column
	if fix, ok := r.repaired[line]; ok && r.file.offset(line, column) > fix.start {
		column -= fix.grown
	}
	return r.file.offset(line, column)
}

// token is the place of a token's first character, or of its whole text where
// that stands in the file as it is.
func (r *reader) token(tk *token.Token) span {
	start := r.offset(tk)
	if v := tk.Value; v != "" && bytes.HasPrefix(r.file.text[start:], []byte(v)) && !strings.Contains(v, "\n") {
		return span{start, start + len(v)}
	}
	return span{start, min(start+1, len(r.file.text))}
}

// document takes the one document out of the parsed file.
func (r *reader) document(doc *ast.File) *node {
	var bodies []ast.Node
	for _, d := range doc.Docs {
		if d.Body == nil {
			continue
		}
		if _, comment := d.Body.(*ast.CommentGroupNode); comment {
			continue
		}
		if _, directive := d.Body.(*ast.DirectiveNode); directive {
			continue
		}
		bodies = append(bodies, d.Body)
	}
	switch len(bodies) {
	case 0:
		r.fault(CodeDocument, span{}, "the file is empty", "a pipeline has at least the keys pipeline, source and sink")
		return nil
	case 1:
	default:
		second := bodies[1].GetToken()
		if m, ok := bodies[1].(*ast.MappingNode); ok && len(m.Values) > 0 {
			second = m.Values[0].Key.GetToken()
		}
		r.fault(CodeDocument, r.token(second), "a second YAML document starts here", "put each pipeline into a file of its own")
	}
	n := r.convert(bodies[0])
	if n.kind != mapNode {
		if !n.bad {
			r.fault(CodeDocument, n.span, "a pipeline is a map of keys, and this is "+n.words(), "start with `pipeline: NAME`")
		}
		return nil
	}
	if n.size > maxNodes {
		r.fault(CodeLimit, span{}, fmt.Sprintf("with its aliases written out the file has more than %d values", maxNodes), "use fewer aliases")
		return nil
	}
	return n
}

// syntaxMessages replace the parser's words where ours are clearer.
var syntaxMessages = []struct{ has, msg, help string }{
	{"mapping value is not allowed", "a `key: value` cannot stand here", "check the indentation; a text that contains `: ` has to be quoted"},
	{"map key-value is pre-defined", "this text cannot stand here", "check the indentation; a text that goes on after a closing quote has to be quoted as a whole"},
	{"value is not allowed in this context", "this cannot stand here", "check the indentation: it must be the same for all keys of a block"},
	{"could not find end character of double-quoted", `a " is missing that ends the text`, `close it with "`},
	{"could not find end character of single-quoted", "a ' is missing that ends the text", "close it with '"},
	{"could not find flow mapping end token", "a } is missing that ends the map", "close it with }"},
	{"sequence end token", "a ] is missing that ends the list", "close it with ]"},
	{"',' or '}' must be specified", "a comma or } is missing before this", "a text with spaces, quotes or brackets in it has to be quoted as a whole"},
	{"',' or ']' must be specified", "a comma or ] is missing before this", "a text with spaces, quotes or brackets in it has to be quoted as a whole"},
	{"block sequence entries are not allowed", "a `- ` item cannot stand here", "put it on a line of its own"},
	{"unexpected key name", "a key is missing its colon", "write `key: value`"},
	{"invalid key for this map", "a key must be a plain or quoted text", "write `key: value`"},
	{"unknown escape character", "\\ followed by this is no escape", `write \\ for one \, or use single quotes`},
	{"cannot start any token", "a tab cannot be used here", "indent by spaces"},
	{"tab character", "a tab cannot be used to indent", "indent by spaces"},
}

// syntax reports what the parser refused.
func (r *reader) syntax(err error) {
	var se *yaml.SyntaxError
	at, msg, help := span{}, err.Error(), ""
	if errors.As(err, &se) {
		msg = se.Message
		if se.Token != nil {
			at = r.token(se.Token)
		}
	}
	for _, m := range syntaxMessages {
		if strings.Contains(msg, m.has) {
			msg, help = m.msg, m.help
			break
		}
	}
	what := "the file"
	if r.file.flag {
		what = "the value"
	}
	r.fault(CodeSyntax, at, what+" is no valid YAML: "+msg, help)
}
