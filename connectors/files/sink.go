package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// Sink writes files of rows, exactly once.
type Sink struct {
	config SinkConfig
	fs     storage.FS
	now    func() time.Time

	env            connectors.SinkEnv
	form           *form
	files          connectors.CheckpointFiles // of the restored checkpoint
	own            bool                       // its files can be listed again
	prefix         string
	run            string // what its files are named by, besides the generation
	readable       bool   // staged files can be read while they are written
	restored       [][]*openPart
	restoredNumber uint64

	mu      sync.Mutex
	writers []*writer
	// rows and made are sizes of rows and of the files of them, see estimate.
	rows, made float64
	log        manifestLog
}

var _ connectors.TwoPhaseSink = (*Sink)(nil)

// state is what a writer keeps in a checkpoint.
type state struct {
	Number uint64      `json:"number"`          // of the checkpoint
	Open   *openPart   `json:"open,omitempty"`  // the file in the making, as it was kept once
	Parts  []*openPart `json:"parts,omitempty"` // the files in the making
	Ratio  float64     `json:"ratio,omitempty"` // see estimate
}

// openPart is a file in the making.
type openPart struct {
	Path     string                 `json:"path,omitempty"`
	Segments []connectors.StateFile `json:"segments"`
	Ext      string                 `json:"ext"`
	Form     string                 `json:"form,omitempty"`
	Detail   json.RawMessage        `json:"detail,omitempty"`
	Records  int64                  `json:"records,omitempty"`
	Raw      int64                  `json:"raw,omitempty"`
	Began    int64                  `json:"began,omitempty"` // ms since 1970
	Last     int64                  `json:"last,omitempty"`
	Until    *int64                 `json:"until,omitempty"`
}

// NewSink makes a sink of a configuration that Validate accepts.
func NewSink(c SinkConfig) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	f, err := storage.Open(c.Path)
	if err != nil {
		return nil, err
	}
	return &Sink{config: c, fs: f, now: time.Now, run: newRun()}, nil
}

// Guarantee is exactly_once.
func (s *Sink) Guarantee() connectors.Guarantee { return connectors.ExactlyOnce }

// Open finds out whether the folder can be written.
func (s *Sink) Open(ctx context.Context, env connectors.SinkEnv) error {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	env.Subtasks = max(1, env.Subtasks)
	s.env = env
	s.prefix = namePrefix(env.Pipeline, env.Name)
	var err error
	if s.form, err = formOf(&s.config, env.Columns, s.prefix); err != nil {
		return connectors.Permanent(err)
	}
	if env.ReadOnly {
		return nil
	}
	return s.probe(ctx)
}

// probe stages a file and drops it.
func (s *Sink) probe(ctx context.Context) error {
	w, err := s.fs.Stage(ctx, s.prefix+"probe")
	if err != nil {
		return denied(fmt.Errorf("write into folder %s: %w", s.fs.URL(), err), "let this user write there, or choose another path")
	}
	_, s.readable = w.(readableStage)
	w.Abort()
	return nil
}

// denied marks what only a person can mend, and says how.
func denied(err error, help string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return connectors.Permanent(fmt.Errorf("%w: %s", err, help))
	case errors.Is(err, syscall.ENOTDIR):
		return connectors.Permanent(fmt.Errorf("%w: a file is where a folder must be; choose another path", err))
	case errors.Is(err, syscall.EROFS):
		return connectors.Permanent(fmt.Errorf("%w: choose another path", err))
	}
	return err
}

// Start reads the restored state. The writers name their files when they begin them.
func (s *Sink) Start(_ context.Context, restored connectors.Restored) error {
	s.files, s.own = restored.Files, restored.Own
	for i, p := range restored.Subtasks {
		var st state
		if len(p.State) > 0 {
			if err := json.Unmarshal(p.State, &st); err != nil {
				return connectors.Permanent(fmt.Errorf("restore %s sink %s, subtask %d: its state cannot be read: %w", s.config.kind, s.env.Name, i, err))
			}
		}
		if st.Open != nil {
			st.Parts = append(st.Parts, st.Open)
		}
		for _, o := range st.Parts {
			if _, err := restoredForm(o); err != nil {
				return connectors.Permanent(fmt.Errorf("restore %s sink %s, subtask %d: %w", s.config.kind, s.env.Name, i, err))
			}
		}
		s.relearn(st.Ratio)
		s.restored = append(s.restored, st.Parts)
		s.restoredNumber = max(s.restoredNumber, st.Number)
	}
	return nil
}

// Writer makes the writer of one subtask, which takes over the files in the
// making of the restored subtasks that are dealt to it.
func (s *Sink) Writer(subtask int) (connectors.Writer, error) {
	w, err := newWriter(s, subtask)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers = append(s.writers, w)
	return w, nil
}

// Close does nothing: what is staged belongs to the checkpoints.
func (s *Sink) Close() error { return nil }

func (s *Sink) generation() uint64 {
	if s.env.Generation == nil {
		return 0
	}
	return s.env.Generation()
}

// bufferSize is how much a writer collects of one file before it writes.
func (s *Sink) bufferSize() int {
	size := int64(bufferSize)
	if s.env.Budget > 0 {
		size = min(bufferSize, max(64<<10, s.env.Budget/int64(s.env.Subtasks)))
	}
	if s.config.PartitionBy.Set() {
		size = max(minBufferSize, size/int64(s.config.MaxOpenFiles)*4) // few files are busy at a time
	}
	return int(min(size, bufferSize))
}

// failpoint tells of a step, by the block's name: "s3.stage.before".
func (s *Sink) failpoint(step string) {
	if s.env.Failpoint != nil {
		s.env.Failpoint(string(s.config.kind) + "." + step)
	}
}

// newBacking begins a file.
func (s *Sink) newBacking(ctx context.Context, p *part) (backing, error) {
	if !s.readable || p.form.convert != nil || p.restored != nil {
		return newSpool(s.fs, p.name, p.form.convert, p.restored)
	}
	w, err := s.fs.Stage(ctx, p.name)
	if err != nil {
		return nil, fmt.Errorf("begin file %s: %w", p.name, err)
	}
	r, ok := w.(readableStage)
	if !ok {
		w.Abort()
		return nil, fmt.Errorf("begin file %s: the store cannot read it back any more: %w", p.name, errors.ErrUnsupported)
	}
	return direct{r}, nil
}
