package transform

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// Missing says what becomes of a record for which a lookup finds no row.
type Missing string

// The policies.
const (
	MissingNull Missing = "null" // the field is null
	MissingDrop Missing = "drop" // the record is left out
	MissingFail Missing = "fail" // the record goes to on_error
)

// LookupConfig is the block of a lookup, beside that of its connector.
type LookupConfig struct {
	On          connectors.Keys     `key:"on" doc:"What the row is found by: columns with the expression that each must equal, {code: country}, or [code] for fields of the same name. Numbers match by value, and a number never matches a text. A null matches nothing." required:"true"`
	As          string              `key:"as" doc:"Field that the row goes into, as a map. One that is there already is replaced." required:"true"`
	Missing     Missing             `key:"missing" enum:"null|drop|fail" doc:"What becomes of a record without a row: its field is null, it is left out, or it goes to on_error with the kind missing."`
	Cache       LookupCache         `key:"cache" doc:"Rows that are kept to save calls. What is in memory anyway, as file, needs none."`
	Timeout     connectors.TimeSpan `key:"timeout" doc:"How long one try of a call may take. A barrier waits for the calls before it, so this must be below checkpoint.timeout."`
	Retries     int                 `key:"retries" doc:"How often a call is made again after a fault that may pass, such as a refused connection, a status of 5xx or 429, or a timeout. When all tries have failed, the pipeline restarts by its restart strategy."`
	Backoff     connectors.TimeSpan `key:"backoff" doc:"Pause before the first retry; it doubles with each. A Retry-After of the other side is kept to, up to the timeout."`
	Concurrency int                 `key:"concurrency" doc:"Calls under way at once, over all subtasks. Default: 32 for http, 4 for postgres and redis, which take many keys in one call."`

	block connectors.LookupBlock
}

// LookupCache says what is kept of the answers of a lookup.
type LookupCache struct {
	Size       connectors.ByteSize `key:"size" doc:"Memory that it may take, over all subtasks; 0 for no cache."`
	TTL        connectors.TimeSpan `key:"ttl" doc:"How old a row may be when it is used: a change on the other side is seen after this time at the latest."`
	MissingTTL connectors.TimeSpan `key:"missing_ttl" doc:"Likewise for the answer that there is no row."`
}

// LookupBlock is the connector's block. It implements connectors.HoldsLookup.
func (c *LookupConfig) LookupBlock() *connectors.LookupBlock { return &c.block }

// CallTimeout is how long one try of a call may take.
func (c *LookupConfig) CallTimeout() time.Duration { return time.Duration(c.Timeout) }

// Longest is how long a call may take with all its tries.
func (c *LookupConfig) Longest() time.Duration {
	all := c.CallTimeout()
	for i := range c.Retries {
		all += c.pause(i) + c.CallTimeout()
	}
	return all
}

// mostBackoff bounds the doubling of the pause between tries.
const mostBackoff = 10 * time.Second

// pause is the time before a retry, counted from 0.
func (c *LookupConfig) pause(retry int) time.Duration {
	d := time.Duration(c.Backoff)
	for range retry {
		if d >= mostBackoff/2 {
			return mostBackoff
		}
		d *= 2
	}
	return d
}

// Validate checks the block.
func (c *LookupConfig) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if len(c.On) == 0 {
		fault("on", "there is no column in it", "write {column: expression}")
	}
	if c.As == "" {
		fault("as", "a field needs a name", "")
	}
	if c.Timeout < connectors.TimeSpan(time.Millisecond) {
		fault("timeout", "must be at least 1ms", "10s is the default")
	}
	if c.Retries < 0 || c.Retries > 100 {
		fault("retries", "must be from 0 to 100", "3 is the default")
	}
	if c.Backoff < 0 || time.Duration(c.Backoff) > mostBackoff {
		fault("backoff", "must be from 0s to 10s", "100ms is the default")
	}
	if c.Concurrency < 0 || c.Concurrency > 10_000 {
		fault("concurrency", "must be from 1 to 10000", "")
	}
	if c.Cache.TTL < 0 {
		fault("cache.ttl", "cannot be negative", "write 0s to keep no rows")
	}
	if c.Cache.MissingTTL < 0 {
		fault("cache.missing_ttl", "cannot be negative", "write 0s to ask each time")
	}
	return errors.Join(faults...)
}

func newLookupConfig() any {
	return &LookupConfig{
		Missing: MissingNull,
		Cache:   LookupCache{Size: 64 << 20, TTL: connectors.TimeSpan(time.Minute), MissingTTL: connectors.TimeSpan(10 * time.Second)},
		Timeout: connectors.TimeSpan(10 * time.Second), Retries: 3, Backoff: connectors.TimeSpan(100 * time.Millisecond),
	}
}

func init() {
	Register(Spec{
		Updates:   PassesUpdates,
		Name:      "lookup",
		Doc:       "Adds to each record the row that a file, a service or a database has for its key.",
		NewConfig: newLookupConfig,
		Build:     buildLookup,
	})
}

// lookup is a compiled step. What it is connected to is in live, from Open to Close.
type lookup struct {
	config  *LookupConfig
	name    string
	columns []string
	keys    []assign // the expressions, in the order of the columns
	slot    int
	objects bool // values may be no objects, and must be
	cache   *lookupCache
	calls   chan struct{} // one element for each call under way
	live    connectors.Lookup
	local   connectors.LocalLookup // live, where it has its rows in memory
}

func buildLookup(config any, env *Env) Step {
	c := config.(*LookupConfig)
	s := &lookup{config: c, name: env.Name, objects: env.In.layout.Untouched(), cache: newLookupCache(c.Cache)}
	for _, k := range c.On {
		p, err := expr.Compile(k.Expr.Text, env.In, expr.Options{Name: k.Name, Deterministic: true})
		if err != nil {
			env.fault([]string{"on", k.Name}, err)
			continue
		}
		s.columns = append(s.columns, k.Name)
		s.keys = append(s.keys, assign{name: k.Name, text: k.Expr.Text, prog: p})
	}
	if env.faulted {
		return nil
	}
	if c.block.Config == nil {
		env.fault(nil, errors.New("there is no connector in it"))
		return nil
	}
	if _, err := c.block.Spec.New(c.block.Config, s.columns); err != nil {
		env.fault([]string{c.block.Kind}, err)
		return nil
	}
	s.calls = make(chan struct{}, s.concurrency())
	s.slot = env.In.Base().NewSlot()
	typ := expr.Of(connectors.Map)
	if c.Missing == MissingNull {
		typ = typ.Nullable()
	}
	env.Output(env.In.Set(c.As, expr.Ref{Slot: s.slot, Covered: 1, Type: typ}))
	return s
}

func (s *lookup) concurrency() int {
	if n := s.config.Concurrency; n > 0 {
		return n
	}
	return s.config.block.Spec.Concurrency
}

// wrap says which lookup an error is from.
func (s *lookup) wrap(err error) error {
	return fmt.Errorf("step %s: lookup %s: %w", s.name, s.config.block.Kind, err)
}
