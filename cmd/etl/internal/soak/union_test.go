//go:build integration

package soak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSoakTwoInputsOverRandomKills counts the records of two topics, joined by a union
// and dealt out by key, over kills: with exactly_once none is counted twice or left out;
// with at_least_once some may be counted twice.
func TestSoakTwoInputsOverRandomKills(t *testing.T) {
	for _, store := range checkpointStores {
		for _, mode := range []string{"exactly_once", "at_least_once"} {
			t.Run(store.name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				rng := random(t)
				clicks, views := newLedger(t, unique()+"-clicks"), newLedger(t, unique()+"-views")
				counts := unique() + "-counts"
				createTopic(t, counts)
				rate := unionRecords * int(time.Second) / (unionKills + 2) / int(meanLife)
				j := newPipeline(t, "union.yaml", store, "CLICKS="+clicks.topic, "VIEWS="+views.topic, "COUNTS="+counts,
					"MODE="+mode, "RATE="+strconv.Itoa(rate))
				want := map[string]int{}
				for _, l := range []*ledger{clicks, views} {
					if err := l.write(t.Context(), unionRecords/2); err != nil {
						t.Fatal(err)
					}
					for _, n := range l.counts {
						for i := range n {
							want[strconv.Itoa(i%100)]++
						}
					}
				}
				for i := range unionKills {
					if p := j.start(t); !p.killAfter(randomLife(rng)) {
						t.Fatalf("life %d ended by itself with exit code %d\n%s", i+1, p.code, p.tail())
					}
				}
				j.start(t).wait(2*patience+2*meanLife*unionKills, 0)
				var got map[string]int
				readCounts(t, counts, "k", func(rows []countRow) bool {
					got = map[string]int{}
					for _, row := range rows {
						got[row.key] = row.n
					}
					return len(got) == len(want) && !short(got, want)
				})
				twice := 0
				for k, n := range want {
					if got[k] < n {
						t.Errorf("%s is counted %d times, and is there %d times", k, got[k], n)
					}
					twice += got[k] - n
				}
				if len(got) > len(want) || mode == "exactly_once" && twice != 0 {
					t.Errorf("%d keys of %d, and %d records counted twice", len(got), len(want), twice)
				}
				t.Logf("%d records counted twice", twice)
			})
		}
	}
}

// short reports whether something is counted less often than it is there.
func short(got, want map[string]int) bool {
	for k, n := range want {
		if got[k] < n {
			return true
		}
	}
	return false
}

// countRow is a row of a topic of counts.
type countRow struct {
	key string
	n   int
}

// readCounts reads a topic of counts with the console consumer of Kafka's own
// distribution, committed records only, in order within a partition. The consumer ends
// when nothing has come for a while: where that is not enough, it is given longer.
func readCounts(t *testing.T, topic, key string, enough func(rows []countRow) bool) {
	t.Helper()
	for idle := 5 * time.Second; ; idle *= 2 {
		if enough(readCountsOnce(t, topic, key, idle)) || idle > 30*time.Second {
			return
		}
	}
}

func readCountsOnce(t *testing.T, topic, key string, idle time.Duration) (rows []countRow) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kafkaScript, "tool", "org.apache.kafka.tools.consumer.ConsoleConsumer",
		"--bootstrap-server", strings.Join(brokers(t), ","), "--topic", topic, "--from-beginning",
		"--isolation-level", "read_committed", "--timeout-ms", strconv.FormatInt(idle.Milliseconds(), 10))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// Its exit code tells of the time-out that ends every reading.
	_ = cmd.Run()
	if !strings.Contains(errs.String(), "Processed a total of") {
		t.Fatalf("read %s: %s", topic, errs.String())
	}
	for line := range bytes.Lines(out.Bytes()) {
		var row map[string]any
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("row %q: %v", line, err)
		}
		n, _ := row["n"].(float64)
		rows = append(rows, countRow{fmt.Sprint(row[key]), int(n)})
	}
	return rows
}
