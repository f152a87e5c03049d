package retry

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// A call that fails is told of while it is made again, and no more once it works.
func TestACallThatIsMadeAgainIsAnOutage(t *testing.T) {
	var told Watch
	tries := 0
	policy := Policy{First: time.Nanosecond, What: "POST example", Watch: &told}
	err := policy.Do(t.Context(), func(context.Context) error {
		tries++
		switch now := told.Outages(); {
		case tries == 1:
			if len(now) != 0 {
				t.Errorf("told before it failed: %+v", now)
			}
			return errors.New("connection refused")
		case len(now) != 1 || now[0].What != "POST example" || now[0].Err.Error() != "connection refused" || now[0].Since.IsZero():
			t.Errorf("told %+v", now)
		}
		return nil
	})
	if err != nil || tries != 2 || len(told.Outages()) != 0 {
		t.Errorf("error %v after %d tries, still told %+v", err, tries, told.Outages())
	}
}

// What cannot be mended by trying again comes out of the call, and is no outage.
func TestACallThatIsRefusedIsNoOutage(t *testing.T) {
	var told Watch
	err := Policy{Watch: &told}.Do(t.Context(), func(context.Context) error { return connectors.Permanent(errors.New("refused")) })
	if !connectors.IsPermanent(err) || len(told.Outages()) != 0 {
		t.Errorf("error %v, told %+v", err, told.Outages())
	}
}
