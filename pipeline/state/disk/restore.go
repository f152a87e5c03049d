package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// plan is how a store comes by its state.
type plan struct {
	own     []state.Piece   // files to open as they are: of a store with the same key groups
	sources [][]state.Piece // databases to copy from
	neutral []state.Piece
}

// plan sorts the pieces of a checkpoint by the store they are of.
func (s *store) plan(from *state.Restore) (plan, error) {
	var p plan
	if from == nil {
		return p, nil
	}
	type groups struct{ first, last int }
	at := map[groups]int{}
	for _, piece := range from.Pieces {
		if piece.Last < s.first || piece.First > s.last {
			continue
		}
		switch piece.Format {
		case "":
			p.neutral = append(p.neutral, piece)
		case Format:
			if err := checkName(piece.Name); err != nil {
				return p, err
			}
			g := groups{piece.First, piece.Last}
			if _, ok := at[g]; !ok {
				at[g] = len(p.sources)
				p.sources = append(p.sources, nil)
			}
			p.sources[at[g]] = append(p.sources[at[g]], piece)
		default:
			return p, fmt.Errorf("the checkpoint's state has the format %q, which this version does not know", piece.Format)
		}
	}
	if i, ok := at[groups{s.first, s.last}]; ok && len(p.sources) == 1 && len(p.neutral) == 0 {
		p.own, p.sources = p.sources[i], nil
	}
	return p, nil
}

// checkName keeps files within their directory, whatever a checkpoint says.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\`) || path.Base(name) != name {
		return fmt.Errorf("the checkpoint's state has a file named %q: %w", name, errDamaged)
	}
	return nil
}

