package iceberg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/connectors"
)

// committableData is the Data of a committable.
type committableData struct {
	Files []*fileSet `json:"files"`
}

// Committer adds the files of checkpoints to the table.
func (s *Sink) Committer() connectors.Committer { return (*committer)(s) }

type committer Sink

var _ connectors.Committer = (*committer)(nil)

func (s *Sink) committerID() string { return "iceberg/" + s.env.Name }

// ID names the committer by its sink.
func (c *committer) ID() string { return (*Sink)(c).committerID() }

// Expires is false: a file stays until somebody cleans the table's folder.
func (c *committer) Expires() bool { return false }

// Commit adds the files of a checkpoint to the table, once.
func (c *committer) Commit(ctx context.Context, com connectors.Committable, restored bool) error {
	if com.Empty {
		return nil
	}
	var d committableData
	if err := json.Unmarshal(com.Data, &d); err != nil {
		return connectors.Permanent(fmt.Errorf("read the committable of checkpoint %d: %w", com.Checkpoint.Number, err))
	}
	s := (*Sink)(c)
	s.committing.Lock()
	defer s.committing.Unlock()
	checked := !restored
	return s.change(ctx, steps{s.failpoint("iceberg.commit.before"), s.failpoint("iceberg.commit.after")}, func(ctx context.Context, v *view, m *mark) (*change, error) {
		if m.proves(com.Checkpoint) {
			return nil, nil
		}
		if last, ok := m.last(); ok && last.Generation > com.Checkpoint.Generation {
			return nil, fmt.Errorf("%w: checkpoint %d of generation %d comes after one of generation %d", connectors.ErrFenced, com.Checkpoint.Number, com.Checkpoint.Generation, last.Generation)
		}
		if err := fitsTable(ctx, v, d.Files); err != nil {
			return nil, err
		}
		if !checked { // another process wrote them, perhaps long ago
			if err := allThere(ctx, d.Files); err != nil {
				return nil, err
			}
			checked = true
		}
		next := m.with(com.Checkpoint, s.generation())
		return s.marked(d.Files, s.owner().summary(com.Checkpoint), &next)
	})
}

func (s *Sink) marked(files []*fileSet, summary map[string]string, m *mark) (*change, error) {
	text, err := m.encode()
	return &change{files: files, summary: summary, properties: map[string]string{s.owner().property(): text}}, err
}

// fitsTable reports files that were written for another table of the name, or for the
// table as it is no more.
func fitsTable(ctx context.Context, v *view, files []*fileSet) error {
	for _, f := range files {
		if f.Table != v.uuid() {
			return fmt.Errorf("%w: the table was replaced by another one of its name since its files were written", connectors.ErrLost)
		}
	}
	err := v.takesDeletes(ctx, files)
	if errors.Is(err, errSpecs) {
		err = fmt.Errorf("%w: the table's partitioning was changed since its files were written: %w", connectors.ErrLost, err)
	}
	return err
}

// allThere reports files that were removed: a table that lists them could not be read.
func allThere(ctx context.Context, files []*fileSet) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(looks)
	for _, f := range files {
		for _, path := range f.Paths {
			g.Go(func() (err error) {
				defer connectors.Recovered(&err)
				ok, err := exists(ctx, path)
				if err != nil {
					return fmt.Errorf("look for file %s: %w", path, err)
				}
				if !ok {
					return fmt.Errorf("%w: file %s was removed before it became part of the table, as by a removal of orphan files that takes younger ones too", connectors.ErrLost, path)
				}
				return nil
			})
		}
	}
	return g.Wait()
}

// looks is how many files are looked for at once.
const looks = 16

// Commits that lose against another writer of the table are tried again so often in one
// call; the engine calls again.
const (
	maxTries  = 12
	firstWait = 50 * time.Millisecond
	maxWait   = 5 * time.Second
)

// steps are the durable steps before and after a commit of the catalog.
type steps struct{ before, after func() }

func (s *Sink) failpoint(name string) func() { return func() { s.env.Failpoint(name) } }

