package checkpoint_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

func TestCompareTellsWhatChanged(t *testing.T) {
	definition := func(op *checkpoint.Operator) string {
		if len(op.Subtasks) == 0 {
			return ""
		}
		return string(op.Subtasks[0].State)
	}
	same := checkpoint.Compare(sample(), sample(), definition)
	if same.From != same.To {
		t.Errorf("a checkpoint differs from itself: %+v", same)
	}
	for _, op := range same.Operators {
		if op.Changed() {
			t.Errorf("operator %s differs from itself: %+v", op.UID, op)
		}
	}
	b := sample()
	b.Number, b.Definition = 18, "sha256:01"
	in := &b.Operators[0]
	in.Splits[0].Offset += 10
	in.Splits = append(in.Splits, connectors.Split{ID: "orders/1", Offset: 5, Until: -1})
	b.Operators[1].UID = "agg2"
	b.Operators[2].Subtasks[0].State = json.RawMessage(`{"seq":2}`)
	b.Operators[2].Subtasks[0].Files[0].Size = 30
	b.Committables = append(b.Committables, connectors.Committable{Committer: "other", Records: 7}, connectors.Committable{Committer: "other", Empty: true})
	d := checkpoint.Compare(sample(), b, definition)
	if d.From.Number != 17 || d.To.Number != 18 || d.From.Bytes != 20 || d.To.Bytes != 40 || d.To.Files != 2 {
		t.Errorf("the whole: %+v, %+v", d.From, d.To)
	}
	var got []string
	for _, op := range d.Operators {
		in := ""
		if op.From != nil {
			in += "a"
		}
		if op.To != nil {
			in += "b"
		}
		if op.Changed() {
			in += "!"
		}
		got = append(got, op.UID+" "+in)
	}
	if want := "in ab!, agg2 b!, out ab!, agg a!"; strings.Join(got, ", ") != want {
		t.Errorf("operators are %q, want %q", got, want)
	}
	splits := d.Operators[0].Splits
	if len(splits) != 2 || splits[0].Records != 10 || splits[1].From != nil || !splits[1].Changed() {
		t.Errorf("splits are %+v", splits)
	}
	out := d.Operators[2]
	if out.From.Definition != `{"seq":1.50}` || out.To.Definition != `{"seq":2}` || out.To.Bytes != 30 {
		t.Errorf("the sink is %+v, %+v", out.From, out.To)
	}
	if want := (checkpoint.CommitterCounts{Committer: "other", To: 1, RecordsTo: 7}); len(d.Committables) != 2 || d.Committables[1] != want {
		t.Errorf("committables are %+v", d.Committables)
	}
	back := checkpoint.Compare(b, sample(), definition)
	if s := back.Operators[0].Splits; s[0].Records != -10 || s[1].To != nil {
		t.Errorf("the other way round splits are %+v", s)
	}
}
