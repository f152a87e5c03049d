package checkpoint_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
)

// process is one start of a pipeline, as the engine would do it.
type process struct {
	t     *testing.T
	store *checkpoint.Store
	job   *checkpoint.Job
	r     *checkpoint.Restore
	g     uint64
	next  uint64
	files []connectors.StateFile // that the next checkpoint refers to besides a new one
}

func newStore(t *testing.T, f storage.FS, opts checkpoint.StoreOptions) *checkpoint.Store {
	t.Helper()
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s, err := checkpoint.NewStore(f, "orders", opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// begin does a start up to the record of the owner.
func begin(ctx context.Context, s *checkpoint.Store, req checkpoint.Request) (*process, error) {
	sv, err := s.Survey(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Check(ctx, sv, req); err != nil {
		return nil, err
	}
	g, err := s.TakeNext(ctx, sv)
	if err != nil {
		return nil, err
	}
	return own(ctx, s, g, req)
}

// own is what follows once a generation is taken.
func own(ctx context.Context, s *checkpoint.Store, g uint64, req checkpoint.Request) (*process, error) {
	sv, err := s.Survey(ctx)
	if err != nil {
		return nil, err
	}
	r, err := s.Choose(ctx, sv, req)
	if err != nil {
		return nil, err
	}
	if err := s.WriteOwner(ctx, g, r.Owner()); err != nil {
		return nil, err
	}
	return &process{store: s, job: s.Job(r.Job, g), r: r, g: g, next: r.NextNumber}, nil
}

func start(t *testing.T, s *checkpoint.Store, from string) *process {
	t.Helper()
	p, err := begin(t.Context(), s, checkpoint.Request{From: from})
	if err != nil {
		t.Fatal(err)
	}
	p.t = t
	return p
}

func refused(t *testing.T, s *checkpoint.Store, req checkpoint.Request) error {
	t.Helper()
	_, err := begin(t.Context(), s, req)
	if err == nil {
		t.Fatal("the start was not refused")
	}
	if !connectors.IsPermanent(err) {
		t.Fatalf("the refusal is not permanent: %v", err)
	}
	return err
}

// claim takes the next free number.
func (p *process) claim(ctx context.Context) (uint64, error) {
	for {
		n := p.next
		p.next++
		if mine, err := p.job.Claim(ctx, n); mine || err != nil {
			return n, err
		}
	}
}

// complete takes the next checkpoint up to its metadata.
func (p *process) complete(ctx context.Context) (uint64, error) {
	n, err := p.claim(ctx)
	if err != nil {
		return n, err
	}
	return n, p.finish(ctx, n)
}

// finish writes the metadata of a number that is claimed.
func (p *process) finish(ctx context.Context, n uint64) error {
	m, err := p.metadata(ctx, n)
	if err != nil {
		return err
	}
	return p.job.Complete(ctx, m)
}

// claims takes some numbers before a process falls asleep.
func (p *process) claims(n int) *process {
	p.t.Helper()
	for range n {
		if _, err := p.claim(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
	}
	return p
}

// metadata refers to one new shared file, which says whose it is.
func (p *process) metadata(ctx context.Context, n uint64) (*checkpoint.Metadata, error) {
	w, err := p.job.Files(n).Create(ctx)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	if _, err := fmt.Fprintf(w, "state of %d by %d", n, p.g); err != nil {
		return nil, err
	}
	f, err := w.Close()
	if err != nil {
		return nil, err
	}
	m := &checkpoint.Metadata{Format: checkpoint.FormatVersion, Pipeline: "orders", Job: p.job.ID(), Generation: p.g, Number: n,
		Kind: checkpoint.Periodic, Definition: "sha256:00", MaxParallelism: 128}
	m.Operators = []checkpoint.Operator{{UID: "op", Kind: "aggregate", Parallelism: 1,
		Subtasks: []checkpoint.SubtaskState{{State: []byte(fmt.Sprintf(`{"file":%q}`, f.Path)), Files: append([]connectors.StateFile{f}, p.files...)}}}}
	m.Committables = []connectors.Committable{{Committer: "out", Checkpoint: m.ID()}}
	return m, nil
}

// commit does what follows the metadata, but for the sinks.
func (p *process) commit(ctx context.Context, n uint64) error {
	if err := p.job.CheckOwner(ctx); err != nil {
		return err
	}
	return p.job.Proven(ctx, n)
}

// take takes n whole checkpoints.
func (p *process) take(n int) *process {
	p.t.Helper()
	for range n {
		c, err := p.complete(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		if err := p.commit(p.t.Context(), c); err != nil {
			p.t.Fatal(err)
		}
	}
	return p
}

// last is the number of the last checkpoint that was begun.
func (p *process) last() uint64 { return p.next - 1 }

func (p *process) path(n uint64) string { return p.job.Path(n) }

// wantRestored checks what a start went on from; 0 for nothing.
func (p *process) wantRestored(g, n uint64) *process {
	p.t.Helper()
	switch {
	case n == 0 && p.r.Meta != nil:
		p.t.Fatalf("it restored %v, want nothing", p.r.Meta.ID())
	case n == 0:
	case p.r.Meta == nil:
		p.t.Fatalf("it restored nothing, want %d of generation %d", n, g)
	case p.r.Meta.ID() != id(g, n):
		p.t.Fatalf("it restored %v, want %d of generation %d", p.r.Meta.ID(), n, g)
	default:
		for _, f := range p.r.Meta.Files() {
			if got, want := p.read(f), fmt.Sprintf("state of %d by %d", n, g); f == p.r.Meta.Operators[0].Subtasks[0].Files[0] && got != want {
				p.t.Fatalf("its state is %q, want %q", got, want)
			}
		}
	}
	return p
}

func (p *process) read(f connectors.StateFile) string {
	p.t.Helper()
	r, err := p.r.Files.Open(p.t.Context(), f)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, f storage.FS, dir string) []string {
	t.Helper()
	infos, err := f.List(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, i := range infos {
		out = append(out, i.Name)
	}
	return out
}

func memory(t *testing.T) (storage.FS, *checkpoint.Store) {
	t.Helper()
	f := mem.New()
	return f, newStore(t, f, checkpoint.StoreOptions{})
}

func wantSays(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want an error that says %q", err, w)
		}
	}
}
