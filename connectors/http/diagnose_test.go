package http

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestTheDiagnosisConnectsAndSendsNothing(t *testing.T) {
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	at := server.URL + "/events"
	if f := diagnosed(t, at); f.Level != connectors.LevelOK || asked {
		t.Errorf("found %+v, asked %t", f, asked)
	}
	server.Close()
	if f := diagnosed(t, at); f.Level != connectors.LevelFailed || f.Key != "url" || !strings.Contains(f.Detail, "refused") {
		t.Errorf("a service that is down: found %+v", f)
	}
}

func diagnosed(t *testing.T, address string) (found connectors.Finding) {
	t.Helper()
	c := newSinkConfig().(*SinkConfig)
	c.URL = connectors.Template{Text: address, Parts: []connectors.TemplatePart{{Literal: address}}}
	s, err := newSink(c)
	if err != nil {
		t.Fatal(err)
	}
	s.Diagnose(t.Context(), &connectors.Diagnosis{Report: func(f connectors.Finding) { found = f }})
	return found
}

func TestAHostHasThePortOfItsScheme(t *testing.T) {
	for address, want := range map[string]string{
		"http://a/x": "a:80", "https://a": "a:443", "https://a:8443/": "a:8443", "http://[::1]/": "[::1]:80",
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostOf(u); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
