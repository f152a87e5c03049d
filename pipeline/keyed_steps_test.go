package pipeline_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// The keyed steps of these tests: zz-tally counts the records of a key in windows,
// zz-pair those of a key on two sides.

type tallyConfig struct {
	By    connectors.Keys `key:"by" doc:"What is counted by."`
	Size  time.Duration   `key:"size" doc:"Length of the windows; none by default."`
	Spy   string          `key:"spy" doc:"Name that watermarks are noted under."`
	Odd   connectors.Expr `key:"odd" doc:"Has to be a bool."`
	Every bool            `key:"every" doc:"Emit each change, as updates."`
}

type pairConfig struct {
	Left  connectors.Ref  `key:"left" required:"true" doc:"One input."`
	Right connectors.Ref  `key:"right" required:"true" doc:"The other."`
	By    connectors.Keys `key:"by" doc:"What is counted by."`
}

func init() {
	transform.Register(transform.Spec{
		Name: "zz-tally", Doc: "Counts.", NewConfig: func() any { return &tallyConfig{} },
		BuildKeyed: func(config any, env *transform.KeyedEnv) transform.KeyedStep {
			c := config.(*tallyConfig)
			return buildTally(*c, []connectors.Keys{c.By}, env)
		},
		Side: []string{"late"},
	})
	transform.Register(transform.Spec{
		Name: "zz-sum", Doc: "Adds the hashes up.", NewConfig: func() any { return &tallyConfig{} },
		BuildKeyed: func(config any, env *transform.KeyedEnv) transform.KeyedStep {
			env.KeyBy(0, config.(*tallyConfig).By, "by")
			env.Output(env.Project())
			return sum{}
		},
	})
	transform.Register(transform.Spec{
		Name: "zz-pair", Doc: "Counts two sides.", Updates: transform.TakesUpdates, NewConfig: func() any { return &pairConfig{} },
		Inputs: func(config any) []connectors.Ref {
			c := config.(*pairConfig)
			return []connectors.Ref{c.Left, c.Right}
		},
		BuildKeyed: func(config any, env *transform.KeyedEnv) transform.KeyedStep {
			c := config.(*pairConfig)
			return buildTally(tallyConfig{By: c.By}, []connectors.Keys{c.By, c.By}, env)
		},
	})
}

type tally struct {
	config  tallyConfig
	inputs  int
	stride  func() int
	key     int
	end     int
	counts  []int
	late    bool
	refused int // slot that must not be absent, -1 for none
}

func (s *tally) Definition() string { return fmt.Sprintf("by %v, size %s", s.config.By, s.config.Size) }

func buildTally(c tallyConfig, by []connectors.Keys, env *transform.KeyedEnv) transform.KeyedStep {
	s := &tally{config: c, inputs: len(by), late: env.Reads("late"), refused: -1}
	for i, keys := range by {
		if env.KeyBy(i, keys, "by") == nil {
			return nil
		}
	}
	if c.Odd.Set() {
		if p := env.Compile(0, c.Odd, expr.Options{Want: expr.Bool}, "odd"); p != nil {
			s.refused = env.Carry(0, p)
		}
	}
	out := env.Project()
	set := func(name string, t expr.Type) int {
		slot := env.NewSlot()
		out = out.Set(name, expr.Ref{Slot: slot, Covered: 1, Type: t})
		return slot
	}
	s.key = set("key", expr.Any)
	s.end = set("end", expr.Of(connectors.Int))
	for i := range by {
		s.counts = append(s.counts, set(fmt.Sprint("n", i), expr.Of(connectors.Int)))
	}
	if c.Every {
		out = out.Updating([]string{"key"})
	}
	env.Output(out)
	if s.late {
		env.CarryRow(0)
		env.Output(env.Row)
	}
	s.stride = env.Row.Base().Stride
	return s
}

func (s *tally) Start(run transform.KeyedRun) (transform.KeyedInstance, error) {
	return &tallyRun{tally: s, run: run, table: run.Store.Table("n"), rows: transform.NewRows(&run.RunEnv, 0, s.stride())}, nil
}

type tallyRun struct {
	*tally
	run   transform.KeyedRun
	table state.Table
	rows  *transform.Rows
	ns    []int64
}

