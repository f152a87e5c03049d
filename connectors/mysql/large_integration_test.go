//go:build integration

package mysql

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
)

// A row as large as a statement can be does not go into one with others.
func TestRealServerTakesTheLargestRowBesideOthers(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id int PRIMARY KEY, body longtext) ENGINE = InnoDB")
	var packet int
	if err := w.db.QueryRowContext(t.Context(), "SELECT @@max_allowed_packet").Scan(&packet); err != nil {
		t.Fatal(err)
	}
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), &connectortest.Files{}, 1, nil)
	values := make([]string, 0, 21)
	for i := range cap(values) - 1 {
		values = append(values, fmt.Sprintf(`{"id": %d, "body": %q}`, i, strings.Repeat("a", 10<<10)))
	}
	values = append(values, fmt.Sprintf(`{"id": %d, "body": %q}`, len(values), strings.Repeat("a", packet-packetMargin-100)))
	if refused := r.Values(values...); refused != nil {
		t.Fatalf("refused %+v", refused)
	}
	r.Checkpoint()
	w.want("SELECT COUNT(*) FROM @.rows", fmt.Sprint(len(values)))
}

// A refused row larger than what one statement may be in text is kept all the same.
func TestRealServerKeepsALargeRefusedRow(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id int PRIMARY KEY, body longtext) ENGINE = InnoDB")
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), &connectortest.Files{}, 1, nil)
	body := strings.Repeat("é", 4<<20)
	r.Values(`{"id": 1, "body": "a"}`, `{"id": 1, "body": "`+body+`"}`)
	r.Checkpoint()
	rows := r.Tick()
	if len(rows) != 1 || !bytes.Contains(rows[0].Record.Value, []byte(body)) {
		t.Errorf("%d rows are handed over", len(rows))
	}
	w.want("SELECT COUNT(*) FROM @.sluice_rejected WHERE LENGTH(`row`) <= 65536", "1")
	r.Stop()
}
