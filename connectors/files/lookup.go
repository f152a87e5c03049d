package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// LookupConfig is the block of a lookup in a file.
type LookupConfig struct {
	Path      string              `key:"path" doc:"The file. One whose name ends in .gz is uncompressed. It is read whole before the first record, and again when it changes: put a new version in its place by renaming." required:"true"`
	Format    string              `key:"format" enum:"json|csv" doc:"json is one object a line. csv is lines of values, quoted as in RFC 4180, all of them strings unless types says otherwise. Of several lines with the same key the last counts."`
	Delimiter string              `key:"delimiter" doc:"The character between the values of a CSV file, such as a tab, which YAML writes as \"\\t\"."`
	Header    bool                `key:"header" doc:"Whether the first line of a CSV file names its columns."`
	Columns   []string            `key:"columns" doc:"Names of the columns of a CSV file without a header."`
	Types     map[string]string   `key:"types" enum:"string|int|float|decimal|bool" doc:"Types of columns of a CSV file, {id: int}. A number matches only a column of numbers: without the type write on: {id: string(user_id)}. An empty value is null, in a column of strings the empty text."`
	MaxSize   connectors.ByteSize `key:"max_size" doc:"Memory that the rows may take. While a new version is read, both are in memory. A file that needs more is refused."`
	Reload    connectors.TimeSpan `key:"reload" doc:"How often the file is looked at for changes of its size or its time, 0s for never. A new version that cannot be read is warned of, and the rows stay what they are."`
}

func newLookupConfig() any {
	return &LookupConfig{Format: formatJSON, Delimiter: ",", Header: true, MaxSize: 256 << 20, Reload: connectors.TimeSpan(5 * time.Second)}
}

// minTableSize is what an empty table takes, about.
const minTableSize = 2 << 20

// Validate reports every key that is out of its range.
func (c *LookupConfig) Validate() error {
	var f faults
	f.path(kindFile, c.Path)
	switch r, n := utf8.DecodeRuneInString(c.Delimiter); {
	case n == 0 || n != len(c.Delimiter) || r == utf8.RuneError || strings.ContainsRune("\"\r\n", r):
		f.add("delimiter", "must be one character, and no quote or line break", `write "," or ";" or "\t"`)
	case c.Format != formatCSV && c.Delimiter != ",":
		f.add("delimiter", "only CSV files have one", "write format: csv")
	}
	switch {
	case c.Format != formatCSV && (!c.Header || len(c.Columns) > 0):
		f.add("format", "header and columns are for CSV files", "write format: csv")
	case c.Header && len(c.Columns) > 0:
		f.add("columns", "the header names the columns already", "remove it, or write header: false")
	case !c.Header && len(c.Columns) == 0:
		f.add("columns", "a file without a header needs the names of its columns", "write columns: [id, name]")
	}
	if c.Format != formatCSV && len(c.Types) > 0 {
		f.add("types", "only values of CSV files need types", "write format: csv")
	}
	for name, typ := range c.Types {
		if !oneOf(typ, csvTypes) {
			help := "there are " + strings.Join(csvTypes, ", ")
			if near := connectors.Nearest(typ, csvTypes); near != "" {
				help = "did you mean " + near + "?"
			}
			f.add("types."+name, fmt.Sprintf("%q is no type of a column", typ), help)
		}
	}
	if c.MaxSize < minTableSize {
		f.add("max_size", fmt.Sprintf("%s is too small", c.MaxSize), "write at least 2MiB; the default is 256MiB")
	}
	if c.Reload < 0 {
		f.add("reload", "cannot be negative", "write 0s for never")
	}
	return errors.Join(f...)
}

func oneOf(s string, list []string) bool {
	for _, x := range list {
		if s == x {
			return true
		}
	}
	return false
}

func (c *LookupConfig) comma() rune {
	r, _ := utf8.DecodeRuneInString(c.Delimiter)
	return r
}

func init() {
	connectors.RegisterLookup(connectors.LookupSpec{
		Name:        "file",
		Example:     "file: {path: users.csv, format: csv}\n",
		Doc:         "Finds rows in a file that is held in memory and read again when it changes.",
		NewConfig:   newLookupConfig,
		Concurrency: 1,
		Local:       true,
		New: func(config any, columns []string) (connectors.Lookup, error) {
			c, ok := config.(*LookupConfig)
			if !ok {
				return nil, fmt.Errorf("file lookup: configuration is a %T", config)
			}
			return NewLookup(*c, columns)
		},
	})
}

// Lookup finds rows in a file that it holds in memory.
type Lookup struct {
	config  LookupConfig
	columns []string
	url     *url.URL
	env     connectors.LookupEnv
	table   atomic.Pointer[table]
	log     *slog.Logger
	stop    context.CancelFunc
	done    sync.WaitGroup

	// What follows belongs to Open and then to the goroutine that looks for changes.
	used    version // in memory
	seen    version // at the last look
	refused version // could not be read
	lost    bool    // the last look found no file
}