func (r *tallyRun) Process(ctx context.Context, input int, b *connectors.Batch, sel []uint16) error {
	late := 0
	for _, row := range sel {
		rec := &b.Records[row]
		key := transform.RowKey(b, row, r.run.Groups)
		end := int64(state.MaxTime)
		if size := r.config.Size.Milliseconds(); size > 0 {
			end = rec.Time - (rec.Time%size+size)%size + size
		}
		if wm := max(rec.Mark, r.run.Watermark(key.Group)); end <= wm {
			sel[late] = row
			late++
			continue
		}
		if r.refused >= 0 && !b.Row(int(row))[r.refused].Bool() {
			e := &connectors.RecordError{Origin: rec.Origin, Offset: rec.Offset, Step: "tally", Kind: "odd", Reason: "it is not odd"}
			if err := r.run.Fail(ctx, b, row, e); err != nil {
				return err
			}
			continue
		}
		v, fresh := r.table.Upsert(end, key, 8*r.inputs)
		if r.config.Every && !fresh {
			if err := r.add(ctx, connectors.UpdateBefore, end, key.Bytes, v); err != nil {
				return err
			}
		}
		n := v[8*input:]
		binary.LittleEndian.PutUint64(n, binary.LittleEndian.Uint64(n)+1)
		if r.config.Every {
			op := connectors.UpdateAfter
			if fresh {
				op = connectors.Insert
			}
			if err := r.add(ctx, op, end, key.Bytes, v); err != nil {
				return err
			}
		}
	}
	if err := r.rows.Flush(ctx); err != nil || late == 0 {
		return err
	}
	if !r.late {
		r.run.Late(late)
		return nil
	}
	return r.run.Emit(ctx, 1, b, sel[:late])
}

func (r *tallyRun) add(ctx context.Context, op connectors.Op, end int64, key, value []byte) error {
	out, err := r.rows.Add(ctx, end-1, op)
	if err != nil {
		return err
	}
	if out[r.key], _, err = state.ReadKey(r.rows.Arena().Copy(key)); err != nil {
		return err
	}
	out[r.end] = connectors.IntValue(end)
	for i, slot := range r.counts {
		out[slot] = connectors.IntValue(int64(binary.LittleEndian.Uint64(value[8*i:])))
	}
	return nil
}

func (r *tallyRun) Watermark(ctx context.Context, wm int64) error {
	spies.note(r.config.Spy, wm)
	r.ns = r.table.Namespaces(r.ns[:0], state.MinTime, wm)
	for _, end := range r.ns {
		var failed error
		r.table.Scan(end, func(k state.Key, v []byte) bool {
			if !r.config.Every {
				failed = r.add(ctx, connectors.Insert, end, k.Bytes, v)
			}
			return failed == nil
		})
		if failed != nil {
			return failed
		}
		r.table.Drop(end)
	}
	return r.rows.Flush(ctx)
}

func (r *tallyRun) Tick(context.Context, time.Time) error { return nil }
func (r *tallyRun) Barrier(ctx context.Context) error     { return r.rows.Flush(ctx) }

// sum is a keyed step that costs next to nothing.
type sum struct{}

type sumRun struct {
	run transform.KeyedRun
	sum uint64
}

func (sum) Start(run transform.KeyedRun) (transform.KeyedInstance, error) {
	return &sumRun{run: run}, nil
}

func (r *sumRun) Process(_ context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	for _, row := range sel {
		k := transform.RowKey(b, row, r.run.Groups)
		r.sum += k.Hash + uint64(len(k.Bytes))
	}
	return nil
}

func (r *sumRun) Watermark(context.Context, int64) error { return nil }
func (r *sumRun) Tick(context.Context, time.Time) error  { return nil }
func (r *sumRun) Barrier(context.Context) error          { return nil }

// spies notes the watermarks that steps were told, by name and in order.
var spies spyBook

type spyBook struct {
	mu   sync.Mutex
	seen map[string][]int64
}

func (s *spyBook) note(name string, wm int64) {
	if name == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string][]int64{}
	}
	s.seen[name] = append(s.seen[name], wm)
}

func (s *spyBook) take(name string) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.seen[name])
	delete(s.seen, name)
	return out
}
