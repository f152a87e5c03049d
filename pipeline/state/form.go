package state

import (
	"context"
	"errors"

	"github.com/sluice-etl/sluice/connectors"
)

// Entry is one entry of a store, as the neutral form holds it. Its slices are
// borrowed until the call that is given it returns.
type Entry struct {
	Table string
	NS    int64
	Key   Key
	Value []byte
}

// WriteNeutral writes the entries of the key groups first..last in the neutral form
// and returns one piece for each group that has any. entries gives all entries of a
// group to emit; those of one table and namespace should follow each other, which
// makes the files smaller. It is called once for each group, from several goroutines
// at once. After an error no file is left.
func WriteNeutral(ctx context.Context, files connectors.CheckpointFiles, form Form, first, last int,
	entries func(group int, emit func(Entry) error) error) ([]Piece, error) {
	return nil, errors.New("not yet")
}

// ReadNeutral reads the pieces of neutral form that overlap the key groups
// first..last, of groups in all, and shows each entry of these groups to visit.
// Files are read once each and at the same time, and visit is called from the
// calling goroutine only. Pieces of other forms are an error. So is anything that
// WriteNeutral did not write; the error names the file and what is wrong.
func ReadNeutral(ctx context.Context, files connectors.CheckpointFiles, pieces []Piece, first, last, groups int,
	visit func(Entry) error) error {
	return errors.New("not yet")
}
