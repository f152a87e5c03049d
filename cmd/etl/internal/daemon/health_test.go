package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

func TestTheHelpForABadRecordIsWhatItsSourceCanDo(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(in, []byte("{\"id\":1}\n{\"id\":\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t)
	s.write("a.yaml", fmt.Sprintf("pipeline: a\nsource: {file: {path: %q}}\ntransforms: [{filter: id > 0}]\nsink: {blackhole: {}}\n", in))
	s.start()
	p := s.awaitState("a", api.Failed)
	if len(p.Health.Problems) != 1 || p.Health.Problems[0].Kind != "record" || strings.Contains(p.Health.Problems[0].Help, "etl skip") || !strings.Contains(p.Health.Problems[0].Help, "on_error") {
		t.Errorf("health is %+v", p.Health)
	}
	_, err := s.Skip(t.Context(), "ops", "a", in, 0, 9)
	if !errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), "on_error") {
		t.Errorf("a skip gives %v", err)
	}
	if after := s.awaitState("a", api.Failed); after.Failure != p.Failure {
		t.Errorf("after the skip it has failed by %q, want %q", after.Failure, p.Failure)
	}
}

func TestAFolderThatCannotBeUsedIsNoBroker(t *testing.T) {
	for name, c := range map[string]struct{ err, help string }{
		"read only": {"open /out/x: read-only file system", "may write to it"},
		"not there": {"mkdir /out: no such file or directory", "folder is there"},
		"full":      {"write /out/x: no space left on device", "make room"},
	} {
		t.Run(name, func(t *testing.T) {
			w := pipelinetest.New(t, exact)
			w.Feed("in", 1)
			w.Target("out").BeforeOpen = func() error { return errors.New(c.err) }
			s := newService(t)
			s.write("exact.yaml", w.Text())
			s.start()
			p := s.await("exact", "unwell", func(p *api.Pipeline) bool { return len(p.Health.Problems) > 0 })
			if first := p.Health.Problems[0]; first.Kind != "storage" || !strings.Contains(first.Text, c.err) || !strings.Contains(first.Help, c.help) {
				t.Errorf("health is %+v", p.Health)
			}
		})
	}
}
