package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// committableData is the handle of one writer's files of one checkpoint.
type committableData struct {
	Files []publishedFile `json:"files,omitempty"`
	// Subtask is whose they are, of Subtasks; End says that there was nothing after them.
	// They are there where the sink writes more than files.
	Subtask  int  `json:"subtask,omitempty"`
	Subtasks int  `json:"subtasks,omitempty"`
	End      bool `json:"end,omitempty"`
}

// publishedFile is a file with what it holds.
type publishedFile struct {
	storage.Staged
	Records int64 `json:"records,omitempty"`
}

func readData(c connectors.Committable) (d committableData, err error) {
	if c.Empty {
		return d, nil
	}
	if err := json.Unmarshal(c.Data, &d); err != nil {
		return d, connectors.Permanent(fmt.Errorf("read committable of checkpoint %d: %w", c.Checkpoint.Number, err))
	}
	return d, nil
}

// Committer publishes the sink's files.
func (s *Sink) Committer() connectors.Committer { return (*committer)(s) }

type committer Sink

var (
	_ connectors.Committer        = (*committer)(nil)
	_ connectors.PublishedChecker = (*committer)(nil)
)

func (s *Sink) committerID() string { return string(s.config.kind) + "/" + s.env.Name }

// ID names the committer by its sink.
func (c *committer) ID() string { return (*Sink)(c).committerID() }

// Expires is false: a staged file stays until it is published or revoked.
func (c *committer) Expires() bool { return false }

// Commit publishes the files of a committable.
func (c *committer) Commit(ctx context.Context, com connectors.Committable, _ bool) error {
	d, err := readData(com)
	if err != nil {
		return err
	}
	for _, f := range d.Files {
		if err := c.publish(ctx, f.Staged); err != nil {
			return fmt.Errorf("publish file %s: %w", f.Name, err)
		}
	}
	if (*Sink)(c).notes() {
		return c.finish(ctx, com, d)
	}
	return nil
}

// publish makes one file visible. A staged file is removed by nothing but its
// publication and a newer owner's revocation, after which the engine, which looks
// at the owners once more, takes no answer from this one; so where it is missing
// it is published. A published file that is missing was taken by a reader. A storage
// on which a rule can remove staged files says so, and then nobody knows.
func (c *committer) publish(ctx context.Context, f storage.Staged) error {
	s := (*Sink)(c)
	s.failpoint("publish.before")
	err := c.fs.Publish(ctx, f)
	s.failpoint("publish.after")
	switch {
	case errors.Is(err, storage.ErrVanished):
		return fmt.Errorf("%w: something has taken the published file from folder %s, or a rule of the storage has removed it before it was published: %w", connectors.ErrAmbiguous, c.fs.URL(), err)
	case errors.Is(err, fs.ErrNotExist):
		return c.published(ctx, f)
	case errors.Is(err, fs.ErrExist):
		// Names are never used twice, so it is somebody else's.
		return connectors.Permanent(fmt.Errorf("another file of that name is in folder %s: move it away and start again: %w", c.fs.URL(), err))
	}
	return err
}

func (c *committer) published(ctx context.Context, f storage.Staged) error {
	info, err := c.fs.Stat(ctx, f.Name)
	if errors.Is(err, fs.ErrNotExist) {
		c.env.Log.Warn("a published file is not there any more: something has taken or removed it", "file", f.Name, "folder", c.fs.URL())
		return nil
	}
	if err == nil && info.Size != f.Size {
		c.env.Log.Warn("a published file has another size than was written: something has changed it", "file", f.Name, "folder", c.fs.URL(), "size", info.Size, "written", f.Size)
	}
	return err
}

// Witness is none: a folder of files keeps no mark of its own.
func (c *committer) Witness(context.Context) (connectors.CheckpointID, bool, error) {
	return connectors.CheckpointID{}, false, connectors.ErrNoWitness
}

// Published reports whether a file of c is published: its staged file is gone.
func (c *committer) Published(ctx context.Context, com connectors.Committable) (bool, error) {
	d, err := readData(com)
	if err != nil || len(d.Files) == 0 {
		return false, err
	}
	staged, err := c.fs.Staged(ctx, "")
	if err != nil {
		return false, fmt.Errorf("list staged files in %s: %w", c.fs.URL(), err)
	}
	waiting := map[string]bool{}
	for _, f := range staged {
		waiting[f.Name] = true
	}
	for _, f := range d.Files {
		if !waiting[f.Name] {
			return true, nil
		}
	}
	return false, nil
}

// Revoke discards the files that older generations of this sink staged and no
// retained checkpoint holds.
func (c *committer) Revoke(ctx context.Context, keep []connectors.Committable) error {
	kept := map[string]bool{}
	for _, k := range keep {
		if k.Committer != c.ID() {
			continue
		}
		d, err := readData(k)
		if err != nil {
			return err
		}
		for _, f := range d.Files {
			kept[f.Name] = true
		}
	}
	staged, err := c.fs.Staged(ctx, "")
	if err != nil {
		return fmt.Errorf("list staged files in %s: %w", c.fs.URL(), err)
	}
	own := (*Sink)(c).generation()
	for _, f := range staged {
		g, ok := nameGeneration(c.prefix, path.Base(f.Name))
		if !ok || g >= own || kept[f.Name] {
			continue
		}
		if err := c.fs.Discard(ctx, f); err != nil {
			return fmt.Errorf("discard staged file %s: %w", f.Name, err)
		}
	}
	return nil
}

// Done lets the writers forget what is proven.
func (c *committer) Done(n connectors.CheckpointID) {
	c.log.forget(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.writers {
		w.done(n)
	}
}
