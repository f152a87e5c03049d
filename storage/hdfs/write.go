package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-etl/sluice/storage"
)

// Permissions of what is made, which are those of Hadoop's own client.
const (
	filePerm = 0o644
	dirPerm  = 0o755
)

// temp is a file under a hidden name, whole and closed.
type temp struct {
	path string
	id   uint64 // stays the same when it is renamed
}

// put writes a file whole and gives it its name, or a name that is taken: fs.ErrExist.
func (f *FS) put(ctx context.Context, data *spool, to string) error {
	t, err := f.upload(ctx, path.Dir(to), data)
	if err != nil {
		return err
	}
	if err := f.move(ctx, t, to); err != nil {
		f.cluster.discard(ctx, t.path)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the file was removed before it had its name: %s", err) //nolint:errorlint // to Create nothing is missing
		}
		return err
	}
	return nil
}

// upload writes a file whole under a hidden name in a folder. One that fails is
// written again from the start, under another name.
func (f *FS) upload(ctx context.Context, dir string, data *spool) (t temp, err error) {
	tries := 0
	err = f.cluster.retry(ctx, f.cluster.conf.writeRetry, func() error {
		u := upload{data: data, at: path.Join(dir, tempPrefix+token()), try: tries}
		//nolint:contextcheck // the client's own ends with this one
		err := f.cluster.once(ctx, func(c *client) error {
			u.client = c
			e, err := u.run()
			if err == nil {
				t = temp{path: u.at, id: e.id}
				f.cluster.sweep(c, dir, e.modified)
			}
			return err
		})
		if err != nil && u.begun {
			tries++
			f.cluster.nodes.failed(u.pipeline, tries)
			f.cluster.discard(ctx, u.at)
		}
		return err
	})
	if err == nil {
		f.cluster.discard(ctx) // what earlier tries left while nothing could be removed
	}
	return t, err
}

// upload is one try to write a file.
type upload struct {
	client   *client
	data     *spool
	at       string
	try      int
	begun    bool                   // the file may be there
	pipeline []protoreflect.Message // the datanodes of the block that a failure may be of
}

// run writes the file, closes it and describes it.
func (u *upload) run() (entry, error) {
	defaults, err := u.client.ServerDefaults()
	if err != nil {
		return entry{}, translate(err)
	}
	w, err := u.create(u.shape(defaults))
	if err != nil {
		return entry{}, err
	}
	if u.careful() {
		err = u.choose()
	}
	if err == nil {
		err = u.copy(w)
	}
	if err != nil {
		if u.client.nodeFailure() == nil {
			u.pipeline = nil // it was not a datanode
		}
		// Nothing that the client could still say is of use, but it has goroutines to end.
		u.client.kill()
		_ = w.Close()
		if err = translate(err); errors.Is(err, fs.ErrNotExist) {
			err = final(errors.New("the file was removed while it was written"))
		}
		return entry{}, err
	}
	e, err := u.client.stat(u.at)
	if err != nil {
		return entry{}, err
	}
	if e.size != u.data.size {
		return entry{}, fmt.Errorf("HDFS has %d bytes of a file of %d", e.size, u.data.size)
	}
	return e, nil
}

// shape is the number of copies and the size of a block.
func (u *upload) shape(d hdfs.ServerDefaults) (copies int, block int64) {
	conf := &u.client.cluster.conf
	copies, block = d.Replication, d.BlockSize
	if n := u.client.cluster.target.replication; n > 0 {
		copies = n
	}
	if conf.replication > 0 {
		copies = conf.replication
	}
	if conf.blockSize > 0 {
		block = conf.blockSize
	}
	// The datanodes of the first block only can be chosen, so it is made the only one.
	if u.careful() && u.data.size <= oneBlock {
		block = max(block, (u.data.size+minBlock-1)/minBlock*minBlock)
	}
	return copies, block
}

const (
	minBlock = 1 << 20
	oneBlock = 8 << 30 // up to here a file may be one block
)

// create creates the file, in a folder that it makes.
func (u *upload) create(copies int, block int64) (*hdfs.FileWriter, error) {
	for tries := 0; ; tries++ {
		u.begun = true // a lost answer leaves it there
		w, err := u.client.CreateFile(u.at, copies, block, filePerm)
		if err == nil {
			return w, nil
		}
		if err = translate(err); !errors.Is(err, fs.ErrNotExist) || tries == 3 {
			if errors.Is(err, fs.ErrNotExist) {
				err = final(errors.New("its folder is removed again and again"))
			}
			return nil, err
		}
		if err := u.client.makeDir(path.Dir(u.at)); err != nil {
			return nil, err
		}
	}
}

