package web

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAClientThatIsWrongAboutTLSIsToldHow(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	for name, c := range map[string]struct{ address, want string }{
		"no TLS":       {strings.Replace(s.URL, "https", "http", 1), "HTTP request to an HTTPS server"},
		"no authority": {s.URL, "--ca-file"},
	} {
		client, err := NewClientTo(c.address, "", &tls.Config{MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = client.Pipelines(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "does not answer") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
