package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

func (a *app) stateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "state",
		Short:   "Shows the state that checkpoints and savepoints hold, without a daemon",
		Example: "  etl state read file:///var/lib/etl/orders/4f1c…/chk-860",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	r := stateReader{app: a}
	read := &cobra.Command{
		Use:   "read PATH",
		Short: "Prints the keys and values of an operator's state as JSON lines; without --operator, which operators have state",
		Long: `Prints the keys and values of an operator's state as JSON lines, in no order.
PATH is a checkpoint's or savepoint's folder, or its _metadata. Neither the pipeline file
nor a daemon is needed. What cannot be taken apart is printed as base64, with the reason.
Of a source the positions are printed.

Without --operator it lists the operators that have state, with how many entries and bytes.`,
		Example: `  etl state read file:///var/lib/etl/orders/4f1c…/chk-860
  etl state read s3://bucket/orders/4f1c…/chk-860 --operator totals --limit 10
  etl state read savepoints/savepoint-4f1c9e-0a1b2c3d4e5f --operator totals --key customer=42`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return r.run(c.Context(), args[0]) },
	}
	f := read.Flags()
	f.StringVar(&r.operator, "operator", "", "uid of the operator whose state is printed")
	f.StringArrayVar(&r.keys, "key", nil, "prints only keys with this value: FIELD=VALUE, or VALUE for any field; of several all must fit")
	f.StringVar(&r.table, "table", "", "prints only this table of the operator")
	f.IntVar(&r.limit, "limit", 0, "prints at most so many entries; 0 for all")
	c.AddCommand(read)
	return c
}

// stateReader is the command state read.
type stateReader struct {
	*app
	operator string
	table    string
	keys     []string
	limit    int
}

func (r *stateReader) run(ctx context.Context, path string) error {
	if r.operator == "" && (len(r.keys) > 0 || r.limit != 0 || r.table != "") {
		return usageError(errors.New("--key, --table and --limit choose entries of one operator: name it with --operator"))
	}
	if r.limit < 0 {
		return usageError(errors.New("--limit must not be negative"))
	}
	o, err := checkpoint.Inspect(ctx, path)
	if err != nil {
		return &codeError{code: exitFailed, err: err}
	}
	if r.operator == "" {
		return r.list(ctx, o)
	}
	var uids []string
	for i := range o.Meta.Operators {
		op := &o.Meta.Operators[i]
		uids = append(uids, op.UID)
		if op.UID != r.operator {
			continue
		}
		if len(op.Splits) > 0 {
			return r.splits(op)
		}
		return r.entries(ctx, o, op)
	}
	help := "it has " + strings.Join(uids, ", ")
	if near := connectors.Nearest(r.operator, uids); near != "" {
		help = "did you mean " + near + "?"
	}
	return usageError(fmt.Errorf("checkpoint %d of pipeline %s has no operator %s: %s", o.Meta.Number, o.Meta.Pipeline, r.operator, help))
}

// operatorState is an operator in the list.
type operatorState struct {
	Operator string `json:"operator"`
	Kind     string `json:"kind"`
	Splits   int    `json:"splits,omitempty"`
	Entries  int64  `json:"entries"`
	Bytes    int64  `json:"bytes"` // of keys and values
	Stored   int64  `json:"stored_bytes"`
}

