package main

import (
	"encoding/json"
	"testing"
)

func TestBidsAreTheReferenceWorkload(t *testing.T) {
	const n = 20_000
	var size, passed int
	for g, i := newBids(), 0; i < n; i++ {
		text, passes := g.next(nil)
		var bid struct {
			Price   int64
			Channel string
		}
		if err := json.Unmarshal(text, &bid); err != nil {
			t.Fatalf("bid %s: %v", text, err)
		}
		if want := bid.Price > 5000 && bid.Channel != "Apple"; passes != want {
			t.Fatalf("passes = %v for %s", passes, text)
		}
		size += len(text)
		if passes {
			passed++
		}
	}
	if mean := size / n; mean < 207 || mean > 217 {
		t.Errorf("a bid has %d bytes on average, want about 212", mean)
	}
	if share := 100 * passed / n; share < 68 || share > 72 {
		t.Errorf("%d%% pass the filter, want about 70%%", share)
	}
}

func TestSummaryIsTheLastObjectPrinted(t *testing.T) {
	s, err := parseSummary([]byte("{\"read\": 1}\n{\n  \"pipeline\": \"p\",\n  \"read\": 20,\n  \"written\": 15\n}\n"))
	if err != nil || s.Read != 20 || s.Written != 15 {
		t.Fatalf("summary = %+v, %v", s, err)
	}
	if _, err := parseSummary(nil); err == nil {
		t.Error("no summary is no error")
	}
}
