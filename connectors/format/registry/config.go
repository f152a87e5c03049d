// Package registry is a client of schema registries that speak Confluent's API, with the
// marks of schemas in values and headers.
package registry

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// Config is the block registry of a format.
type Config struct {
	URL             []string            `key:"url" doc:"Address of the registry, or a list of those of its instances."`
	Username        string              `key:"username" doc:"User for basic authentication."`
	Password        string              `key:"password" secret:"true" doc:"Password for basic authentication."`
	Token           string              `key:"token" secret:"true" doc:"Bearer token."`
	TLS             tlsconfig.Config    `key:"tls" doc:"How connections are encrypted."`
	Timeout         connectors.TimeSpan `key:"timeout" doc:"Longest wait for one answer."`
	Subject         string              `key:"subject" doc:"Subject that a sink's schema is kept under, instead of one by subject_strategy."`
	SubjectStrategy string              `key:"subject_strategy" enum:"topic|record|topic_record" doc:"What a sink names the subject by: topic (TOPIC-value), record (the schema's full name) or topic_record (TOPIC-NAME)."`
	References      string              `key:"reference_strategy" enum:"name|qualified" doc:"What a sink names the subjects of schemas that its own refers to: by the name in the reference, or that of an imported .proto file qualified, shop/money.proto as shop.money."`
	Mark            string              `key:"mark" enum:"value|header" doc:"Where a sink says the schema of a value: value puts its id in front of it, header its GUID, or the id where the registry has no GUIDs, into the header __value_schema_id, for sinks with headers."`
	AutoRegister    bool                `key:"auto_register" doc:"A sink registers its schema; otherwise the subject must have it."`
	Normalize       bool                `key:"normalize" doc:"The registry brings schemas into a normal form before it compares them."`
	Cache           int                 `key:"cache" doc:"How many schemas each task keeps."`
}

// Default is the block as it is without options.
func Default() Config {
	return Config{Timeout: connectors.TimeSpan(10 * time.Second), SubjectStrategy: "topic", References: "name", Mark: "value", AutoRegister: true, Cache: 1000}
}

// inHeader is the value of Mark for marks in headers.
const inHeader = "header"

// Marks reports whether values are read by their marks, and whether a sink writes marks
// into headers.
func (c *Config) Marks() (read, inHeaders bool) { return c.Set(), c.Set() && c.Mark == inHeader }

// Set reports whether there is a registry.
func (c *Config) Set() bool { return len(c.URL) > 0 }

// Check reports what contradicts itself, below the key registry.
func (c *Config) Check() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: "registry." + key, Msg: msg, Help: help})
	}
	for _, text := range c.URL {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			fault("url", "an address like http://localhost:8081 is wanted", "")
		} else if u.User != nil {
			fault("url", "there is a user in it", "write username and password")
		}
	}
	if !c.Set() && (c.Username != "" || c.Token != "" || c.Subject != "" || c.Mark == inHeader) {
		fault("url", "is missing", "write url: http://HOST:8081")
	}
	if c.Username != "" && c.Token != "" {
		fault("token", "there are both a token and a username", "keep one of them")
	}
	if (c.Username == "") != (c.Password == "") {
		fault("password", "username and password belong together", "set both or neither")
	}
	if c.Cache < 1 {
		fault("cache", "a number from 1 on is wanted", "")
	}
	if c.Timeout <= 0 {
		fault("timeout", "a duration above 0 is wanted", "")
	}
	if err := c.TLS.Check(); err != nil {
		fault("tls", "cert and key belong together", "set both or neither")
	}
	return errors.Join(faults...)
}

// SubjectOf is the subject of a sink's schema; record is its full name, empty for none.
func (c *Config) SubjectOf(topic, record string) (string, error) {
	missing := ""
	switch {
	case c.Subject != "":
		return c.Subject, nil
	case c.SubjectStrategy != "record" && topic == "":
		missing = "the sink has no fixed topic"
	case c.SubjectStrategy != "topic" && record == "":
		missing = "the schema has no name"
	}
	if missing != "" {
		return "", connectors.Permanent(&connectors.FieldError{
			Key: "registry.subject_strategy", Msg: "there is no subject by " + c.SubjectStrategy + ": " + missing, Help: "write registry.subject",
		})
	}
	switch c.SubjectStrategy {
	case "record":
		return record, nil
	case "topic_record":
		return topic + "-" + record, nil
	}
	return topic + "-value", nil
}

// ReferenceSubject is the subject of a schema that others refer to by a name.
func (c *Config) ReferenceSubject(name string) string {
	if c.References == "qualified" {
		return strings.ReplaceAll(strings.TrimSuffix(name, ".proto"), "/", ".")
	}
	return name
}
