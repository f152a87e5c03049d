package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// TopConfig is the block of a top.
type TopConfig struct {
	By     connectors.Keys `key:"by" doc:"What the best are kept for: fields, or expressions by name. Without it, all records are one group, in one subtask."`
	N      int             `key:"n" doc:"How many stay." required:"true"`
	Order  Order           `key:"order" doc:"What is best: fields or expressions, each with asc or desc, such as [{price: desc}, {bidder: asc}]. What is equal in all goes by event time, topic, partition and offset." required:"true"`
	Rank   string          `key:"rank" doc:"Field that takes the rank, 1 for the first."`
	Ties   string          `key:"ties" doc:"Whether records that equal the last one in all of order are left out, or stay and share its rank." enum:"cut|keep"`
	Window Window          `key:"window" doc:"A window of time for each of which the best are found, as in aggregate: tumbling or sliding. The rows get window_start and window_end, where they do not have them."`
	Emit   Emit            `key:"emit" doc:"When they are given out: on_close (the default with a window) once, on_change (the default without) as updates, or {every: 10s}."`
}

// Validate checks the block.
func (c *TopConfig) Validate() error {
	var errs []error
	if c.N <= 0 {
		errs = append(errs, &connectors.FieldError{Key: "n", Msg: "at least one must stay"})
	}
	if c.N > maxTop {
		errs = append(errs, &connectors.FieldError{Key: "n", Msg: fmt.Sprintf("at most %d can be kept for a key", maxTop)})
	}
	if k := c.Window.Kind; k == SessionWindow || k == CountWindow || c.Window.Processing {
		errs = append(errs, &connectors.FieldError{Key: "window", Msg: "the best are found in tumbling and sliding windows of event time only"})
	}
	if c.Rank != "" && slices.ContainsFunc(c.By, func(k connectors.Assignment) bool { return k.Name == c.Rank }) {
		errs = append(errs, &connectors.FieldError{Key: "rank", Msg: "by has a field of this name already", Help: "call the rank otherwise"})
	}
	return errors.Join(errs...)
}

// maxTop bounds the rows of a key that stay, which are read and written as one.
const maxTop = 10_000

// Order is a list of what to sort by.
type Order []OrderBy

// OrderBy is one thing to sort by.
type OrderBy struct {
	Text string
	Desc bool
}

// UnmarshalConfig reads a list of {expression: asc|desc}, or of bare expressions,
// which ascend.
func (o *Order) UnmarshalConfig(v any) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		by := OrderBy{}
		switch item := item.(type) {
		case string:
			by.Text = item
		case map[string]any:
			if len(item) != 1 {
				return errors.New("each entry of order has one field: [{price: desc}, {bidder: asc}]")
			}
			for text, way := range item {
				by.Text = text
				switch way {
				case "asc":
				case "desc":
					by.Desc = true
				default:
					return fmt.Errorf("%s is sorted asc or desc, not %v", text, way)
				}
			}
		default:
			return errors.New("write a list such as [{price: desc}, {bidder: asc}]")
		}
		*o = append(*o, by)
	}
	if len(*o) == 0 {
		return errors.New("there is nothing to sort by")
	}
	return nil
}

func init() {
	Register(Spec{
		Name:       "top",
		Doc:        "Keeps the best records of each group.",
		NewConfig:  func() any { return &TopConfig{Ties: "cut"} },
		BuildKeyed: buildTop,
		OpenState:  openTop,
		Side:       []string{lateBranch},
		Updates:    TakesUpdates,
	})
}

type top struct {
	name   string
	n      int
	keep   bool // ties stay
	all    bool // rows can be taken back, so that all are kept
	desc   []bool
	order  []int // slots of what is sorted by
	texts  []string
	slots  []int
	rank   int    // slot, -1 for none
	bounds [2]int // slots of the window's start and end, -1 where rows have their own
	late   bool   // something reads the branch of late rows
	emit   Emit
	window *Window // nil for none
	stride func() int
	text   string
	keys   []string
	fields []string // names of slots
}

func buildTop(config any, env *KeyedEnv) KeyedStep {
	c := config.(*TopConfig)
	t := &top{
		name: env.Name, n: c.N, keep: c.Ties == "keep", all: env.In[0].Updates() != nil, rank: -1,
		bounds: [2]int{-1, -1}, late: env.Reads(lateBranch), stride: env.Row.Base().Stride,
		keys: keyNames(c.By),
	}
	keys := env.KeyBy(0, c.By, "by")
	for _, o := range c.Order {
		p := env.Compile(0, connectors.Expr{Text: o.Text}, expr.Options{Deterministic: true, Want: sortable}, "order")
		if p == nil {
			continue
		}
		if t.all && p.Varies() {
			env.Report([]string{"order"}, varies(p))
		}
		t.order, t.desc, t.texts = append(t.order, env.Carry(0, p)), append(t.desc, o.Desc), append(t.texts, p.Text())
	}
	t.emit = c.Emit.or(EmitOnChange)
	if c.Window.Kind != NoWindow {
		t.window, t.emit = &c.Window, c.Emit.or(EmitOnClose)
	}
	if t.all && t.window != nil {
		env.Report([]string{"window"}, errors.New("rows of an updating stream cannot be taken back from a window that has closed: leave window out, or emit on_close above"))
	}
	if keys == nil || env.Faulted() {
		return nil
	}
	kept := env.keepRows(0)
	t.slots, t.fields = kept.slots, kept.names
	t.output(env, c, kept.view)
	env.Output(env.Row)
	var by []string
	for _, k := range keys {
		by = append(by, k.Text())
	}
	t.text = fmt.Sprintf("top by %s order %v n %d ties %s window %s", strings.Join(by, ", "), c.Order, c.N, c.Ties, c.Window.String()) +
		t.emit.definition() + kept.definition()
	if t.all {
		t.text += " over updates"
	}
	return t
}

// sortable is the values that have an order.
const sortable = expr.Any &^ (1<<connectors.List | 1<<connectors.Map | 1<<connectors.Null | 1<<connectors.Absent)

// output says how the rows look that come out, and what they are told apart by.
func (t *top) output(env *KeyedEnv, c *TopConfig, view *View) {
	key, told := keyFields(c.By), true
	if len(c.By) > 0 && key == nil {
		told = false
	}
	if t.window != nil {
		has := env.In[0].names()
		for i, name := range boundNames {
			if slices.Contains(has, name) {
				continue
			}
			t.bounds[i] = env.NewSlot()
			view = view.Set(name, expr.Ref{Slot: t.bounds[i], Covered: 1, Type: expr.Of(connectors.Int)})
		}
		end := boundNames[1]
		told = told && (t.bounds[1] >= 0 || slices.Contains(key, end))
		if !slices.Contains(key, end) {
			key = append(key, end)
		}
	}
	if c.Rank != "" {
		t.rank = env.NewSlot()
		view = view.Set(c.Rank, expr.Ref{Slot: t.rank, Covered: 1, Type: expr.Of(connectors.Int)})
		key = append(key, c.Rank)
	}
	switch {
	case !t.emit.Updating():
		view = view.AppendOnly()
	case !told || t.keep || t.rank < 0 && t.n > 1:
		view = view.Updating(nil)
	default:
		view = view.Updating(key)
	}
	if u := env.In[0].Updates(); u != nil && t.emit.Updating() {
		spread := slices.Clone(u.Spread)
		for _, k := range c.By {
			spread = append(spread, k.Expr.Text)
		}
		view = view.Spread(spread)
	}
	env.Output(view)
}

// Definition is what the meaning of the state hangs on.
func (t *top) Definition() string { return t.text }
