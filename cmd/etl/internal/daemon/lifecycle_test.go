package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

func TestARestartGoesOnWhenWhoAskedHasLeft(t *testing.T) {
	w := pipelinetest.New(t, strings.Replace(exact, "interval: 50ms", "interval: 1h", 1))
	w.Feed("in", 1).Append(0, `{"n":1}`)
	s := newService(t)
	s.write("exact.yaml", w.Text())
	s.start()
	first := s.await("exact", "writing", func(p *api.Pipeline) bool { return p.State == api.Running && p.Counts.Written > 0 }).Status.Generation
	ctx, leave := context.WithCancel(t.Context())
	w.Target("out").AfterPrepare = func(connectors.CheckpointID) error { leave(); return nil }
	_ = s.Restart(ctx, "me", "exact")
	p := s.awaitState("exact", api.Running)
	if ctx.Err() == nil || p.Status.Generation <= first {
		t.Errorf("it runs as %+v, before in generation %d; who asked: %v", p.Status, first, ctx.Err())
	}
}

func TestADaemonIsNotReadyBeforeItKnowsItsPipelines(t *testing.T) {
	s := newService(t)
	d, err := New(Options{Settings: s.settings, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.store.close() }()
	if ok, _ := d.Ready(t.Context()); ok {
		t.Error("it is ready before it has read its folder")
	}
}

func TestPutDoesNotTakeTheFileOfAnotherPipeline(t *testing.T) {
	s := newService(t)
	text := endless("other", "")
	s.write("a.yaml", text)
	s.start()
	s.awaitState("other", api.Running)
	if _, err := s.Put(t.Context(), "me", "a", endless("a", "")); !errors.Is(err, api.ErrConflict) {
		t.Errorf("put: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(s.settings.Pipelines, "a.yaml")); err != nil || string(got) != text {
		t.Errorf("the file of the other pipeline is %q, error %v", got, err)
	}
	s.awaitState("other", api.Running)
}

func TestAPutThatIsNotTakenOverPutsTheFileBackThoughWhoAskedHasLeft(t *testing.T) {
	s := newService(t)
	text := strings.Replace(endless("a", ""), "source:", "transforms:\n  - name: seen\n    dedup: {by: [sequence], within: 1h}\nsource:", 1)
	s.write("a.yaml", text)
	s.start()
	s.await("a", "writing", func(p *api.Pipeline) bool { return p.State == api.Running && p.Counts.Written > 0 })
	if _, err := s.Checkpoint(t.Context(), "me", "a"); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.Put(ctx, "me", "a", strings.Replace(text, "name: seen", "name: other", 1)); !errors.Is(err, api.ErrConflict) {
		t.Errorf("put: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(s.settings.Pipelines, "a.yaml")); err != nil || string(got) != text {
		t.Errorf("the file is %q, error %v", got, err)
	}
}

func TestAHistoryThatACrashHasCutOffGoesOn(t *testing.T) {
	st := &store{dir: t.TempDir()}
	h, err := st.historyOf("a")
	if err != nil {
		t.Fatal(err)
	}
	at := func(n uint64) []checkpoint.AttemptStats {
		return []checkpoint.AttemptStats{{ID: checkpoint.ID{Number: n}}}
	}
	if err := h.add(append(at(1), at(2)...)); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(h.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path, bytes.TrimRight(data, "}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err = st.historyOf("a"); err != nil {
		t.Fatal(err)
	}
	if err := h.add(at(3)); err != nil {
		t.Fatal(err)
	}
	if h, err = st.historyOf("a"); err != nil || len(h.list) != 2 || h.list[1].ID.Number != 3 {
		t.Errorf("the history is %+v, error %v", h.list, err)
	}
}

func TestSavepointsTellTheirSize(t *testing.T) {
	s := newService(t)
	dir := t.TempDir()
	text := strings.Replace(endless("a", ""), "source:", "transforms:\n  - name: seen\n    dedup: {by: [sequence], within: 1h}\nsource:", 1)
	s.write("a.yaml", strings.Replace(text, "interval: 1h,", `interval: 1h, savepoints: {dir: "`+dir+`"},`, 1))
	s.start()
	s.await("a", "writing", func(p *api.Pipeline) bool { return p.State == api.Running && p.Counts.Written > 0 })
	if _, err := s.Savepoint(t.Context(), "me", "a", ""); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Savepoints(t.Context(), "a"); err != nil || len(got) != 1 || got[0].Size <= 0 {
		t.Errorf("savepoints %+v, error %v", got, err)
	}
}

func TestAPipelineWhoseBrokerIsGoneNamesIt(t *testing.T) {
	s := newService(t)
	s.write("a.yaml", `pipeline: a
checkpoint: {storage: "mem://gone"}
source: {kafka: {brokers: ["127.0.0.1:1"], topics: [orders]}}
sink: {blackhole: {}}
`)
	s.start()
	p := s.await("a", "unwell", func(p *api.Pipeline) bool { return len(p.Health.Problems) > 0 })
	if p.Health.OK || p.Health.Problems[0].Kind != "broker" || !strings.Contains(p.Health.Problems[0].Text, "127.0.0.1:1") {
		t.Errorf("health is %+v, state %s, failure %q", p.Health, p.State, p.Failure)
	}
}

func TestAFileThatComesBackWaitsForTheEndOfWhatItWas(t *testing.T) {
	w := pipelinetest.New(t, strings.Replace(exact, "interval: 50ms", "interval: 1h", 1))
	w.Feed("in", 1).Append(0, `{"n":1}`)
	var armed atomic.Bool
	last, back := make(chan struct{}), make(chan struct{})
	w.Target("out").AfterPrepare = func(connectors.CheckpointID) error {
		if armed.CompareAndSwap(true, false) {
			close(last)
			<-back
		}
		return nil
	}
	s := newService(t)
	s.write("exact.yaml", w.Text())
	s.start()
	s.await("exact", "writing", func(p *api.Pipeline) bool { return p.State == api.Running && p.Counts.Written > 0 })
	armed.Store(true)
	if err := os.Remove(filepath.Join(s.settings.Pipelines, "exact.yaml")); err != nil {
		t.Fatal(err)
	}
	<-last
	s.write("exact.yaml", w.Text())
	reloaded := make(chan error, 1)
	go func() {
		_, err := s.Reload(t.Context(), "me")
		reloaded <- err
	}()
	for { // until the new one is there
		if _, err := s.Pipeline(t.Context(), "exact"); err == nil {
			break
		}
		_ = pause(t.Context(), time.Millisecond)
	}
	close(back)
	if err := <-reloaded; err != nil {
		t.Fatal(err)
	}
	s.awaitState("exact", api.Running)
	var told []string
	events, _ := s.Events(t.Context(), "exact", 0, 0)
	for i := range events {
		if kind := events[i].Kind; kind == "started" || kind == "definition" {
			told = append(told, kind)
		}
	}
	if got := strings.Join(told, " "); got != "started definition started" {
		t.Errorf("it went as %s", got)
	}
}
