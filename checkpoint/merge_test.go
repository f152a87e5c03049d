package checkpoint

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

func committable(committer string, gen, n uint64, expires bool) connectors.Committable {
	c := connectors.Committable{Committer: committer, Checkpoint: ID{Generation: gen, Number: n}, Data: json.RawMessage(`{}`)}
	if expires {
		c.Expires = time.Unix(1_900_000_000, 0)
	}
	return c
}

func sinkAck(subtask int, n ID, cs ...connectors.Committable) Ack {
	return Ack{Task: TaskID{"chain", subtask}, Checkpoint: n, Committables: cs}
}

func names(cs []connectors.Committable) string {
	var out []string
	for _, c := range cs {
		out = append(out, fmt.Sprintf("%s/%d", c.Committer, c.Checkpoint.Number))
	}
	return strings.Join(out, " ")
}

func TestCommittablesAreOrderedAndListedOnce(t *testing.T) {
	file := func(n uint64) connectors.Committable { return committable("file", 1, n, false) }
	kafka := func(n uint64) connectors.Committable { return committable("kafka", 1, n, true) }
	for _, tc := range []struct {
		name      string
		acks      [][]connectors.Committable
		published []connectors.Committable
		want      string
	}{
		{"none", [][]connectors.Committable{nil, {}}, nil, ""},
		{"what can expire goes first", [][]connectors.Committable{{file(1)}, {kafka(1)}}, nil, "kafka/1 file/1"},
		{"older attempts go first, whichever task has them",
			[][]connectors.Committable{{file(3)}, {kafka(2), kafka(3)}, {file(1), file(2)}}, nil,
			"kafka/2 kafka/3 file/1 file/2 file/3"},
		{"the order of a task is kept within a checkpoint",
			[][]connectors.Committable{{committable("b", 1, 1, false), committable("a", 1, 1, false)}}, nil, "b/1 a/1"},
		{"one that two tasks list is listed once", [][]connectors.Committable{{kafka(1), kafka(2)}, {kafka(1)}}, nil, "kafka/1 kafka/2"},
		{"another's of the same checkpoint is another", [][]connectors.Committable{{file(1)}, {committable("files", 1, 1, false)}}, nil, "file/1 files/1"},
		{"a generation before goes first", [][]connectors.Committable{{file(1)}, {committable("old", 0, 9, false)}}, nil, "old/9 file/1"},
		{"what is proven is left out", [][]connectors.Committable{{file(1), file(2)}}, []connectors.Committable{file(1)}, "file/2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var acks []*Ack
			for i, cs := range tc.acks {
				a := sinkAck(i, ID{}, cs...)
				acks = append(acks, &a)
			}
			published := map[string]uint64{}
			for _, c := range tc.published {
				published[committableKey(&c)] = 1
			}
			got := mergeCommittables(acks, published)
			if got == nil || names(got) != tc.want {
				t.Errorf("got %q, want %q", names(got), tc.want)
			}
		})
	}
}

func TestOperatorsArePutTogetherFromAllSubtasks(t *testing.T) {
	state := func(i int) *SubtaskState { return &SubtaskState{Subtask: i, State: json.RawMessage(`{}`)} }
	groups := func(first, last int) KeyGroups { return KeyGroups{First: first, Last: last} }
	acks := []*Ack{
		{Operators: []OperatorState{
			{UID: "in", Kind: "source kafka", Parallelism: 2, Splits: []connectors.Split{{ID: "t/2"}, {ID: "t/0"}}},
			{UID: "sum", Kind: "aggregate", Parallelism: 2, KeyGroups: []KeyGroups{groups(64, 127)}},
		}},
		{Operators: []OperatorState{
			{UID: "out", Kind: "sink file", Parallelism: 2, State: state(1)},
			{UID: "in", Kind: "source kafka", Parallelism: 2, Splits: []connectors.Split{{ID: "t/1"}}},
			{UID: "sum", Kind: "aggregate", Parallelism: 2, KeyGroups: []KeyGroups{groups(0, 63), groups(0, 31)}},
		}},
		{Operators: []OperatorState{{UID: "out", Kind: "sink file", Parallelism: 2, State: state(0)}}},
	}
	ops, err := mergeOperators(acks)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range ops {
		line := fmt.Sprintf("%s (%s, %d):", o.UID, o.Kind, o.Parallelism)
		for _, s := range o.Splits {
			line += " " + s.ID
		}
		for _, k := range o.KeyGroups {
			line += fmt.Sprintf(" %d-%d", k.First, k.Last)
		}
		for _, s := range o.Subtasks {
			line += fmt.Sprintf(" #%d", s.Subtask)
		}
		got = append(got, line)
	}
	want := "in (source kafka, 2): t/0 t/1 t/2\nsum (aggregate, 2): 0-31 0-63 64-127\nout (sink file, 2): #0 #1"
	if g := strings.Join(got, "\n"); g != want {
		t.Errorf("got\n%s\nwant\n%s", g, want)
	}
}

func TestContradictingOperatorsAreRefused(t *testing.T) {
	split := []connectors.Split{{ID: "t/0"}}
	for _, tc := range []struct {
		name, want string
		a, b       OperatorState
	}{
		{"one split read twice", "operator in: split t/0 is read by two subtasks",
			OperatorState{UID: "in", Splits: split}, OperatorState{UID: "in", Splits: split}},
		{"one subtask twice", "operator out: subtask 0 handed over twice",
			OperatorState{UID: "out", State: &SubtaskState{}}, OperatorState{UID: "out", State: &SubtaskState{}}},
		{"two kinds", "operator x is a of parallelism 1 in one task and b of 1 in another",
			OperatorState{UID: "x", Kind: "a", Parallelism: 1}, OperatorState{UID: "x", Kind: "b", Parallelism: 1}},
		{"two parallelisms", "operator x is a of parallelism 1 in one task and a of 2 in another",
			OperatorState{UID: "x", Kind: "a", Parallelism: 1}, OperatorState{UID: "x", Kind: "a", Parallelism: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := mergeOperators([]*Ack{{Operators: []OperatorState{tc.a}}, {Operators: []OperatorState{tc.b}}})
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
