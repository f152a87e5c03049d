package accumulate

import (
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// count counts records. Its state is the number, in 8 bytes.
type count struct{}

const countSize = 8

func (count) Size() int       { return countSize }
func (count) Retracts() bool  { return true }
func (count) Type() expr.Type { return expr.Of(connectors.Int) }

func (count) Add(b []byte, _ *Input) ([]byte, error) { return bump(b, 1) }

func (count) Retract(b []byte, _ *Input) ([]byte, error) { return bump(b, ^uint64(0)) }

func bump(b []byte, by uint64) ([]byte, error) {
	b, err := sized(b, countSize)
	if err != nil {
		return b, err
	}
	setWord(b, 0, word(b, 0)+by)
	return b, nil
}

func (count) Merge(b, other []byte) ([]byte, error) {
	if len(other) == 0 {
		return b, nil
	}
	if _, err := sized(other, countSize); err != nil {
		return b, err
	}
	return bump(b, word(other, 0))
}

func (count) Result(b []byte, _ *connectors.Arena) (connectors.Value, error) {
	b, err := sized(b, countSize)
	if err != nil {
		return connectors.Value{}, err
	}
	return connectors.IntValue(int64(word(b, 0))), nil
}
