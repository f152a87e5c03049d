package pipeline

import (
	"errors"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// adviser knows what to do about each error.
type adviser struct{ key, help string }

func (a adviser) OpenAdvice(error) (key, help string) { return a.key, a.help }

func TestAFailedOpenSaysWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		of   any
		want string
	}{
		"with a key":          {adviser{"url", "correct the user in it"}, "refused (url: correct the user in it)"},
		"without one":         {adviser{"", "correct the user"}, "refused (correct the user)"},
		"without advice":      {adviser{"url", ""}, "refused"},
		"what it says itself": {adviser{"url", "refused"}, "refused"},
		"nobody knows":        {struct{}{}, "refused"},
	} {
		cause := connectors.Permanent(errors.New("refused"))
		if got := advised(tc.of, cause); got.Error() != tc.want || !errors.Is(got, cause) {
			t.Errorf("%s: the error is %q, want %q around its cause", name, got, tc.want)
		}
	}
}