// copy writes the bytes and closes the file.
func (u *upload) copy(w *hdfs.FileWriter) error {
	buf := make([]byte, min(1<<20, u.data.size+1))
	for from := u.data.reader(); ; {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return u.blame(err)
			}
			// The connection hides that it is broken, so that the client ends well.
			if err := u.client.nodeFailure(); err != nil {
				return fmt.Errorf("a datanode failed: %w", err)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return final(fmt.Errorf("read what was kept locally: %w", err))
		}
	}
	begin := time.Now()
	for wait := 10 * time.Millisecond; ; wait = min(wait*2, time.Second) {
		err := w.Close()
		// The datanodes have it and have not told the namenode yet.
		if !hdfs.IsErrReplicating(err) {
			return u.blame(err)
		}
		if time.Since(begin) > u.client.cluster.conf.datanodeTimeout {
			return fmt.Errorf("the namenode has not heard of enough copies of the file for %s: %w", u.client.cluster.conf.datanodeTimeout, err)
		}
		select {
		case <-u.client.ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// blame adds which connection failed to what the client says.
func (u *upload) blame(err error) error {
	if node := u.client.nodeFailure(); err != nil && node != nil {
		return fmt.Errorf("%w (a datanode failed: %w)", err, node)
	}
	return err
}

// move gives a file its name, and replaces none. After a lost answer the file's
// number tells whether it was this one that got it.
func (f *FS) move(ctx context.Context, t temp, to string) error {
	return f.moveBy(ctx, t, to, func(c *client) error { return c.rename(t.path, to) })
}

func (f *FS) moveBy(ctx context.Context, t temp, to string, rename func(c *client) error) error {
	doubt := false
	return f.cluster.call(ctx, func(c *client) error {
		err := rename(c)
		if err == nil {
			return nil
		}
		if !lasting(err) {
			doubt = true
			return err
		}
		if doubt && (errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist)) {
			e, statErr := c.stat(to)
			if statErr == nil && t.id != 0 && e.id == t.id {
				return nil
			}
			if statErr != nil && !errors.Is(statErr, fs.ErrNotExist) {
				return statErr
			}
		}
		return err
	})
}

// out is a file on its way to HDFS: in the spool until it is closed.
type out struct {
	fs   *FS
	ctx  context.Context //nolint:containedctx // a writer lives within the call that made it
	name string
	to   string
	data *spool
	err  error
}

func (f *FS) newOut(ctx context.Context, name string) (*out, error) {
	p, err := f.path(ctx, name)
	if err != nil {
		return nil, err
	}
	return &out{fs: f, ctx: ctx, name: name, to: p, data: &spool{dir: f.cluster.conf.spoolDir}}, nil
}

func (w *out) Write(p []byte) (int, error) {
	if w.data == nil {
		return 0, &fs.PathError{Op: "write", Path: w.name, Err: fs.ErrClosed}
	}
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.data.Write(p)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

// finish hands the spool over. A file that a write failed on is never finished.
func (w *out) finish(do func(data *spool) error) error {
	if w.data == nil {
		return &fs.PathError{Op: "close", Path: w.name, Err: fs.ErrClosed}
	}
	data := w.data
	w.data = nil
	defer data.free()
	err := w.err
	if err == nil {
		err = w.ctx.Err()
	}
	if err == nil {
		err = do(data)
	}
	return w.fs.wrap("write", w.name, err)
}

// Abort drops the file.
func (w *out) Abort() {
	if w.data != nil {
		w.data.free()
		w.data = nil
	}
}

// Create starts a file.
func (f *FS) Create(ctx context.Context, name string) (storage.Writer, error) {
	w, err := f.newOut(ctx, name)
	if err != nil {
		return nil, err
	}
	return &writer{w}, nil
}

type writer struct{ *out }

// Close makes the file durable and visible.
func (w *writer) Close() error {
	return w.finish(func(data *spool) error { return w.fs.put(w.ctx, data, w.to) })
}

// Leftovers of crashed processes: how old they are when they are removed, and how
// often a folder is searched for them.
const (
	leftAfter  = 24 * time.Hour
	sweepEvery = 6 * time.Hour
	maxSwept   = 1000
)

// sweep removes what crashed processes left in a folder: files with the prefix of
// those being written whose last change the namenode dates a day back. now is the
// namenode's time too. Should one of them still be written, by a process that was
// stopped for a day, its writer finds it gone and writes it again.
func (cl *cluster) sweep(c *client, dir string, now time.Time) {
	cl.mu.Lock()
	recent := time.Since(cl.swept[dir]) < sweepEvery
	if len(cl.swept) >= maxSwept {
		clear(cl.swept)
	}
	cl.swept[dir] = time.Now()
	cl.mu.Unlock()
	if recent {
		return
	}
	// Names with a prefix stand together, behind the prefix itself.
	left, _, err := c.list(dir, tempPrefix)
	if err != nil {
		return
	}
	for _, e := range left {
		if !strings.HasPrefix(e.name, tempPrefix) {
			return
		}
		if now.Sub(e.modified) > leftAfter {
			_ = c.remove(path.Join(dir, e.name), false)
		}
	}
}
