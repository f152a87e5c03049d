package spec

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/registry"
	"github.com/sluice-etl/sluice/pipeline/schema"
)

// registryKeys is the block registry of a source's schema.
type registryKeys struct {
	URL     string        `key:"url" doc:"Address of the registry. Default: the registry of the source's format, with its login."`
	Subject string        `key:"subject" required:"true" doc:"Subject of the schema, such as TOPIC-value."`
	Version schemaVersion `key:"version" doc:"Version of the subject, or latest."`
}

// schemaVersion is a number, or registry.Newest.
type schemaVersion int

// UnmarshalConfig reads both forms.
func (s *schemaVersion) UnmarshalConfig(v any) error {
	if n := reflect.ValueOf(v); n.CanInt() && n.Int() > 0 && n.Int() <= math.MaxInt32 {
		*s = schemaVersion(n.Int())
		return nil
	}
	if v == "latest" {
		*s = registry.Newest
		return nil
	}
	return errors.New("a version of the subject from 1 on is wanted, or latest")
}

// registrySchema reads the schema of a source that is in a registry: values are read as it
// has them, where the format has schemas, and have its types.
func (l *loader) registrySchema(s *Source, n *node) {
	if n == nil || n.kind != mapNode || len(n.entries) != 1 || n.entries[0].key != "registry" || s.Schema != nil {
		return
	}
	e := n.entries[0]
	keys := registryKeys{Version: registry.Newest}
	if !l.config(e.name, e.value, &keys, "schema.registry") {
		return
	}
	cfg, err := registryOf(s.Format, keys)
	if err != nil {
		l.place(e.name, e.value, err, CodeValue, "")
		return
	}
	if l.opts.ReadSchema == nil {
		return
	}
	got, err := l.opts.ReadSchema(cfg, int(keys.Version))
	if err != nil {
		l.fault(e.value, CodeRead, fmt.Sprintf("the schema of subject %s cannot be read: %v", keys.Subject, err), "check that the registry runs and has the subject")
		return
	}
	if err := s.readAs(got); err != nil {
		l.fault(e.value, CodeValue, fmt.Sprintf("the schema of subject %s cannot be used: %v", keys.Subject, err), "")
	}
}

// registryOf is the registry of a schema: that of the format, or one by its address.
func registryOf(f connectors.FormatConfig, keys registryKeys) (*registry.Config, error) {
	var options struct {
		Registry registry.Config `key:"registry"`
	}
	options.Registry = registry.Default()
	if given, ok := f.Options["registry"]; ok {
		if err := format.DecodeOptions(f.Name, map[string]any{"registry": given}, &options); err != nil {
			return nil, err
		}
	}
	cfg := &options.Registry
	if keys.URL != "" {
		*cfg = registry.Default()
		cfg.URL = []string{keys.URL}
	}
	if !cfg.Set() {
		return nil, &connectors.FieldError{Key: "url", Msg: "is missing: the source's format has no registry", Help: "write url: http://HOST:8081"}
	}
	cfg.Subject = keys.Subject
	return cfg, cfg.Check()
}

// readAs makes the source's records those of a schema.
func (s *Source) readAs(got registry.Schema) error {
	text := format.SchemaText{Text: got.Text, References: got.References}
	cfg, ok, err := format.ReadAs(s.Format, got.Type, text)
	if ok || err != nil {
		s.Format = cfg
		return err
	}
	// Of records that have no schema of their own only the types are known.
	if got.Type == "JSON" {
		s.Schema, err = schema.ParseJSON([]byte(got.Text))
		return err
	}
	cfg, _, err = format.ReadAs(connectors.FormatConfig{Name: formatOfKind[got.Type]}, got.Type, text)
	if err != nil {
		return err
	}
	cols, err := format.Columns(cfg)
	if err == nil && len(cols) == 0 {
		err = errors.New("it is of no record")
	}
	if err == nil {
		s.Schema = schema.OfColumns(cols)
	}
	return err
}

// formatOfKind are the formats of schemas by what registries call them.
var formatOfKind = map[string]string{"AVRO": "avro", "PROTOBUF": "protobuf"}
