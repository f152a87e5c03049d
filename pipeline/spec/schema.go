package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/schema"
)

// schema reads the block of that name: types by field, or the file that has them.
func (l *loader) schema(b block, n *node) *schema.Type {
	if n == nil || n.bad {
		return nil
	}
	at := b.node.entry("schema").name
	if n.kind != mapNode {
		help := "write {field: type}, or {file: NAME.schema.json}"
		l.fault(b.schemaNode(n, at), CodeType, "schema takes fields with their types, not "+n.words(), help)
		return nil
	}
	if len(n.entries) == 1 {
		e := n.entries[0]
		_, err := schema.Parse(e.value.text)
		switch {
		case e.value.bad:
			return nil
		case e.key == "registry" && (e.value.kind == mapNode || err != nil):
			return nil // it takes the source's format to read it
		case e.key == "file" && e.value.kind == textNode && err != nil:
			return l.schemaFile(e.value)
		}
	}
	t := l.recordType(n, at, "schema")
	if t != nil && len(t.Fields) == 0 {
		l.fault(at, CodeMissing, "schema has no fields", "write {field: type}, or {file: NAME.schema.json}")
		return nil
	}
	return t
}

func (b block) schemaNode(n, at *node) *node {
	if n.kind == nullNode && n.implicit {
		return at
	}
	return n
}

// recordType reads the types of named fields.
func (l *loader) recordType(n, at *node, what string) *schema.Type {
	t := &schema.Type{Base: schema.Map, Fields: []schema.Field{}}
	ok := true
	for _, e := range n.entries {
		name, nullable := strings.CutSuffix(e.key, "?")
		ft := l.fieldType(e.value, e.name, name)
		if ft == nil {
			ok = false
			continue
		}
		if name == "" || t.Field(name) != nil {
			l.fault(e.name, CodeValue, fmt.Sprintf("%s has the field %q twice, or without a name", what, name), "a ? behind the name says that the field may be null or missing")
			ok = false
			continue
		}
		ft.Nullable = ft.Nullable || nullable
		t.Fields = append(t.Fields, schema.Field{Name: name, Type: ft})
	}
	if !ok {
		return nil
	}
	return t
}

// fieldType reads one type: a word, a list of one type, or a map of fields.
func (l *loader) fieldType(n, at *node, what string) *schema.Type {
	switch {
	case n.bad:
		return nil
	case n.kind == listNode && len(n.items) == 1:
		elem := l.fieldType(n.items[0], n.items[0], "an element of "+what)
		if elem == nil {
			return nil
		}
		return &schema.Type{Base: schema.List, Elem: elem}
	case n.kind == listNode:
		l.fault(n, CodeType, fmt.Sprintf("%s is a list of one type, and here are %d", what, len(n.items)), "write [string], or any")
		return nil
	case n.kind == mapNode && len(n.entries) == 0:
		l.fault(at, CodeValue, what+" has no fields", "write map for one of any fields")
		return nil
	case n.kind == mapNode:
		return l.recordType(n, at, what)
	case n.kind == nullNode && n.text == "":
		l.fault(at, CodeType, what+" has no type", "write one of "+strings.Join(schema.Names(), ", "))
		return nil
	}
	t, err := schema.Parse(n.text)
	if err != nil {
		word, _ := strings.CutSuffix(n.text, "?")
		l.fault(n, CodeValue, fmt.Sprintf("there is no type %q", n.shown()), typeHelp(word))
		return nil
	}
	return t
}

// otherNames are words of other systems for the types.
var otherNames = map[string]string{
	"integer": "int", "long": "int", "bigint": "int", "int64": "int", "int32": "int", "smallint": "int", "short": "int",
	"double": "float", "float64": "float", "real": "float", "numeric": "decimal", "boolean": "bool",
	"text": "string", "varchar": "string", "str": "string", "uuid": "string", "datetime": "timestamp", "date": "string",
	"array": "list", "object": "map", "struct": "map", "record": "map", "json": "any", "binary": "bytes", "interval": "duration",
}

func typeHelp(word string) string {
	if own, ok := otherNames[strings.ToLower(word)]; ok {
		return "write " + own
	}
	if strings.ContainsAny(word, "[{") {
		return "lists and maps are written without quotes, as in tags: [string]; where they may be null or missing, with the ? behind the name: tags?: [string]"
	}
	return suggest(strings.ToLower(word), schema.Names())
}

// maxSchemaFile bounds a file of types.
const maxSchemaFile = 4 << 20

// schemaFile reads types from a JSON Schema. A path that is not absolute is taken
// from the folder of the pipeline's file.
func (l *loader) schemaFile(n *node) *schema.Type {
	full := n.text
	if !filepath.IsAbs(full) {
		full = filepath.Join(filepath.Dir(l.p.File), full)
	}
	data, err := l.opts.ReadFile(full)
	if err == nil && len(data) > maxSchemaFile {
		err = fmt.Errorf("it is larger than %s", connectors.ByteSize(maxSchemaFile))
	}
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		l.fault(n, CodeRead, fmt.Sprintf("the schema %s cannot be read: %v", n.shown(), err), "check the path, which begins at the folder of the pipeline's file")
		return nil
	}
	t, err := schema.ParseJSON(data)
	if err != nil {
		l.fault(n, CodeValue, fmt.Sprintf("the schema %s cannot be used: %v", n.shown(), err), "a JSON Schema of an object with properties is wanted")
		return nil
	}
	return t
}
