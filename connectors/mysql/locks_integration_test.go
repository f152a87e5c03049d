//go:build integration

package mysql

import (
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
)

// through gives a configuration whose connections lead through a proxy.
func through(t *testing.T, c SinkConfig) (SinkConfig, *deferredtest.Proxy) {
	t.Helper()
	u, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := deferredtest.NewProxy(t, u.Host)
	u.Host = p.Addr
	c.URL = u.String()
	return c, p
}

// A process that is cut off in the middle of a commit leaves locks behind, for as long as
// the server believes that it is there.
func TestRealServerLetsGoOfAProcessThatIsCutOff(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id int) ENGINE = InnoDB")
	direct := w.config(func(c *SinkConfig) { c.Timeout = connectors.TimeSpan(2 * time.Second) })
	c, proxy := through(t, direct)
	var armed atomic.Bool
	old := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) {
		e.Failpoint = func(name string) {
			if name == "mysql.commit.before" && armed.Load() {
				proxy.Break()
			}
		}
	})
	old.Values(`{"id": 1}`)
	coms := old.Prepare()
	armed.Store(true)
	if err := old.Try(t.Context(), coms, false); err == nil || connectors.IsPermanent(err) {
		t.Fatalf("the process that is cut off: %v", err)
	}
	next := deferredtest.Open(t, mustSink(t, direct), old.Files, 2, nil)
	next.Resume(coms...) // waits for the locks
	next.Values(`{"id": 2}`)
	next.Checkpoint()
	w.want("SELECT id FROM @.rows ORDER BY id", "1", "2")
}
