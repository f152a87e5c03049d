package elasticsearch

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestTheHealthOfTheClusterIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		level  connectors.Level
		text   string
	}{
		"green":           {http.StatusOK, `{"cluster_name":"logs","status":"green","number_of_data_nodes":3}`, connectors.LevelOK, "cluster logs is green, with 3 data nodes"},
		"red":             {http.StatusOK, `{"cluster_name":"logs","status":"red","number_of_data_nodes":2}`, connectors.LevelWarning, "shards have no primary"},
		"not to be asked": {http.StatusForbidden, `{}`, connectors.LevelOK, "lacks the right to monitor"},
		"out of order":    {http.StatusInternalServerError, `{}`, connectors.LevelFailed, "500"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/_cluster/health" {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
				return
			}
			_, _ = w.Write([]byte(`{"version":{"number":"8.0.0"}}`))
		}))
		cfg := newConfig().(*Config)
		cfg.Addresses = []string{server.URL}
		cfg.Index = connectors.Template{Text: "logs", Parts: []connectors.TemplatePart{{Literal: "logs"}}}
		s, err := newSink(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Open(t.Context(), connectors.SinkEnv{ReadOnly: true}); err != nil {
			t.Fatal(err)
		}
		var found connectors.Finding
		s.Diagnose(t.Context(), &connectors.Diagnosis{Report: func(f connectors.Finding) { found = f }})
		if found.Level != c.level || !strings.Contains(found.Detail, c.text) {
			t.Errorf("%s: found %+v", name, found)
		}
		_ = s.Close()
		server.Close()
	}
}
