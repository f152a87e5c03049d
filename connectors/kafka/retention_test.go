package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

func TestTheSourceKnowsHowLongTopicsKeepRecords(t *testing.T) {
	_, brokers := fake(t)
	day, compacted, hour := "86400000", "compact", "3600000"
	short := topic(t, brokers, 2, map[string]*string{"cleanup.policy": ptr("delete"), "retention.ms": &day})
	table := topic(t, brokers, 1, map[string]*string{"cleanup.policy": &compacted, "retention.ms": &day})
	forever := topic(t, brokers, 1, nil)
	s := newTestSource(t, brokers, nil, short, table, forever)
	now := time.Now()
	s.now = func() time.Time { return now }
	splits := splitsOf(t, s, nil)
	if _, known := s.Keeps(short + "/1"); known {
		t.Error("a source that was told nothing knows of retention")
	}
	discover := func() {
		t.Helper()
		if _, err := s.Discover(testContext(t), splits); err != nil {
			t.Fatal(err)
		}
	}
	discover()
	if d, known := s.Keeps(short + "/1"); !known || d != 24*time.Hour {
		t.Errorf("records are kept for %v, %v, want a day", d, known)
	}
	for _, name := range []string{table, forever} {
		if d, known := s.Keeps(name + "/0"); known {
			t.Errorf("%s keeps records for good, and is said to keep them for %v", name, d)
		}
	}
	setConfig(t, brokers, short, "retention.ms", hour)
	discover()
	if d, _ := s.Keeps(short + "/0"); d != 24*time.Hour {
		t.Errorf("it was asked again at once: %v", d)
	}
	now = now.Add(retentionEvery)
	discover()
	if d, _ := s.Keeps(short + "/0"); d != time.Hour {
		t.Errorf("after a change of the topic records are kept for %v, want an hour", d)
	}
}

func setConfig(t *testing.T, brokers []string, topic, key, value string) {
	t.Helper()
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value}
	if _, err := kadm.NewClient(client(t, brokers)).AlterTopicConfigs(testContext(t), []kadm.AlterConfig{change}, topic); err != nil {
		t.Fatal(err)
	}
}