// version tells one state of the file from another.
type version struct {
	size     int64
	modified time.Time
}

var _ connectors.LocalLookup = (*Lookup)(nil)

// NewLookup makes a lookup of a configuration that Validate accepts.
func NewLookup(c LookupConfig, columns []string) (*Lookup, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u, err := storage.Parse(c.Path)
	if err != nil {
		return nil, err
	}
	if !c.Header {
		for _, name := range columns {
			if !oneOf(name, c.Columns) {
				return nil, &connectors.FieldError{Key: "columns", Msg: "has no column " + name + ", which on names", Help: "add it, or name another in on"}
			}
		}
	}
	return &Lookup{config: c, columns: columns, url: u}, nil
}

// Open reads the file and begins to look for changes.
func (l *Lookup) Open(ctx context.Context, env connectors.LookupEnv) error {
	l.env, l.log = env, env.Log.With("file", l.config.Path)
	v, err := l.version(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return connectors.Permanent(fmt.Errorf("read %s: there is no file; check the path, which begins at the folder that the program is started in unless it begins with /", l.config.Path))
	case err != nil:
		return denied(fmt.Errorf("read %s: %w", l.config.Path, err), "let this user read it")
	}
	if err := l.load(ctx, v); err != nil {
		err = fmt.Errorf("read %s: %w", l.config.Path, err)
		if ctx.Err() == nil && !errors.Is(err, errChanging) {
			err = connectors.Permanent(err)
		}
		return err
	}
	l.seen = v
	if l.config.Reload > 0 {
		watch, stop := context.WithCancel(context.WithoutCancel(ctx))
		l.stop = stop
		l.done.Go(func() { l.watch(watch) })
	}
	return nil
}

// MaxKeys is as many as there are.
func (l *Lookup) MaxKeys() int { return connectors.MaxBatch }

// Table is the rows of the newest version that could be read.
func (l *Lookup) Table() connectors.LookupTable { return l.table.Load() }

// Find looks keys up in memory.
func (l *Lookup) Find(_ context.Context, keys []connectors.LookupKey, answers []connectors.Answer) error {
	t := l.table.Load()
	for i := range keys {
		answers[i].Row = t.Row(keys[i].Bytes)
	}
	return nil
}

// Close ends the looking for changes.
func (l *Lookup) Close() error {
	if l.stop != nil {
		l.stop()
		l.done.Wait()
	}
	return nil
}

func (l *Lookup) watch(ctx context.Context) {
	t := time.NewTicker(time.Duration(l.config.Reload))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			l.look(ctx)
		}
	}
}

// look reads the file again where it has changed. One that changes from look to look
// is still being written and waited for.
func (l *Lookup) look(ctx context.Context) {
	v, err := l.version(ctx)
	if err != nil {
		if !l.lost && ctx.Err() == nil {
			l.log.Warn("the file of a lookup cannot be found: the rows stay what they are", "err", err)
		}
		l.lost = true
		return
	}
	l.lost = false
	settled := v == l.seen
	l.seen = v
	if !settled || v == l.used || v == l.refused {
		return
	}
	err = l.load(ctx, v)
	switch {
	case err == nil:
		l.log.Info("the file of a lookup has changed and was read", "rows", l.table.Load().rows())
	case errors.Is(err, errChanging) || ctx.Err() != nil:
	default:
		l.refused = v
		l.log.Warn("the new version of a lookup's file cannot be used: the rows stay what they are", "err", err)
	}
}

// place is the folder of the file and its name in it.
func (l *Lookup) place() (storage.FS, string, error) {
	dir, base := path.Split(l.url.Path)
	f, err := openAt(l.url, dir)
	return f, base, err
}

func (l *Lookup) version(ctx context.Context) (version, error) {
	f, base, err := l.place()
	if err != nil {
		return version{}, err
	}
	info, err := f.Stat(ctx, base)
	return version{info.Size, info.Modified}, err
}

var errChanging = errors.New("it is being written to")

// load reads the version that the file has.
func (l *Lookup) load(ctx context.Context, v version) error {
	f, base, err := l.place()
	if err != nil {
		return err
	}
	file, err := f.Open(ctx, base)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	in := io.Reader(&stoppable{ctx, file})
	if strings.HasSuffix(base, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			return err
		}
	}
	r := tableReader{config: &l.config, columns: l.columns, append: l.env.AppendKey}
	err = r.read(in)
	if now, statErr := l.version(ctx); statErr != nil || now != v {
		return errChanging
	}
	if err != nil {
		return err
	}
	if n := r.table.replaced; n > 0 {
		l.log.Warn("the file of a lookup has several lines for a key: the last counts", "lines_not_used", n)
	}
	l.table.Store(r.table)
	l.used = v
	return nil
}

// stoppable ends reading with its context.
type stoppable struct {
	ctx context.Context
	io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.Reader.Read(p)
}
