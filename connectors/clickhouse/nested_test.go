package clickhouse

import (
	"slices"
	"testing"

	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
)

// The server refuses a block for one row whose arrays differ.
func TestTheArraysOfANestedAreOfOneLength(t *testing.T) {
	s := newServer([3]string{"a.k", "Array(String)", "DEFAULT"}, [3]string{"b", "Array(Int8)", ""}, [3]string{"a.v", "Array(Int8)", ""}, [3]string{"a.w", "Array(Int8)", "DEFAULT"}, [3]string{"c.v", "Array(Int8)", ""})
	r := deferredtest.Start(t, s.sink(t, nil), &connectortest.Files{}, 1, nil)
	refused := r.Values(
		`{"a.k": ["x"], "b": [], "a.v": [1], "a.w": [2], "c.v": [1, 2, 3]}`,
		`{"a.k": ["x"], "b": [], "a.v": [1, 2], "c.v": []}`,
		`{"a.v": [], "b": [1], "c.v": []}`,
		`{"a.v": [1], "a.w": [], "b": [], "c.v": [1]}`,
	)
	if got := positions(refused); !slices.Equal(got, []int{1, 3}) || refused[0].Kind != "nested" {
		t.Errorf("refused %+v", refused)
	}
}