// list shows which operators have state. It reads all of it, to count.
func (r *stateReader) list(ctx context.Context, o *checkpoint.Opened) error {
	rows := []operatorState{}
	for i := range o.Meta.Operators {
		op := &o.Meta.Operators[i]
		if len(op.KeyGroups) == 0 && len(op.Splits) == 0 {
			continue
		}
		row := operatorState{Operator: op.UID, Kind: op.Kind, Splits: len(op.Splits)}
		for _, k := range op.KeyGroups {
			row.Stored += k.Length
		}
		err := pipeline.OpenState(o.Meta, o.Files, op).Each(ctx, func(e *pipeline.StateEntry) error {
			row.Entries++
			row.Bytes += int64(e.Size)
			return nil
		})
		if err != nil {
			return &codeError{code: exitFailed, err: fmt.Errorf("%s: %w", o.Path, err)}
		}
		rows = append(rows, row)
	}
	if r.json {
		return json.NewEncoder(r.out).Encode(rows)
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "OPERATOR\tKIND\tENTRIES\tBYTES\tSTORED")
	for _, row := range rows {
		if row.Splits > 0 {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%d positions\t-\t-\n", row.Operator, row.Kind, row.Splits)
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", row.Operator, row.Kind, row.Entries, row.Bytes, row.Stored)
	}
	return w.Flush()
}

// splits prints the positions of a source.
func (r *stateReader) splits(op *checkpoint.Operator) error {
	enc := json.NewEncoder(r.out)
	for i, s := range op.Splits {
		if r.limit > 0 && i == r.limit {
			break
		}
		if err := enc.Encode(struct {
			Operator string `json:"operator"`
			connectors.Split
		}{op.UID, s}); err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends the reading once the limit is reached.
var errEnough = errors.New("enough entries were printed")

// entries prints the entries of an operator.
func (r *stateReader) entries(ctx context.Context, o *checkpoint.Opened, op *checkpoint.Operator) error {
	reading := pipeline.OpenState(o.Meta, o.Files, op)
	enc := json.NewEncoder(r.out)
	enc.SetEscapeHTML(false)
	n := 0
	tables := map[string]bool{}
	err := reading.Each(ctx, func(e *pipeline.StateEntry) error {
		tables[e.Table] = true
		if r.table != "" && e.Table != r.table {
			return nil
		}
		shown := reading.Show(e)
		if !r.wanted(shown.Key) {
			return nil
		}
		if err := enc.Encode(entryLine(op.UID, e, &shown)); err != nil {
			return err
		}
		if n++; n == r.limit {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return &codeError{code: exitFailed, err: fmt.Errorf("%s: %w", o.Path, err)}
	}
	if n == 0 {
		_, _ = fmt.Fprintln(r.err, r.nothing(op.UID, slices.Sorted(maps.Keys(tables))))
	}
	return nil
}

// nothing says why no entry was printed.
func (r *stateReader) nothing(uid string, tables []string) string {
	switch {
	case len(tables) == 0:
		return fmt.Sprintf("operator %s has no entries", uid)
	case r.table != "" && !slices.Contains(tables, r.table):
		return fmt.Sprintf("operator %s has no entries in table %s; it has some in %s", uid, r.table, strings.Join(tables, ", "))
	}
	return fmt.Sprintf("no entry of operator %s has such a key", uid)
}

// printedEntry is an entry as it is printed. At most one of the spans is there; the
// namespace where it stands for none.
type printedEntry struct {
	Operator  string          `json:"operator"`
	Subtask   int             `json:"subtask"`
	KeyGroup  int             `json:"key_group"`
	Table     string          `json:"table"`
	Window    *printedSpan    `json:"window,omitempty"`
	Pane      *printedSpan    `json:"pane,omitempty"`
	Bucket    *printedSpan    `json:"bucket,omitempty"`
	Namespace int64           `json:"namespace,omitempty"`
	Key       json.RawMessage `json:"key"`
	Value     json.RawMessage `json:"value,omitempty"`
	Raw       []byte          `json:"raw,omitempty"`
	RawKey    []byte          `json:"raw_key,omitempty"`
	Reason    string          `json:"reason,omitempty"`
}

type printedSpan struct {
	Start json.RawMessage `json:"start"`
	End   json.RawMessage `json:"end"`
}

func entryLine(uid string, e *pipeline.StateEntry, s *transform.Shown) *printedEntry {
	p := &printedEntry{
		Operator: uid, Subtask: e.Subtask, KeyGroup: e.KeyGroup, Table: e.Table, Key: s.Key, Value: s.Value, Reason: s.Reason,
	}
	if s.Span == nil {
		p.Namespace = e.Namespace
	} else {
		span := &printedSpan{transform.AppendMillis(nil, s.Span.Start), transform.AppendMillis(nil, s.Span.End)}
		switch s.Span.What {
		case "window":
			p.Window = span
		case "pane":
			p.Pane = span
		default:
			p.Bucket = span
		}
	}
	if s.Value == nil || s.Reason != "" {
		p.RawKey, p.Raw = e.Raw()
	}
	return p
}

// wanted reports whether a key fits what --key says.
func (r *stateReader) wanted(key json.RawMessage) bool {
	if len(r.keys) == 0 {
		return true
	}
	fields := map[string]json.RawMessage{}
	var list []json.RawMessage
	if json.Unmarshal(key, &fields) == nil {
		for _, v := range fields {
			list = append(list, v)
		}
	} else if json.Unmarshal(key, &list) != nil {
		return false
	}
	for _, want := range r.keys {
		name, value, named := strings.Cut(want, "=")
		if v, ok := fields[name]; named && ok {
			if fieldText(v) != value {
				return false
			}
			continue
		}
		if !slices.ContainsFunc(list, func(v json.RawMessage) bool { return fieldText(v) == want }) {
			return false
		}
	}
	return true
}

// fieldText is a field of a key as it is written on a command line.
func fieldText(v json.RawMessage) string {
	var text string
	if json.Unmarshal(v, &text) == nil && len(v) > 0 && v[0] == '"' {
		return text
	}
	return string(v)
}
