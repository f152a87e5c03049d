package jsonschema

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Validator checks JSON values. It is immutable.
type Validator struct{ schema *jsonschema.Schema }

// Document is a schema that another one refers to by its name.
type Document struct{ Name, Text string }

// mainSchema is the address of the schema itself; those it refers to lie beside it.
const mainSchema = "sluice:///schema.json"

// Compile reads a schema. Other documents than those given are not fetched.
func Compile(text string, refs ...Document) (*Validator, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.AssertContent()
	c.UseLoader(noLoader{})
	for _, d := range append(refs, Document{mainSchema, text}) {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(d.Text))
		if err != nil {
			return nil, fmt.Errorf("it is no valid JSON: %w", err)
		}
		name := d.Name
		if !strings.Contains(name, "://") {
			name = "sluice:///" + name
		}
		if err := c.AddResource(name, doc); err != nil {
			return nil, err
		}
	}
	s, err := c.Compile(mainSchema)
	if err != nil {
		return nil, err
	}
	return &Validator{s}, nil
}

type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document, and only references within the schema, and to those in the registry, are followed", url)
}

// Check reports whether a value conforms. The error of one that does not says where the
// first fault is, and holds no data of the record; it is marked by format.Refuse.
func (v *Validator) Check(json []byte) error {
	var arena connectors.Arena
	if _, err := format.ParseValue(json, &arena); err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(json))
	if err != nil {
		return format.Refuse(errors.New("the value is no JSON"))
	}
	err = v.schema.Validate(doc)
	if err == nil {
		return nil
	}
	var fault *jsonschema.ValidationError
	if !errors.As(err, &fault) {
		return format.Refuse(err)
	}
	return format.Refuse(explain(fault))
}

var printer = message.NewPrinter(language.English)

// explain is the first fault at the bottom of the causes.
func explain(e *jsonschema.ValidationError) error {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	where := "the value"
	if len(e.InstanceLocation) > 0 {
		where = "field " + strings.Join(e.InstanceLocation, ".")
	}
	return fmt.Errorf("%s violates the schema at %s: %s", where, "/"+strings.Join(e.ErrorKind.KeywordPath(), "/"), withoutData(e.ErrorKind))
}

// withoutData is what is wrong, without the value where the library's text has it.
func withoutData(k jsonschema.ErrorKind) string {
	text := k.LocalizedString(printer)
	if _, after, ok := strings.Cut(text, " is not valid "); ok {
		return "it is not valid " + after
	}
	if _, after, ok := strings.Cut(text, "' does not match pattern "); ok {
		return "it does not match pattern " + after
	}
	return text
}
