// Package formattest reads and writes single values of formats, for tests.
package formattest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Config is a format by its name and options.
func Config(name string, options map[string]any) connectors.FormatConfig {
	return connectors.FormatConfig{Name: name, Options: options}
}

// Env is what tests start formats with.
func Env(topic string, cols ...connectors.Column) format.Env {
	return format.Env{Log: slog.New(slog.DiscardHandler), Topic: topic, Columns: cols}
}

// Input makes an input that is started.
func Input(t testing.TB, cfg connectors.FormatConfig) format.Input {
	t.Helper()
	in, err := format.NewInput(cfg)
	if err == nil {
		err = in.Start(context.Background(), Env(""))
	}
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Output makes an output that is started.
func Output(t testing.TB, cfg connectors.FormatConfig, env format.Env) format.Output {
	t.Helper()
	out, err := format.NewOutput(cfg)
	if err == nil {
		err = out.Start(context.Background(), env)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Read turns a value into JSON.
func Read(in format.Input, value []byte, headers ...connectors.Header) (string, error) {
	out, err := in.JSON(context.Background(), nil, &connectors.Record{Value: value, Headers: headers})
	return string(out), err
}

// Write turns JSON into a value.
func Write(out format.Output, json string) (value []byte, err error) {
	value, _, err = WriteMarked(out, json)
	return value, err
}

// WriteMarked turns JSON into a value and the headers that say its schema.
func WriteMarked(out format.Output, json string) (value []byte, headers []connectors.Header, err error) {
	b := &connectors.Batch{}
	b.Size(1, 0)
	rows := &connectors.Rows{Batch: b, Sel: []uint16{0}, Values: [][]byte{[]byte(json)}}
	broken := out.Encode(context.Background(), rows, func(_ int, failed error) { err = failed })
	if broken != nil {
		return nil, nil, broken
	}
	for _, h := range rows.Headers {
		if h.Value != nil {
			headers = append(headers, h)
		}
	}
	return rows.Values[0], headers, err
}