// change makes one commit of the catalog, if decide wants one by what it finds in the
// table. The commit holds only where the branch is as it was then. So whatever became
// of a try without an answer, it has happened and decide finds it, or it can happen no
// more once another one has.
func (s *Sink) change(ctx context.Context, around steps, decide func(context.Context, *view, *mark) (*change, error)) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := s.try(ctx, around, decide)
		if !errors.Is(err, errConflict) || try == maxTries {
			return err
		}
		s.env.Log.Debug("a commit lost against another writer of the table, trying again", "table", s.cfg.Table, "err", err)
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			t.Stop()
			return errors.Join(context.Cause(ctx), err)
		case <-t.C:
		}
		wait = min(2*wait, maxWait)
	}
}

func (s *Sink) try(ctx context.Context, around steps, decide func(context.Context, *view, *mark) (*change, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.cfg.Timeout))
	defer cancel()
	v, err := s.lake.load(ctx)
	if errors.Is(err, errNoTable) {
		return connectors.Permanent(fmt.Errorf("the table %s is gone: bring it back, or start the pipeline anew", s.cfg.Table))
	}
	if err != nil {
		return err
	}
	m, _, err := s.owner().read(v)
	if err != nil {
		return err
	}
	if m.Fence > s.generation() {
		return fmt.Errorf("%w: generation %d has taken over the table %s", connectors.ErrFenced, m.Fence, s.cfg.Table)
	}
	c, err := decide(ctx, v, &m)
	if c == nil || err != nil {
		return err
	}
	around.before()
	err = s.lake.commit(ctx, v, *c)
	around.after()
	if err != nil && !errors.Is(err, errConflict) {
		// The next try finds out what became of it.
		err = fmt.Errorf("commit to the table %s: %w", s.cfg.Table, err)
	}
	return err
}

// Witness is the newest checkpoint that the table says it holds.
func (c *committer) Witness(ctx context.Context) (connectors.CheckpointID, bool, error) {
	s := (*Sink)(c)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.cfg.Timeout))
	defer cancel()
	v, err := s.lake.load(ctx)
	if errors.Is(err, errNoTable) {
		return connectors.CheckpointID{}, false, nil
	}
	if err != nil {
		return connectors.CheckpointID{}, false, err
	}
	m, foreign, err := s.owner().read(v)
	if err != nil {
		return connectors.CheckpointID{}, false, err
	}
	if foreign != nil {
		last, _ := foreign.last()
		text, _ := foreign.encode()
		return last, false, &connectors.ForeignWitnessError{Mark: text, Text: fmt.Sprintf(
			"the table %s holds checkpoint %d of a pipeline of this name with another checkpoint storage, in its property %s", s.cfg.Table, last.Number, s.owner().property())}
	}
	last, ok := m.last()
	return last, ok, nil
}

// Revoke makes a snapshot without rows that names this generation: commits of older
// processes that are still under way were made for the snapshot before it, and those
// that come later find it. What they prepared stays in the table's folder, where no
// reader looks, until the table's orphan files are removed: whether a file is part of
// the table of another branch or catalog cannot be told from here.
func (c *committer) Revoke(ctx context.Context, _ []connectors.Committable) error {
	err := (*Sink)(c).fence(ctx)
	if errors.Is(err, errNoTable) {
		return nil // Start makes it, and fences
	}
	return err
}

// fence keeps older generations out.
func (s *Sink) fence(ctx context.Context) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	if _, err := s.lake.load(ctx); err != nil {
		return err
	}
	return s.change(ctx, steps{s.failpoint("iceberg.fence.before"), s.failpoint("iceberg.fence.after")}, func(_ context.Context, _ *view, m *mark) (*change, error) {
		own := s.generation()
		if m.Fence >= own || own <= 1 && len(m.Commits) == 0 {
			return nil, nil
		}
		next := *m
		next.Fence = own
		return s.marked(nil, s.owner().summary(connectors.CheckpointID{Generation: own}), &next)
	})
}

// Done frees what is proven.
func (c *committer) Done(n connectors.CheckpointID) { (*Sink)(c).done(n.Number) }
