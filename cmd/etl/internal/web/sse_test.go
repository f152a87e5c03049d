package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// serveOverHTTP serves a service over HTTP, and ends with all of its streams.
func serveOverHTTP(t *testing.T, f *fake, o HandlerOptions) (*Client, *Handler) {
	t.Helper()
	h := NewHandler(f, o)
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.taps > 0 {
			t.Errorf("%d taps are open after the end", f.taps)
		}
	})
	c, err := NewClientTo(server.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, h
}

func TestEventsAreFollowedFromWhereAClientBrokeOff(t *testing.T) {
	f := &fake{}
	f.happens("one")
	f.happens("two")
	c, _ := serveOverHTTP(t, f, HandlerOptions{})
	var got []string
	for e, err := range c.FollowEvents(t.Context(), "orders", 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Text); len(got) == 3 {
			break
		}
		f.happens("three")
	}
	if fmt.Sprint(got) != "[two three three]" {
		t.Errorf("got %v", got)
	}
	resp, err := c.do(t.Context(), http.MethodGet, apiPath+"/events?after=1&follow=true", nil, http.Header{"Last-Event-Id": {"3"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text := make([]byte, 200)
	n, _ := io.ReadAtLeast(resp.Body, text, 30)
	if !strings.HasPrefix(string(text[:n]), "retry: 2000\n\nid: 4\nevent: event\ndata: {") {
		t.Errorf("who comes back behind 3 gets %q", text[:n])
	}
}

func TestLinesOfTheLogAreListedAndFollowed(t *testing.T) {
	f := &fake{}
	for i := range 5 {
		f.happens(fmt.Sprint(i))
	}
	c, _ := serveOverHTTP(t, f, HandlerOptions{})
	lines, err := c.Logs(t.Context(), api.LogQuery{Limit: 2})
	if err != nil || len(lines) != 2 || lines[1].Text != "4" || lines[1].Attrs["n"] == nil {
		t.Errorf("got %+v, %v", lines, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for l, err := range c.FollowLogs(ctx, api.LogQuery{Pipeline: "orders", Level: "info", After: 4}) {
		if err != nil || l.Number != 5 {
			t.Errorf("got %+v, %v", l, err)
		}
		cancel() // ends it without an error
	}
	if ctx.Err() == nil {
		t.Error("nothing was followed")
	}
	cancel()
}

func TestAStreamTellsOfEventsAndOfHowThingsAre(t *testing.T) {
	f := &fake{}
	f.happens("before")
	c, _ := serveOverHTTP(t, f, HandlerOptions{Interval: time.Millisecond})
	want := map[string]string{
		EventPipelines: `[{"name":"orders"`, EventFlow: `{"time"`, EventCheckpoints: `{"triggered"`, EventEvent: `"text":"after"`,
	}
	for m, err := range c.Stream(t.Context(), "orders") {
		if err != nil {
			t.Fatal(err)
		}
		if part, ok := want[m.Event]; !ok || !strings.Contains(string(m.Data), part) {
			t.Errorf("%s with %s is told again, or wrong", m.Event, m.Data)
		}
		if (m.Event == EventEvent) != (m.ID == "2") {
			t.Errorf("%s has the id %q", m.Event, m.ID)
		}
		if delete(want, m.Event); len(want) == 0 {
			break
		}
		if len(want) == 1 {
			f.happens("after")
		}
	}
	var p *Problem
	for _, err := range c.Stream(t.Context(), "missing") {
		if !errors.As(err, &p) || p.Status != http.StatusNotFound {
			t.Errorf("of a pipeline that is not there: %v", err)
		}
	}
}

func TestATapEndsWithItsLastRecordOrItsReader(t *testing.T) {
	f := &fake{}
	c, _ := serveOverHTTP(t, f, HandlerOptions{})
	n := 0
	for r, err := range c.Tap(t.Context(), "orders", "per-customer", pipeline.TapOptions{Limit: 3, PerSecond: 1000}) {
		if err != nil || r.Offset != int64(n) || r.Operator != "per-customer" {
			t.Errorf("got %+v, %v", r, err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("got %d records", n)
	}
	for _, err := range c.Tap(t.Context(), "orders", "source", pipeline.TapOptions{}) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	for _, err := range c.Tap(t.Context(), "invalid", "source", pipeline.TapOptions{}) {
		if err == nil {
			t.Error("a tap that is refused gives records")
		}
	}
}

func TestASignOfLifeIsSentWhileThereIsNothingToTell(t *testing.T) {
	c, _ := serveOverHTTP(t, &fake{}, HandlerOptions{Heartbeat: time.Millisecond})
	resp, err := c.do(t.Context(), http.MethodGet, apiPath+"/logs?follow=true", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text := make([]byte, len("retry: 2000\n\n:\n\n:\n\n"))
	if _, err := io.ReadFull(resp.Body, text); err != nil || string(text) != "retry: 2000\n\n:\n\n:\n\n" || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	c, h := serveOverHTTP(t, &fake{}, HandlerOptions{MaxStreams: 2})
	open := func() (*http.Response, error) {
		return c.do(t.Context(), http.MethodGet, apiPath+"/events?follow=true", nil, nil)
	}
	var held []*http.Response
	for range 2 {
		resp, err := open()
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, resp)
	}
	var p *Problem
	if _, err := open(); !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable || p.Code != CodeBusy {
		t.Errorf("one more: %v", err)
	}
	if _, err := c.Pipelines(t.Context()); err != nil {
		t.Errorf("what is no stream: %v", err)
	}
	_ = held[0].Body.Close()
	h.streams <- struct{}{} // once the one that was left has ended
	<-h.streams
	resp, err := open()
	if err != nil {
		t.Fatal(err)
	}
	_ = held[1].Body.Close()
	_ = resp.Body.Close()
}
