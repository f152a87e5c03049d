package connectors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// Lookup finds rows by key in something outside of the pipeline: a file, a
// database, a service. One Lookup serves all subtasks of a step of one attempt;
// constructing it does no I/O.
type Lookup interface {
	// Open connects and checks what can be checked. It is called once, before any
	// other method. A Lookup whose Open failed is closed and not used any more.
	Open(ctx context.Context, env LookupEnv) error
	// MaxKeys is how many keys one Find takes at most.
	MaxKeys() int
	// Find looks up keys, which are all different and hold no null, and sets the
	// answer of each, by position. An error says that the call as a whole failed: it is
	// made again unless it is Permanent, after the time that a *RetryAfterError asks
	// for. It returns soon after ctx ends. It is called by many goroutines at once.
	Find(ctx context.Context, keys []LookupKey, answers []Answer) error
	// Close frees what the Lookup holds. Nothing is called during or after it.
	Close() error
}

// LocalLookup is a Lookup that has all its rows in memory, so that it is asked
// record by record, without a cache before it.
type LocalLookup interface {
	Lookup
	// Table is the rows as they are now. It stays as it is when they change.
	Table() LookupTable
}

// LookupTable is rows in memory, read by many goroutines.
type LookupTable interface {
	// Row is the row of a key, by its LookupKey.Bytes, and nil where there is none.
	// It allocates nothing. The row may be kept and must not be written to.
	Row(key []byte) []byte
}

// LookupKey is one key to look up. It is valid during the call of Find.
type LookupKey struct {
	// Values are those of the columns, in their order. Each is the canonical one of all
	// values that the language calls equal: of 1, 1.0 and decimal 1.00 the int.
	Values []Value
	// Bytes are the values as LookupEnv.AppendKey encodes them, one behind the other.
	Bytes []byte
}

// Answer is what a lookup found for one key.
type Answer struct {
	// Row is a JSON object, and nil where there is no row of this key. It is the
	// caller's from then on and must not be written to.
	Row []byte
	// Err says that this key has no answer, though the call as a whole worked: the
	// records that have it go to on_error. It names no record data.
	Err error
}

// LookupEnv is what a Lookup is opened with.
type LookupEnv struct {
	Log *slog.Logger
	// Columns are what keys are made of, the names in `on`.
	Columns []string
	// AppendKey appends the encoding of one value of a key. Values that the language
	// calls equal have the same one.
	AppendKey func(dst []byte, v Value) []byte
	// Concurrency is how many calls of Find are under way at most.
	Concurrency int
	// Timeout is how long one call may take; its ctx ends then.
	Timeout time.Duration
}

// LookupSpec describes a kind of lookup, as SourceSpec does a source.
type LookupSpec struct {
	Name      string
	Doc       string
	NewConfig func() any
	// New makes a lookup of such a configuration, decoded and validated, by the
	// columns that `on` names. It refuses columns that the configuration cannot do with.
	New func(config any, columns []string) (Lookup, error)
	// Concurrency is how many calls are under way at most where the file says nothing.
	Concurrency int
	// Local says that all lookups of the kind are LocalLookups: there are no calls.
	Local bool
	// Example is a block of the lookup as it stands below lookup:, beside the step's own
	// keys, which validates there with `on: {id: user_id}`.
	Example string
}

var lookups = map[string]LookupSpec{}

// RegisterLookup makes a kind of lookup known, as RegisterSource does a source.
func RegisterLookup(s LookupSpec) {
	if s.NewConfig == nil || s.New == nil || s.Concurrency < 1 {
		panic("lookup " + s.Name + " is registered incompletely")
	}
	checkSpec("lookup", s.Name, s.Doc, s.NewConfig())
	if _, taken := lookups[s.Name]; taken {
		panic("lookup " + s.Name + " is registered twice")
	}
	lookups[s.Name] = s
}

// LookupLookup finds a kind of lookup by its key.
func LookupLookup(name string) (LookupSpec, bool) { s, ok := lookups[name]; return s, ok }

// Lookups lists the kinds of lookup, sorted by name.
func Lookups() []LookupSpec {
	return slices.SortedFunc(maps.Values(lookups), func(a, b LookupSpec) int { return cmp.Compare(a.Name, b.Name) })
}

// LookupBlock is the block of a lookup inside of a step's: one key that names the
// kind, with its configuration below.
type LookupBlock struct {
	Kind string
	Spec LookupSpec
	// Config is decoded and validated; nil where it has faults.
	Config any
}

// HoldsLookup is implemented by configurations of steps in which the block of a
// lookup stands beside their own keys.
type HoldsLookup interface{ LookupBlock() *LookupBlock }

// RetryAfterError is an error of Find with which the other side says when to try
// again.
type RetryAfterError struct {
	After time.Duration
	Err   error
}

func (e *RetryAfterError) Error() string { return fmt.Sprintf("%v (try again in %s)", e.Err, e.After) }

// Unwrap is the cause.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// RetryAfter is the time that an error of Find asks for, and 0 where it asks for none.
func RetryAfter(err error) time.Duration {
	var r *RetryAfterError
	if errors.As(err, &r) {
		return r.After
	}
	return 0
}
