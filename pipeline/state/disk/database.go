package disk

import (
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// maxSublevels is how many files may lie over each other in the top level before
	// Pebble merges them by itself; before that, slices do, see compactor.
	maxSublevels = 32
	// manifestBytes is at which size Pebble begins its list of files anew. Each
	// checkpoint has the list in full.
	manifestBytes = 64 << 10
	memtableBytes = 64 << 10 // nothing is written through memtables
	openFiles     = 1000
)

// databaseOptions are those of the store's database, or of one that is only read.
func databaseOptions(fs vfs.FS, cacheBytes int64, l listener) *pebble.Options {
	o := &pebble.Options{
		FS:                          fs,
		FormatMajorVersion:          pebble.FormatNewest,
		DisableWAL:                  true,
		CacheSize:                   cacheBytes,
		MemTableSize:                memtableBytes,
		MemTableStopWritesThreshold: 4,
		MaxManifestFileSize:         manifestBytes,
		MaxOpenFiles:                openFiles,
		L0CompactionThreshold:       2 * maxSublevels,
		L0CompactionFileThreshold:   4000,
		L0StopWritesThreshold:       1000,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		Logger:                      l,
		EventListener:               l.events(),
	}
	o.Experimental.FileCacheShards = 2
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].IndexBlockSize = 64 << 10 // one level of index for files of these sizes
		o.TargetFileSizes[i] = 512 << 10 << max(0, i-1)
	}
	o.EnsureDefaults()
	return o
}

// listener gets what Pebble has to say. Pebble expects its process to end at
// Fatalf; here the store fails and the process goes on.
type listener struct {
	log  *slog.Logger
	fail func(doing string, err error)
}

func (l listener) Infof(string, ...any) {}
func (l listener) Errorf(format string, args ...any) {
	l.log.Debug("pebble", "message", fmt.Sprintf(format, args...))
}
func (l listener) Fatalf(format string, args ...any) {
	l.fail("keep the state", fmt.Errorf(format, args...))
}

func (l listener) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) { l.log.Warn("compaction of the state failed and will be tried again", "err", err) },
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			l.fail("read the state", fmt.Errorf("%s is damaged: %w", i.Path, i.Details))
		},
	}
}
