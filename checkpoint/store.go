package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// StoreOptions are what a Store is told besides its place.
type StoreOptions struct {
	Retained int          // complete checkpoints to keep; 0 means 3
	Log      *slog.Logger // nil means slog.Default()
	Now      func() time.Time
	// Local keeps copies of state files on a local disk; nil for none.
	Local *Local
	// Failpoint is called with a name of StoreFailpoints; nil outside of tests.
	Failpoint func(name string)
}

// StoreFailpoints are the durable steps of a Store that a crash must survive,
// before and after each.
var StoreFailpoints = []string{
	"before-claim-file", "after-claim-file", "before-metadata-file", "after-metadata-file",
	"before-committed-file", "after-committed-file", "before-owner-file", "after-owner-file",
	"before-owner-json-file", "after-owner-json-file", "before-ended-file", "after-ended-file",
	"before-savepoint-file", "after-savepoint-file",
}

// Store is where the checkpoints of one pipeline are kept. It holds no state of
// its own: everything is decided by what is on storage.
type Store struct {
	fs       storage.FS
	pipeline string
	opts     StoreOptions
	log      *slog.Logger
}

// NewStore makes the store of a pipeline below the root of f. It does no I/O.
func NewStore(f storage.FS, pipeline string, opts StoreOptions) (*Store, error) {
	if err := CheckPipeline(pipeline); err != nil {
		return nil, err
	}
	if opts.Retained <= 0 {
		opts.Retained = 3
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Failpoint == nil {
		opts.Failpoint = func(string) {}
	}
	return &Store{fs: f, pipeline: pipeline, opts: opts, log: opts.Log}, nil
}

// Pipeline is the name of the store's pipeline.
func (s *Store) Pipeline() string { return s.pipeline }

// address is that of a name in the store, as -s takes it.
func (s *Store) address(name string) string { return addressOf(s.fs, name) }

func (s *Store) in(names ...string) string { return path.Join(s.pipeline, path.Join(names...)) }

// durable does one durable step between its failpoints.
func (s *Store) durable(step string, do func() error) error {
	s.opts.Failpoint("before-" + step + "-file")
	err := do()
	s.opts.Failpoint("after-" + step + "-file")
	return err
}

// Survey is what the storage says about a pipeline at one time.
type Survey struct {
	Pipeline string
	// Highest is the highest generation that was taken, 0 for none.
	Highest uint64
	// Owners are the records of the owners.
	Owners Lineage
	// Job is the current one, empty where there is none yet.
	Job string
	// Ended says how the current job ended; nil while it goes on.
	Ended *Ended
	// Checkpoints are those of the current job, the newest first.
	Checkpoints []Found
	// Damaged are records that could not be read, by name.
	Damaged map[string]error

	currentErr error // why the current job is not known
	endedErr   error
}

// Origin is what the owners call the pipeline's folder; empty before the first.
func (sv *Survey) Origin() string {
	for _, g := range sv.Owners.generations() {
		if o := sv.Owners[g]; o.Origin != "" {
			return o.Origin
		}
	}
	return ""
}

// Acknowledged reports whether a user has started the pipeline beside a foreign mark.
func (l Lineage) Acknowledged(mark string) bool {
	for _, o := range l {
		if slices.Contains(o.Acknowledged, mark) {
			return true
		}
	}
	return false
}

// Found is one checkpoint's folder.
type Found struct {
	Job       string
	Number    uint64
	Path      string // as -s takes it
	Claimed   bool
	Complete  bool // its metadata is there
	Committed bool // every sink's commit was proven
	Meta      *Metadata
	Err       error // why the metadata cannot be used; nil where it can or is not there
	Orphan    bool  // a newer generation went on from something older
}

// Survey reads the owners, the current job and its checkpoints. What is damaged is
// noted, what is foreign is passed over; an error is the storage's own.
func (s *Store) Survey(ctx context.Context) (*Survey, error) {
	sv := &Survey{Pipeline: s.pipeline, Owners: Lineage{}, Damaged: map[string]error{}}
	if err := s.readOwners(ctx, sv); err != nil {
		return nil, err
	}
	if sv.Job == "" {
		return sv, s.noticeStrayJobs(ctx, sv)
	}
	if err := s.readEnded(ctx, sv); err != nil {
		return nil, err
	}
	var err error
	sv.Checkpoints, err = s.checkpoints(ctx, sv.Job, sv.Owners)
	return sv, err
}

// noticeStrayJobs makes it a fault that there are jobs and nothing says which is
// the current one: an owner's record is written before its job's folder.
func (s *Store) noticeStrayJobs(ctx context.Context, sv *Survey) error {
	dirs, err := s.fs.Dirs(ctx, s.pipeline)
	if err != nil {
		return fmt.Errorf("list jobs of pipeline %s: %w", s.pipeline, err)
	}
	for _, d := range dirs {
		if isJobID(d) && sv.currentErr == nil {
			sv.currentErr = fmt.Errorf("job %s is there, but the records of owners that tell which job is the current one are gone", d)
			return nil
		}
	}
	return nil
}

// checkpoints reads all checkpoints of a job, the newest first.
func (s *Store) checkpoints(ctx context.Context, job string, owners Lineage) ([]Found, error) {
	dirs, err := s.fs.Dirs(ctx, s.in(job))
	if err != nil {
		return nil, fmt.Errorf("list checkpoints of job %s: %w", job, err)
	}
	var out []Found
	for _, d := range dirs {
		n, ok := parseChk(d)
		if !ok {
			continue
		}
		found, err := s.look(ctx, job, n)
		if err != nil {
			return nil, err
		}
		found.Orphan = found.Meta != nil && owners.Orphan(found.Meta.ID())
		out = append(out, found)
	}
	slices.SortFunc(out, func(a, b Found) int {
		if a.Number < b.Number {
			return 1
		}
		return -1
	})
	return out, nil
}

// look reads one checkpoint's folder.
func (s *Store) look(ctx context.Context, job string, n uint64) (Found, error) {
	dir := s.in(job, chkName(n))
	found := Found{Job: job, Number: n, Path: s.address(dir)}
	infos, err := s.fs.Files(ctx, dir)
	if err != nil {
		return found, fmt.Errorf("list checkpoint %s: %w", dir, err)
	}
	for _, info := range infos {
		switch path.Base(info.Name) {
		case claimName:
			found.Claimed = true
		case metadataName:
			found.Complete = true
		case committedName:
			found.Committed = true
		}
	}
	if !found.Complete {
		return found, nil
	}
	found.Meta, err = readMetadata(ctx, s.fs, dir)
	if err == nil {
		err = s.belongs(found.Meta, job, n, dir)
	}
	if err != nil {
		found.Meta, found.Err = nil, err
	}
	if err != nil && !isDamage(err) && !isVersion(err) {
		return found, err
	}
	return found, nil
}

func isVersion(err error) bool {
	var v *VersionError
	return errors.As(err, &v)
}

// belongs checks that metadata lies where it was written.
func (s *Store) belongs(m *Metadata, job string, n uint64, dir string) error {
	if m.Pipeline == s.pipeline && m.Job == job && m.Number == n {
		return nil
	}
	return misplaced(m, dir)
}

func misplaced(m *Metadata, dir string) error {
	return &DamageError{File: path.Join(dir, metadataName),
		Err: fmt.Errorf("it is that of checkpoint %d of job %s of pipeline %s", m.Number, m.Job, m.Pipeline)}
}

// readMetadata reads and checks the metadata in a folder. In that of a checkpoint it
// must be that checkpoint's.
func readMetadata(ctx context.Context, f storage.FS, dir string) (*Metadata, error) {
	name := path.Join(dir, metadataName)
	data, err := readWhole(ctx, f, name, MaxMetadata)
	if err != nil {
		return nil, err
	}
	m, err := Decode(data)
	if err != nil {
		if isVersion(err) {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		return nil, &DamageError{File: name, Err: err}
	}
	if n, ok := parseChk(path.Base(dir)); ok && !m.selfContained() && m.Number != n {
		return nil, misplaced(m, dir)
	}
	return m, nil
}

// readWhole reads a file; one that is missing, too large or ends early is damaged.
func readWhole(ctx context.Context, f storage.FS, name string, limit int64) ([]byte, error) {
	r, err := f.Open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(name)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { _ = r.Close() }()
	if r.Size() > limit {
		return nil, &DamageError{File: name, Err: fmt.Errorf("it has %d bytes, more than the %d allowed", r.Size(), limit)}
	}
	data := make([]byte, r.Size())
	if _, err := io.ReadFull(r, data); errors.Is(err, fs.ErrNotExist) {
		return nil, missing(name) // removed since it was opened, on a storage that looks again
	} else if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) && len(data) > 0 {
		return nil, &DamageError{File: name, Err: errors.New("it ends early")}
	} else if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

func missing(name string) error {
	return &DamageError{File: name, Err: fmt.Errorf("it is missing: %w", fs.ErrNotExist)}
}

// readRecord reads a sealed document.
func readRecord(ctx context.Context, f storage.FS, name string, v any) error {
	data, err := readWhole(ctx, f, name, maxRecord)
	if err != nil {
		return err
	}
	if err := unseal(data, v); err != nil {
		return &DamageError{File: name, Err: err}
	}
	return nil
}

func (s *Store) write(ctx context.Context, name string, data []byte) error {
	return writeOnce(ctx, s.fs, name, data)
}

// writeOnce makes a file with the given content, and takes one that has it already as
// its own: that resolves an unknown outcome, now or of an earlier try.
// fs.ErrExist says that the file has other content.
func writeOnce(ctx context.Context, f storage.FS, name string, data []byte) error {
	err := storage.WriteFile(ctx, f, name, data)
	if err == nil {
		return nil
	}
	back, readErr := readWhole(ctx, f, name, int64(len(data)))
	switch {
	case readErr == nil && string(back) == string(data):
		return nil
	case readErr == nil, isDamage(readErr) && !errors.Is(readErr, fs.ErrNotExist): // it is longer, or ends early
		return fmt.Errorf("write %s: another process wrote it: %w", name, fs.ErrExist)
	case errors.Is(err, fs.ErrExist):
		// What is there may be this process's own, of a try whose answer was lost. That
		// it exists must not reach the caller, who would take the name for another's.
		return fmt.Errorf("write %s: a file is there that cannot be read back, so its outcome is unknown: %s, %w", name, err.Error(), readErr)
	}
	return fmt.Errorf("write %s: its outcome is unknown: %w", name, err)
}

var _ connectors.CheckpointFiles = (*files)(nil)
