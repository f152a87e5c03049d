package table

import (
	"errors"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestMarkDecides(t *testing.T) {
	id := func(g, n uint64) connectors.CheckpointID { return connectors.CheckpointID{Generation: g, Number: n} }
	for name, tt := range map[string]struct {
		mark    Mark
		own     uint64
		commit  connectors.CheckpointID
		started bool
		done    bool
		err     error
	}{
		"the first":                        {Mark{Origin: "o"}, 1, id(1, 1), true, false, nil},
		"the next":                         {Mark{"o", id(1, 4), 1}, 1, id(1, 5), true, false, nil},
		"a repeated one":                   {Mark{"o", id(1, 5), 1}, 1, id(1, 5), true, true, nil},
		"one behind the last":              {Mark{"o", id(1, 6), 1}, 1, id(1, 5), true, true, nil},
		"a restored one of before":         {Mark{"o", id(1, 4), 1}, 2, id(1, 5), false, false, nil},
		"one that a later went on from":    {Mark{"o", id(2, 6), 2}, 3, id(1, 5), false, true, nil},
		"one that a later did not see":     {Mark{"o", id(2, 5), 2}, 3, id(1, 5), false, false, connectors.ErrAmbiguous},
		"an older process":                 {Mark{"o", id(1, 4), 2}, 1, id(1, 5), true, false, connectors.ErrFenced},
		"a later commit":                   {Mark{"o", id(2, 4), 0}, 1, id(1, 5), true, false, connectors.ErrFenced},
		"another storage, at a start":      {Mark{"x", id(9, 9), 9}, 1, id(1, 5), false, false, nil},
		"another storage has taken over":   {Mark{"x", id(9, 9), 9}, 1, id(1, 5), true, false, connectors.ErrFenced},
		"numbers of a later generation go": {Mark{"o", id(1, 9), 2}, 2, id(2, 3), true, false, nil},
	} {
		o := Owner{Origin: "o", Generation: tt.own}
		next, done, err := tt.mark.Commit(o, tt.commit, tt.started)
		if done != tt.done || !errors.Is(err, tt.err) {
			t.Errorf("%s: done %v, %v", name, done, err)
		}
		if err == nil && !done && (next.ID != tt.commit || next.Origin != "o") {
			t.Errorf("%s: the next mark is %+v", name, next)
		}
	}
}

func TestMarkIsRevokedForOlderGenerations(t *testing.T) {
	m, err := Mark{Origin: "o", Fence: 2}.Revoke(Owner{Origin: "o", Generation: 3})
	if err != nil || m.Fence != 3 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := m.Revoke(Owner{Origin: "o", Generation: 2}); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("error %v", err)
	}
	if m, err = (Mark{Origin: "x", Fence: 9}).Revoke(Owner{Origin: "o", Generation: 1}); err != nil || m.Origin != "o" || m.Fence != 1 {
		t.Errorf("of another storage: %+v, %v", m, err)
	}
}

func TestMarkOfAnotherStorageProvesNothing(t *testing.T) {
	m := Mark{Origin: "x", ID: connectors.CheckpointID{Generation: 1, Number: 7}}
	var foreign *connectors.ForeignWitnessError
	if _, ok, err := m.Witness(Owner{Origin: "o"}); ok || !errors.As(err, &foreign) {
		t.Errorf("%v, %v", ok, err)
	}
	if _, ok, err := (Mark{Origin: "x"}).Witness(Owner{Origin: "o"}); ok || err != nil {
		t.Errorf("before the first commit: %v, %v", ok, err)
	}
	if id, ok, err := m.Witness(Owner{Origin: "x"}); !ok || err != nil || id.Number != 7 {
		t.Errorf("%v, %v, %v", id, ok, err)
	}
}
