package table

import (
	"encoding/json"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
)

// Mark is what a database keeps of a sink's commits, in a row of its own: the witness.
type Mark struct {
	Origin string                  // of the checkpoint storage, see connectors.SinkEnv
	ID     connectors.CheckpointID // that was applied last; its number is 0 before the first
	Fence  uint64                  // the oldest generation that may commit
}

// Owner is the process that reads and changes a mark.
type Owner struct {
	Pipeline   string
	Table      string // of the marks, for errors
	Origin     string
	Generation uint64
}

// OwnerOf is the process that env was made for. Table is where its mark is.
func OwnerOf(env *connectors.SinkEnv, table string) Owner {
	o := Owner{Pipeline: env.Pipeline, Table: table}
	if env.Origin != nil {
		o.Origin = env.Origin()
	}
	if env.Generation != nil {
		o.Generation = env.Generation()
	}
	return o
}

// Commit decides, under the lock of the mark, whether checkpoint id is to be applied.
// Done says that it is already. Next is the mark to write with the rows. Started says
// that the process writes, so that a mark of another origin is one that has taken over;
// before, the user knows of it.
func (m Mark) Commit(o Owner, id connectors.CheckpointID, started bool) (next Mark, done bool, err error) {
	if m.Origin != o.Origin {
		if started {
			return m, false, fmt.Errorf("%w: a pipeline called %s of another checkpoint storage has taken over %s", connectors.ErrFenced, o.Pipeline, o.Table)
		}
		m = Mark{Origin: o.Origin}
	}
	switch w := m.ID; {
	case m.Fence > o.Generation || w.Generation > o.Generation:
		return m, false, fmt.Errorf("%w: %s is fenced for generation %d, this process is of %d", connectors.ErrFenced, o.Table, max(m.Fence, w.Generation), o.Generation)
	case w.Generation == id.Generation && w.Number >= id.Number,
		w.Generation > id.Generation && w.Number > id.Number: // that went on from this one, or from one behind it
		return m, true, nil
	case w.Generation > id.Generation:
		return m, false, fmt.Errorf("%w: checkpoint %d of generation %d is not among what the last commit, %d of generation %d, came from",
			connectors.ErrAmbiguous, id.Number, id.Generation, w.Number, w.Generation)
	}
	m.ID = id
	return m, false, nil
}

// Revoke is the mark by which no generation before the owner's can commit any more.
func (m Mark) Revoke(o Owner) (Mark, error) {
	if m.Origin != o.Origin { // which the user knows of
		m = Mark{Origin: o.Origin}
	}
	if m.Fence > o.Generation {
		return m, fmt.Errorf("%w: %s is fenced for generation %d, this process is of %d", connectors.ErrFenced, o.Table, m.Fence, o.Generation)
	}
	m.Fence = o.Generation
	return m, nil
}

// Witness is the mark as connectors.Committer tells it.
func (m Mark) Witness(o Owner) (id connectors.CheckpointID, ok bool, err error) {
	if m.ID.Number == 0 {
		return connectors.CheckpointID{}, false, nil
	}
	if m.Origin != o.Origin {
		return connectors.CheckpointID{}, false, &connectors.ForeignWitnessError{
			Mark: fmt.Sprintf("%s/%d/%d", m.Origin, m.ID.Generation, m.ID.Number),
			Text: fmt.Sprintf("checkpoint %d of generation %d of a pipeline called %s, in %s, is of another checkpoint storage", m.ID.Number, m.ID.Generation, o.Pipeline, o.Table),
		}
	}
	return m.ID, true, nil
}

type keptHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"` // null, or base64
}

// EncodeHeaders is the headers of a refused row as JSON text, nil for none.
func EncodeHeaders(headers []connectors.Header) (*string, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	list := make([]keptHeader, len(headers))
	for i, h := range headers {
		list[i] = keptHeader(h)
	}
	text, err := json.Marshal(list)
	return new(string(text)), err
}

// DecodeHeaders reads what EncodeHeaders wrote.
func DecodeHeaders(text []byte) ([]connectors.Header, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var list []keptHeader
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	out := make([]connectors.Header, len(list))
	for i, h := range list {
		out[i] = connectors.Header(h)
	}
	return out, nil
}
