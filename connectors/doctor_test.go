package connectors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

func TestAFindingHoldsWhatIsWrongApartFromWhatToDo(t *testing.T) {
	no := errors.New("topic a does not exist")
	advised := connectors.Advise("topic", no, "create it")
	if text := advised.Error(); text != "topic a does not exist: create it" || !errors.Is(advised, no) {
		t.Errorf("the error says %q and hides its cause: %t", text, !errors.Is(advised, no))
	}
	late := fmt.Errorf("list: %w", context.DeadlineExceeded)
	for name, c := range map[string]struct {
		err    error
		key    string
		advice string
		want   connectors.Finding
	}{
		"an error that knows":          {connectors.Permanent(advised), "", "", connectors.Finding{Key: "topic", Detail: "topic a does not exist", Advice: "create it"}},
		"one around it":                {fmt.Errorf("open: %w", advised), "", "", connectors.Finding{Key: "topic", Detail: "open: topic a does not exist", Advice: "create it"}},
		"its advice in the middle":     {fmt.Errorf("%w, says the broker", advised), "", "", connectors.Finding{Key: "topic", Detail: "topic a does not exist: create it, says the broker", Advice: "create it"}},
		"its advice in parentheses":    {fmt.Errorf("refused (%s)", "log in"), "sasl", "log in", connectors.Finding{Key: "sasl", Detail: "refused", Advice: "log in"}},
		"one that knows nothing":       {no, "topics", "", connectors.Finding{Key: "topics", Detail: "topic a does not exist"}},
		"one that the time is over of": {late, "", "", connectors.Finding{Detail: "no answer within 3s: list: context deadline exceeded"}},
	} {
		var got connectors.Finding
		d := connectors.Diagnosis{Timeout: 3 * time.Second, Report: func(f connectors.Finding) { got = f }}
		d.Fail("look", c.key, c.err, c.advice)
		c.want.Check, c.want.Level = "look", connectors.LevelFailed
		if got != c.want {
			t.Errorf("%s: got\n%+v, want\n%+v", name, got, c.want)
		}
	}
}
