package pipeline

import (
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Flow is what flows through a running pipeline, operator by operator, since its last
// start or restart.
type Flow struct {
	Time      time.Time      `json:"time"`
	Operators []OperatorFlow `json:"operators"` // in the order of Description
	Tasks     []TaskFlow     `json:"tasks"`     // by chain, in the order in which records go
	Splits    []SplitFlow    `json:"splits"`    // by source
	Sinks     []SinkFlow     `json:"sinks"`
}

// OperatorFlow is what one source, step or sink has done, over all its subtasks. Of a
// source, In are the records that it gave and Out those that were handed on; of a sink,
// In are those that came, dead letters included, and Out those that it took.
type OperatorFlow struct {
	Name string `json:"name"`
	In   int64  `json:"in"`
	Out  int64  `json:"out"`
	// Branches is Out by branch, of a step that has several outputs; that of a main output
	// is empty.
	Branches map[string]int64 `json:"branches,omitempty"`
	// BytesIn are those of the values that came in, where that is counted: of sources and sinks.
	BytesIn int64 `json:"bytes_in"`
	// Errors are records that failed here, by reason; Dropped those left out on purpose.
	Errors  map[string]int64 `json:"errors,omitempty"`
	Dropped int64            `json:"dropped"`
	Late    int64            `json:"late"`
	// Watermark is the least of its subtasks, milliseconds since 1970; nil where there is
	// none. Subtasks that are idle or at their end do not count beside others.
	Watermark *int64 `json:"watermark,omitempty"`
	Idle      bool   `json:"idle"`
	// State is of keyed operators.
	Keys        int64 `json:"state_keys"`
	StateMemory int64 `json:"state_memory"` // bytes
	StateDisk   int64 `json:"state_disk"`   // bytes
}

// TaskFlow is how one subtask of a chain spends its time, as shares of the last seconds
// that add up to 1.
type TaskFlow struct {
	Chain         string  `json:"chain"` // the operator that begins it
	Subtask       int     `json:"subtask"`
	Busy          float64 `json:"busy"`
	Backpressured float64 `json:"backpressured"` // waiting for those behind it, or for a throttle
	Idle          float64 `json:"idle"`          // waiting for records
	// Queued bytes wait before it, of at most Queue.
	Queued int64 `json:"queued"`
	Queue  int64 `json:"queue"`
}

// SplitFlow is where one split of a source is, such as a partition.
type SplitFlow struct {
	Source   string `json:"source"`
	Split    string `json:"split"`
	Position int64  `json:"position"` // of the next record to read
	// Behind is how many records are not read yet, and BehindSeconds how old the next one
	// is, by the time of the one before it; -1 where that is not known.
	Behind        int64   `json:"behind"`
	BehindSeconds float64 `json:"behind_seconds"`
	// RetentionSeconds is how long until the next record is removed by the topic's
	// retention, by its time; -1 where that is not known or never.
	RetentionSeconds float64 `json:"retention_seconds"`
	Watermark        *int64  `json:"watermark,omitempty"` // milliseconds since 1970
	Idle             bool    `json:"idle"`
	CaughtUp         bool    `json:"caught_up"`
	Paused           bool    `json:"paused"` // by max_drift
}

// Flow tells what flows; while nothing runs it tells of sinks only.
func (c *Control) Flow() Flow {
	c.mu.Lock()
	run, plan := c.run, c.plan
	c.mu.Unlock()
	f := Flow{
		Time: time.Now(), Operators: []OperatorFlow{}, Tasks: []TaskFlow{}, Splits: []SplitFlow{}, Sinks: []SinkFlow{},
	}
	if plan == nil {
		return f
	}
	for _, s := range plan.sinks {
		sink := SinkFlow{Sink: s.spec.Name, Guarantee: plan.Guarantee(s.guarantee)}
		c.commits.show(&sink)
		f.Sinks = append(f.Sinks, sink)
	}
	if run != nil {
		run.a.flow(&f)
	}
	return f
}

// flow tells what flows through the tasks.
func (a *attempt) flow(f *Flow) {
	f.Operators = a.operatorFlows()
	for _, c := range a.plan.chains {
		for _, t := range a.tasks {
			if t.chain == c {
				f.Tasks = append(f.Tasks, t.timeFlow())
			}
		}
	}
	for _, s := range a.sources {
		for _, t := range s.tasks {
			f.Splits = append(f.Splits, t.splitFlows(f.Time)...)
		}
	}
}

// operatorFlows adds up what the tasks have counted.
func (a *attempt) operatorFlows() []OperatorFlow {
	ops := make([]OperatorFlow, 0, len(a.plan.byName)+len(a.sources))
	at := map[string]int{}
	for _, name := range a.plan.operatorNames() {
		at[name] = len(ops)
		ops = append(ops, OperatorFlow{Name: name})
	}
	for name, errs := range a.failures.byOperator() {
		if i, ok := at[name]; ok {
			ops[i].Errors = errs
		}
	}
	marks := make([]sharedMark, len(ops))
	for _, t := range a.tasks {
		for _, counts := range t.operators {
			i, ok := at[counts.operator]
			if !ok {
				continue
			}
			t.addCounts(&ops[i], counts)
			if m, own := t.markOf(counts.operator); own {
				marks[i].add(m)
			}
		}
	}
	for i := range ops {
		ops[i].Watermark, ops[i].Idle = marks[i].shown()
	}
	return ops
}

// addCounts adds what the task has counted of an operator.
func (t *task) addCounts(o *OperatorFlow, c *operatorCounts) {
	o.In += c.in.Load()
	o.BytesIn += c.bytes.Load()
	o.Dropped += c.dropped.Load()
	o.Late += c.late.Load()
	for i := range c.out {
		n := c.out[i].Load()
		o.Out += n
		if len(c.branches) > 1 {
			if o.Branches == nil {
				o.Branches = map[string]int64{}
			}
			o.Branches[c.branches[i]] += n
		}
	}
	switch {
	case c == t.source:
		o.In, o.BytesIn = o.In+t.counts.records.Load(), o.BytesIn+t.counts.bytes.Load()
	case t.keyed != nil && c == t.keyed.counts && t.keyed.store != nil:
		u := t.keyed.store.Usage()
		o.Keys, o.StateMemory, o.StateDisk = o.Keys+u.Keys, o.StateMemory+u.Memory, o.StateDisk+u.Disk
	}
}

// markOf is how far event time has come for an operator of the task. own is false of
// one that the task only refuses records in the name of.
func (t *task) markOf(operator string) (m mark, own bool) {
	if t.keyed != nil && t.keyed.counts.operator == operator {
		return mark{time: t.keyed.shown.watermark.Load(), idle: t.keyed.shown.idle.Load()}, true
	}
	own = t.source != nil && t.source.operator == operator ||
		slices.ContainsFunc(t.chain.nodes, func(n *node) bool { return n.name == operator })
	return mark{time: t.shown.watermark.Load(), idle: t.shown.idle.Load()}, own
}

// sharedMark puts the marks of an operator's subtasks together, as a receiver does.
type sharedMark struct {
	least, most    int64
	active, paused int
}

func (s *sharedMark) add(m mark) {
	switch {
	case m.time == state.MaxTime: // at its end
	case m.idle:
		if s.paused == 0 || m.time > s.most {
			s.most = m.time
		}
		s.paused++
	default:
		if s.active == 0 || m.time < s.least {
			s.least = m.time
		}
		s.active++
	}
}

// shown is the watermark, nil where there is none, and whether it is held by nobody.
func (s *sharedMark) shown() (watermark *int64, asleep bool) {
	at, asleep := s.least, s.active == 0 && s.paused > 0
	if asleep {
		at = s.most
	}
	if s.active+s.paused == 0 || at == state.MinTime {
		return nil, asleep
	}
	return &at, asleep
}

// timeFlow tells how the task spends its time, and what waits before it.
func (t *task) timeFlow() TaskFlow {
	shares := t.time.shares()
	f := TaskFlow{
		Chain: t.chain.name, Subtask: t.subtask,
		Busy: shares[busy], Backpressured: shares[backpressured], Idle: shares[idle],
	}
	if t.inbox != nil {
		f.Queued, f.Queue = t.inbox.queued()
	}
	return f
}

// splitFlows tells where the splits are that the task reads.
func (t *task) splitFlows(now time.Time) []SplitFlow {
	var out []SplitFlow
	keeper, _ := t.reader.source.source.(connectors.Keeper)
	for _, p := range t.reader.clock.progress() {
		s := SplitFlow{
			Source: p.Source, Split: p.Split, Position: p.Next, Behind: p.Behind,
			BehindSeconds: p.behindSeconds(now), RetentionSeconds: -1,
			Idle: p.Idle, CaughtUp: p.CaughtUp, Paused: p.Paused,
		}
		if keeper != nil && s.BehindSeconds > 0 && p.Newest != nil {
			if kept, known := keeper.Keeps(p.Split); known {
				s.RetentionSeconds = max(0, (kept - now.Sub(time.UnixMilli(*p.Newest))).Seconds())
			}
		}
		if p.Watermark != state.MinTime && p.Watermark != state.MaxTime {
			s.Watermark = &p.Watermark
		}
		out = append(out, s)
	}
	return out
}

// behindSeconds is how old the next record is at most: it is no older than the newest
// that was read, and came after the split was seen at its end. -1 where that is not known.
func (p *SplitProgress) behindSeconds(now time.Time) float64 {
	switch {
	case p.CaughtUp || p.Ended || p.Behind == 0:
		return 0
	case p.Newest == nil:
		return -1
	}
	age := now.Sub(time.UnixMilli(*p.Newest))
	if !p.current.IsZero() {
		age = min(age, now.Sub(p.current))
	}
	return max(0, age.Seconds())
}