// download brings the files of a database into dir.
func (s *store) download(ctx context.Context, files connectors.CheckpointFiles, pieces []state.Piece, dir string) error {
	if err := s.fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pieces = slices.Clone(pieces)
	slices.SortFunc(pieces, func(a, b state.Piece) int {
		return cmp.Or(strings.Compare(a.File.Path, b.File.Path), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Length, b.Length))
	})
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(transfers)
	for len(pieces) > 0 {
		n := 1
		for n < len(pieces) && pieces[n].File == pieces[0].File {
			n++
		}
		pack := pieces[:n]
		pieces = pieces[n:]
		g.Go(func() error {
			if err := s.unpack(ctx, files, pack, dir); err != nil {
				return fmt.Errorf("download %s: %w", pack[0].File.Path, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// unpack reads one file of a checkpoint to its end, where its checksum is verified,
// and writes the parts of it that are wanted.
func (s *store) unpack(ctx context.Context, files connectors.CheckpointFiles, pack []state.Piece, dir string) (err error) {
	r, err := files.Open(ctx, pack[0].File)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	var at int64
	buf := make([]byte, 256<<10)
	for _, p := range pack {
		if p.Offset < at || p.Length < 0 || p.Offset+p.Length > p.File.Size {
			return fmt.Errorf("%s is said to be bytes %d to %d of %d: %w", p.Name, p.Offset, p.Offset+p.Length, p.File.Size, errDamaged)
		}
		if _, err := io.CopyN(io.Discard, r, p.Offset-at); err != nil {
			return unexpected(err)
		}
		if err := s.unpackOne(r, p, dir, buf); err != nil {
			return err
		}
		at = p.Offset + p.Length
	}
	_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{r}, buf)
	return err
}

func (s *store) unpackOne(r io.Reader, p state.Piece, dir string, buf []byte) error {
	f, err := s.fs.Create(s.fs.PathJoin(dir, p.Name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, io.LimitReader(r, p.Length), buf)
	if err == nil && n != p.Length {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, f.Close())
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// bring brings the state into the open database and learns what is in it.
func (s *store) bring(ctx context.Context, from *state.Restore, p plan) error {
	if p.own != nil {
		names, err := tableNames(s.db)
		if err != nil {
			return err
		}
		for id := range uint16(len(names)) {
			name, ok := names[id]
			if !ok {
				return fmt.Errorf("table %d of %d has no name: %w", id, len(names), errDamaged)
			}
			s.addTable(id, name)
		}
	}
	for i, pieces := range p.sources {
		if err := s.copySource(ctx, from.Files, pieces, s.fs.PathJoin(s.dir, fmt.Sprintf("source-%d", i))); err != nil {
			return err
		}
	}
	if err := s.loadSpaces(); err != nil {
		return err
	}
	if len(s.spaces.all) == 0 {
		s.filters.now = newFilter(s.filters.memory)
	} else {
		s.tend()
	}
	if len(p.neutral) == 0 {
		return nil
	}
	return state.ReadNeutral(ctx, from.Files, p.neutral, s.first, s.last, s.groups, func(e state.Entry) error {
		s.Table(e.Table).Put(e.NS, e.Key, e.Value)
		return s.Err()
	})
}

// tableNames reads the names of a database's tables.
func tableNames(db *pebble.DB) (map[uint16]string, error) {
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: appendGroup(nil, namesGroup)})
	if err != nil {
		return nil, err
	}
	names := map[uint16]string{}
	for ok := iter.First(); ok; ok = iter.Next() {
		if k := iter.Key(); len(k) == groupSize+2 {
			names[uint16(k[groupSize])<<8|uint16(k[groupSize+1])] = string(iter.Value())
		}
	}
	return names, errors.Join(iter.Error(), iter.Close())
}

// openSource opens a directory of files to be read.
func (s *store) openSource(dir string) (*pebble.DB, map[uint16]string, error) {
	var first error
	o := databaseOptions(s.fs, minBlockCache, listener{s.log, func(_ string, err error) { first = cmp.Or(first, err) }})
	o.ReadOnly = true
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, nil, err
	}
	names, err := tableNames(db)
	if err != nil {
		return nil, nil, errors.Join(err, closeDB(db))
	}
	return db, names, nil
}

// copySource copies the store's key groups out of another store's database.
func (s *store) copySource(ctx context.Context, files connectors.CheckpointFiles, pieces []state.Piece, dir string) error {
	return s.withSource(ctx, files, pieces, dir, func(db *pebble.DB, names map[uint16]string) (err error) {
		w := s.newTables(nil)
		defer func() {
			if err != nil {
				w.abort()
			}
		}()
		ids := make([]uint16, 0, len(names)) // theirs, in the order of ours
		ours := map[uint16]uint16{}
		for id, name := range names {
			ours[id] = s.Table(name).(*table).id
			ids = append(ids, id)
		}
		slices.SortFunc(ids, func(a, b uint16) int { return cmp.Compare(ours[a], ours[b]) })
		for g := max(s.first, pieces[0].First); g <= min(s.last, pieces[0].Last); g++ {
			for _, id := range ids {
				if err := copyTable(ctx, w, db, g, id, ours[id]); err != nil {
					return err
				}
			}
		}
		if err := w.cut(nil); err != nil || len(w.files) == 0 {
			return err
		}
		return s.db.Ingest(ctx, w.files)
	})
}

// withSource downloads a database, opens it for use and removes it.
func (s *store) withSource(ctx context.Context, files connectors.CheckpointFiles, pieces []state.Piece, dir string,
	use func(*pebble.DB, map[uint16]string) error) (err error) {
	defer func() { err = errors.Join(err, s.fs.RemoveAll(dir)) }()
	if err := s.download(ctx, files, pieces, dir); err != nil {
		return err
	}
	db, names, err := s.openSource(dir)
	if err != nil {
		return fmt.Errorf("open the state of key groups %d to %d: %w", pieces[0].First, pieces[0].Last, err)
	}
	return errors.Join(use(db, names), closeDB(db))
}

// copyTable copies a table of a group under another number.
func copyTable(ctx context.Context, w *tables, db *pebble.DB, group int, theirs, ours uint16) (err error) {
	prefix := func(id uint16) []byte { return appendPrefix(nil, group, id, 0)[:groupSize+2] }
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix(theirs), UpperBound: after(prefix(theirs), 0)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	key := prefix(ours)
	for ok := iter.First(); ok; ok = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return err
		}
		key = append(key[:groupSize+2], iter.Key()[groupSize+2:]...)
		if err := w.put(key, value, false); err != nil {
			return err
		}
	}
	return cmp.Or(iter.Error(), context.Cause(ctx))
}

// loadSpaces learns which namespaces the database has.
func (s *store) loadSpaces() error {
	levels, err := s.db.SSTables(pebble.WithProperties())
	if err != nil {
		return err
	}
	for _, l := range levels {
		for _, t := range l {
			s.keys.Add(int64(t.Properties.NumEntries) - 2*int64(t.Properties.NumDeletions))
		}
	}
	s.flusher.entries.Store(s.keys.Load())
	s.measure(levels)
	iter, err := s.db.NewIter(&pebble.IterOptions{UpperBound: appendGroup(nil, namesGroup)})
	if err != nil {
		return err
	}
	defer func() { _ = iter.Close() }()
	var prefix []byte
	for ok := iter.First(); ok; {
		group, table, ns, _, err := splitKey(iter.Key())
		if err != nil {
			return err
		}
		if group < s.first || group > s.last || int(table) >= len(s.tables) {
			return fmt.Errorf("a key of group %d and table %d: %w", group, table, errDamaged)
		}
		sp := &s.spaces.all[s.tables[table].space(ns)]
		sp.mask |= s.share(group)
		sp.alive = true
		prefix = append(prefix[:0], iter.Key()[:prefixSize]...)
		if ok = iter.Next(); ok && bytes.HasPrefix(iter.Key(), prefix) {
			ok = iter.SeekGE(after(prefix, 0))
		}
	}
	return iter.Error()
}

// ReadPieces shows what pieces of this backend's format hold of the key groups
// o.First..o.Last, one entry at a time; it is how another backend starts from them.
// Files are brought to o.Dir and are removed again.
func ReadPieces(ctx context.Context, o state.Options, visit func(state.Entry) error) error {
	return readPieces(ctx, o, vfs.Default, visit)
}

func readPieces(ctx context.Context, o state.Options, fs vfs.FS, visit func(state.Entry) error) (err error) {
	s, err := prepare(o, fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p, err := s.plan(o.Restore)
	if err != nil {
		return err
	}
	if p.own != nil {
		p.sources = append(p.sources, p.own)
	}
	for i, pieces := range p.sources {
		dir := s.fs.PathJoin(s.dir, fmt.Sprintf("source-%d", i))
		err := s.withSource(ctx, o.Restore.Files, pieces, dir, func(db *pebble.DB, names map[uint16]string) error {
			for g := max(s.first, pieces[0].First); g <= min(s.last, pieces[0].Last); g++ {
				iter, err := db.NewIter(groupRange(g))
				if err != nil {
					return err
				}
				if err := s.eachEntry(iter, names, visit); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the state of a checkpoint: %w", err)
		}
	}
	return nil
}
