package disk

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// uploads knows which of the database's files later checkpoints can refer to: those
// of the newest complete one. What is not in it, the database does not have any more.
type uploads struct {
	mu      sync.Mutex
	number  uint64
	known   map[string]state.Piece
	pending map[uint64][]state.Piece // written, not known to be complete
}

func (u *uploads) restored(pieces []state.Piece) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.known = byName(pieces)
}

func byName(pieces []state.Piece) map[string]state.Piece {
	m := make(map[string]state.Piece, len(pieces))
	for _, p := range pieces {
		if isTable(p.Name) {
			m[p.Name] = p
		}
	}
	return m
}

// isTable says that a file of that name never changes.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

func (u *uploads) wrote(number uint64, pieces []state.Piece) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pending == nil {
		u.pending = map[uint64][]state.Piece{}
	}
	u.pending[number] = pieces
}

func (u *uploads) complete(number uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pieces, ok := u.pending[number]
	if !ok {
		return
	}
	u.known, u.number = byName(pieces), number
	for n := range u.pending {
		if n <= number {
			delete(u.pending, n)
		}
	}
}

func (u *uploads) piece(name string) (state.Piece, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p, ok := u.known[name]
	return p, ok
}

const (
	// Files below packedBelow share a file of the checkpoint, up to packBytes: a
	// small flush makes dozens of them, which would be as many objects to write.
	packedBelow = 256 << 10
	packBytes   = 8 << 20
	transfers   = 4 // files that are uploaded or downloaded at a time
)

type localFile struct {
	name string
	size int64
}

// upload writes the files in dir that no complete checkpoint has.
func (s *store) upload(ctx context.Context, files connectors.CheckpointFiles, dir string) ([]state.Piece, error) {
	names, err := s.fs.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var pieces []state.Piece
	var packs [][]localFile
	var pack []localFile
	var packed int64
	for _, name := range names {
		if p, ok := s.uploads.piece(name); ok {
			p.First, p.Last = s.first, s.last
			pieces = append(pieces, p)
			continue
		}
		info, err := s.fs.Stat(s.fs.PathJoin(dir, name))
		if err != nil {
			return nil, err
		}
		f := localFile{name, info.Size()}
		if f.size >= packedBelow {
			packs = append(packs, []localFile{f})
			continue
		}
		if packed+f.size > packBytes {
			packs, pack, packed = append(packs, pack), nil, 0
		}
		pack, packed = append(pack, f), packed+f.size
	}
	if len(pack) > 0 {
		packs = append(packs, pack)
	}
	written, err := s.uploadPacks(ctx, files, dir, packs)
	return append(pieces, written...), err
}

func (s *store) uploadPacks(ctx context.Context, files connectors.CheckpointFiles, dir string, packs [][]localFile) ([]state.Piece, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(transfers)
	written := make([][]state.Piece, len(packs))
	for i, pack := range packs {
		g.Go(func() (err error) {
			written[i], err = s.uploadPack(ctx, files, dir, pack)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(written...), nil
}

// uploadPack writes files one behind the other into one of the checkpoint.
func (s *store) uploadPack(ctx context.Context, files connectors.CheckpointFiles, dir string, pack []localFile) ([]state.Piece, error) {
	w, err := files.Create(ctx)
	if err != nil {
		return nil, err
	}
	pieces := make([]state.Piece, len(pack))
	var at int64
	for i, f := range pack {
		n, err := s.copyTo(ctx, w, s.fs.PathJoin(dir, f.name))
		if err == nil && n != f.size {
			err = fmt.Errorf("%s has %d bytes, not %d", f.name, n, f.size)
		}
		if err != nil {
			w.Abort()
			return nil, err
		}
		pieces[i] = state.Piece{First: s.first, Last: s.last, Offset: at, Length: n, Format: Format, Name: f.name}
		at += n
	}
	file, err := w.Close()
	if err != nil {
		return nil, err
	}
	for i := range pieces {
		pieces[i].File = file
	}
	return pieces, nil
}

func (s *store) copyTo(ctx context.Context, w io.Writer, name string) (int64, error) {
	f, err := s.fs.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return io.CopyBuffer(struct{ io.Writer }{w}, &ctxReader{ctx, f}, make([]byte, 256<<10))
}

// ctxReader ends when its context does.
type ctxReader struct {
	ctx context.Context //nolint:containedctx // lives within the call that made it
	r   io.Reader
}

func (r *ctxReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
