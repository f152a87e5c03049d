package files

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
)

func TestTextThatIsNoLineIsRefused(t *testing.T) {
	b := newBench(t, mem.New(), func(c *SinkConfig) { c.Format = connectors.FormatConfig{Name: formatRaw} })
	err := b.writer.Write(t.Context(), rowsOf([]byte("a"), []byte("two\nlines"), nil, []byte(""), []byte("\xff b")))
	refused, ok := err.(*connectors.RowsError) //nolint:errorlint // returned as it is
	if !ok || len(refused.Rows) != 3 || refused.Rows[0].Row != 1 || !strings.Contains(refused.Rows[1].Reason, "tombstone") {
		t.Errorf("got %v", err)
	}
	b.checkpoint(true)
	if got := b.lines(); !slices.Equal(got, []string{"a", "\xff b"}) || !strings.HasSuffix(b.visible()[0], ".txt") {
		t.Errorf("%q in %q", got, b.visible())
	}
}
