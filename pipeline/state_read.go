package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/state/disk"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// StateEntry is one entry of keyed state in a checkpoint.
type StateEntry struct {
	Subtask   int // that owned it when the checkpoint was taken
	KeyGroup  int
	Table     string
	Namespace int64
	// Size is the length of its key and value.
	Size int

	value []byte
	key   state.Key
}

// StateReading is the keyed state of one operator in a checkpoint, to be looked at.
type StateReading struct {
	meta  *checkpoint.Metadata
	files connectors.CheckpointFiles
	op    *checkpoint.Operator
	view  *transform.StateView
}

// OpenState finds the keyed state of an operator in a checkpoint. It needs neither the
// pipeline file nor a daemon.
func OpenState(m *checkpoint.Metadata, files connectors.CheckpointFiles, op *checkpoint.Operator) *StateReading {
	r := &StateReading{meta: m, files: files, op: op}
	var layout json.RawMessage
	if noted, err := keyedStates(op); err == nil {
		for _, n := range noted {
			if len(n.Layout) > 0 {
				layout = n.Layout
			}
		}
	}
	r.view = transform.ViewState(op.Kind, layout)
	return r
}

// Each shows the entries, in no order, until visit fails; however many there are, few
// are in memory at a time. Files of the disk backend are brought to the directory for
// temporary files first. What visit is given is valid until it returns.
func (r *StateReading) Each(ctx context.Context, visit func(e *StateEntry) error) (err error) {
	groups := r.meta.MaxParallelism
	var neutral, own []state.Piece
	for _, k := range r.op.KeyGroups {
		if k.Format == "" {
			neutral = append(neutral, state.Piece(k))
		} else {
			own = append(own, state.Piece(k))
		}
	}
	show := func(e state.Entry) error {
		return visit(&StateEntry{
			Subtask:  state.SubtaskOf(e.Key.Group, max(r.op.Parallelism, 1), groups),
			KeyGroup: e.Key.Group, Table: e.Table, Namespace: e.NS, Size: len(e.Key.Bytes) + len(e.Value),
			value: e.Value, key: e.Key,
		})
	}
	if len(neutral) > 0 {
		if err := state.ReadNeutral(ctx, r.files, neutral, 0, groups-1, groups, show); err != nil {
			return fmt.Errorf("operator %s: %w", r.op.UID, err)
		}
	}
	if len(own) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "sluice-state-read-")
	if err != nil {
		return fmt.Errorf("operator %s: make a directory for the files of its state: %w", r.op.UID, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	opts := state.Options{First: 0, Last: groups - 1, Groups: groups, Dir: dir, Restore: &state.Restore{Pieces: own, Files: r.files}}
	if err := disk.ReadPieces(ctx, opts, show); err != nil {
		return fmt.Errorf("operator %s: %w", r.op.UID, err)
	}
	return nil
}

// Show takes an entry apart.
func (r *StateReading) Show(e *StateEntry) transform.Shown {
	return r.view.Show(&state.Entry{Table: e.Table, NS: e.Namespace, Key: e.key, Value: e.value})
}

// Raw is the bytes of an entry's key and value.
func (e *StateEntry) Raw() (key, value []byte) { return e.key.Bytes, e.value }

// layoutOf is what a checkpoint says of how a keyed step keeps its state, with the
// secrets of the file masked; nil where the step does not say.
func layoutOf(step transform.KeyedStep, mask func(string) string) json.RawMessage {
	l, ok := step.(transform.Layouter)
	if !ok {
		return nil
	}
	text, err := json.Marshal(l.Layout())
	if err != nil {
		return nil // a float that JSON has no number for; the state is restored without it
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	if enc.Encode(masked(v, mask)) != nil {
		return nil
	}
	return bytes.TrimSpace(out.Bytes())
}

// masked is v with each text in it masked.
func masked(v any, mask func(string) string) any {
	switch v := v.(type) {
	case string:
		return mask(v)
	case []any:
		for i := range v {
			v[i] = masked(v[i], mask)
		}
	case map[string]any:
		for k := range v {
			v[k] = masked(v[k], mask)
		}
	}
	return v
}
