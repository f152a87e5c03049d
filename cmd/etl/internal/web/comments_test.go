package web

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources are the folders of the packages whose types answers have.
var sources = []string{".", "../api", "../../../../pipeline", "../../../../checkpoint", "../../../../connectors"}

// What the description says of types and fields is what their sources say.
func TestCommentsAreThoseOfTheSources(t *testing.T) {
	registry := NewHandler(&fake{}, HandlerOptions{}).api.OpenAPI().Components.Schemas
	structs := structsOf(t)
	texts := map[string]string{}
	var add func(typ reflect.Type)
	add = func(typ reflect.Type) {
		for key, text := range structs[typ.String()] {
			if text != "" {
				texts[strings.TrimSuffix(typ.String()+"."+key, ".")] = text
			}
		}
		for f := range typ.Fields() {
			if f.Anonymous {
				add(f.Type)
			}
		}
	}
	for name := range registry.Map() {
		if typ := registry.TypeFromRef("#/components/schemas/" + name); typ.PkgPath() != "" {
			add(typ)
		}
	}
	got, err := json.MarshalIndent(texts, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *updateDocs {
		if err := os.WriteFile("comments.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(got, comments) {
		t.Error("comments.json is not what the sources say: go test ./cmd/etl/internal/web -run Comments -update")
	}
}

// structsOf are the texts of types, under an empty key, and their fields, by package.Type.
func structsOf(t *testing.T) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for _, dir := range sources {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				gen, ok := d.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, s := range gen.Specs {
					typ, ok := s.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if fields, ok := typ.Type.(*ast.StructType); ok {
						out[f.Name.Name+"."+typ.Name.Name] = textsOf(gen.Doc.Text(), fields)
					}
				}
			}
		}
	}
	return out
}

// textsOf are the texts of a type and its fields, with fields named as JSON has them. A
// comment above several fields is of each one that it names, or of all where it begins
// with the name of none.
func textsOf(doc string, fields *ast.StructType) map[string]string {
	names := map[string]string{}
	for _, f := range fields.Fields.List {
		for _, n := range f.Names {
			names[n.Name] = n.Name
			if f.Tag == nil {
				continue
			}
			tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
			if name, _, _ := strings.Cut(tag.Get("json"), ","); name != "" {
				names[n.Name] = name
			}
		}
	}
	out := map[string]string{"": renamed(doc, nil)}
	above := ""
	for _, f := range fields.Fields.List {
		if f.Doc != nil {
			above = f.Doc.Text()
		}
		for _, n := range f.Names {
			words := word.FindAllString(above, -1)
			own := above
			if f.Doc == nil && len(words) > 0 && names[words[0]] != "" && !slices.Contains(words, n.Name) {
				own = ""
			}
			if line := f.Comment.Text(); line != "" {
				own = strings.TrimSpace(own + " " + line)
			}
			out[n.Name] = renamed(own, names)
		}
	}
	return out
}

var word = regexp.MustCompile(`[A-Za-z0-9_]+`)

func renamed(text string, names map[string]string) string {
	text = strings.Join(strings.Fields(text), " ")
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if name, ok := names[w]; ok {
			return name
		}
		return w
	})
}
