package kafka

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-etl/sluice/connectors"
)

// trimmed is a topic with 20 records of which the first 10 are deleted.
func trimmed(t *testing.T, brokers []string) (string, []connectors.Split) {
	in := topic(t, brokers, 1, nil)
	send(t, manual(t, brokers), in, 0, numbers(0, 20)...)
	s := newTestSource(t, brokers, nil, in)
	splits := splitsOf(t, s, nil)
	offsets := kadm.Offsets{}
	offsets.AddOffset(in, 0, 10, -1)
	if _, err := kadm.NewClient(client(t, brokers)).DeleteRecords(testContext(t), offsets); err != nil {
		t.Fatal(err)
	}
	splits[0].Offset = 3
	return in, splits
}

func missingOffset(t *testing.T, brokers []string) {
	in, restored := trimmed(t, brokers)
	s := newTestSource(t, brokers, nil, in)
	splits := splitsOf(t, s, restored)
	r := readerOf(t, s, splits)
	defer r.Close()
	_, err := r.Poll(testContext(t))
	if !errors.Is(err, connectors.ErrMissingOffset) || !connectors.IsPermanent(err) {
		t.Fatalf("poll: %v, want a permanent ErrMissingOffset", err)
	}
	wantText(t, err, in, "partition 0", "wanted 3", "available 10 to 20", "on_missing_offset")
}

func missingOffsetPolicy(t *testing.T, brokers []string) {
	in, restored := trimmed(t, brokers)
	s := newTestSource(t, brokers, func(c *SourceConfig) { c.OnMissingOffset = "earliest" }, in)
	splits := splitsOf(t, s, restored)
	r := readerOf(t, s, splits)
	values, _ := drain(t, r, splits, 10)
	r.Close()
	wantSet(t, "earliest", values, numbers(10, 20))

	s = newTestSource(t, brokers, func(c *SourceConfig) { c.OnMissingOffset = "latest" }, in)
	r = readerOf(t, s, restored)
	defer r.Close()
	b, err := r.Poll(testContext(t))
	if err != nil || len(b.Records) != 0 || b.Next != 20 {
		t.Errorf("latest: %v, position %+v, want a move to 20 without records", err, b)
	}
	b.Recycle()
}

func recreate(t *testing.T, brokers []string, name string) {
	t.Helper()
	ctx := testContext(t)
	adm := kadm.NewClient(client(t, brokers))
	before := brokerTopicID(t, adm, name)
	if _, err := adm.DeleteTopic(ctx, name); err != nil {
		t.Fatal(err)
	}
	for created := false; ctx.Err() == nil; { // deletion goes on in the background
		if !created {
			_, err := adm.CreateTopic(ctx, 1, 1, nil, name)
			created = err == nil
			continue
		}
		// What was created is known to the controller; the broker hears of it a little later.
		if id := brokerTopicID(t, adm, name); id != before && id != (kadm.TopicID{}) {
			return
		}
	}
	t.Fatal("the topic cannot be created anew")
}

// brokerTopicID is the id that the broker gives for a topic now; zeros while it knows none.
func brokerTopicID(t *testing.T, adm *kadm.Client, name string) kadm.TopicID {
	t.Helper()
	topics, err := adm.ListTopics(testContext(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return topics[name].ID
}

func topicRecreated(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	s := newTestSource(t, brokers, nil, in)
	splits := splitsOf(t, s, nil)
	recreate(t, brokers, in)
	later := newTestSource(t, brokers, nil, in)
	_, err := later.Splits(testContext(t), splits)
	if !connectors.IsPermanent(err) {
		t.Fatalf("splits: %v, want a permanent error", err)
	}
	wantText(t, err, in, "created anew")
}

func topicRecreatedWhileRunning(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	send(t, manual(t, brokers), in, 0, "one")
	s := newTestSource(t, brokers, nil, in)
	splits := splitsOf(t, s, nil)
	r := readerOf(t, s, splits)
	defer r.Close()
	drain(t, r, splits, 1)
	recreate(t, brokers, in)
	send(t, manual(t, brokers), in, 0, "two")
	for ctx := testContext(t); ; {
		b, err := r.Poll(ctx)
		if err != nil {
			if !connectors.IsPermanent(err) {
				t.Errorf("poll: %v, want a permanent error", err)
			}
			wantText(t, err, in, "created anew")
			return
		}
		if len(b.Records) > 0 {
			t.Fatalf("read %q of the new topic", b.Records[0].Value)
		}
		b.Recycle()
	}
}

func newPartitions(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	send(t, manual(t, brokers), in, 0, "skipped")
	s := newTestSource(t, brokers, func(c *SourceConfig) {
		c.Start = Start{kind: startLatest}
		c.Discover = connectors.TimeSpan(time.Nanosecond)
	}, in)
	splits := splitsOf(t, s, nil)
	r := readerOf(t, s, splits)
	defer r.Close()
	ctx := testContext(t)
	if _, err := kadm.NewClient(client(t, brokers)).UpdatePartitions(ctx, 3, in); err != nil {
		t.Fatal(err)
	}
	send(t, manual(t, brokers), in, 2, "early in 2")
	fresh, err := s.Discover(ctx, splits)
	for ; err == nil && len(fresh) < 2 && ctx.Err() == nil; fresh, err = s.Discover(ctx, splits) {
	}
	if err != nil || len(fresh) != 2 || fresh[1].ID != splitID(in, 2) || fresh[1].Offset != 0 {
		t.Fatalf("discovered %+v, %v; want partitions 1 and 2 at 0", fresh, err)
	}
	if err := r.Add(fresh); err != nil {
		t.Fatal(err)
	}
	values, _ := drain(t, r, append(splits, fresh...), 1)
	wantSet(t, "values", values, []string{"early in 2"})

	bounded := newTestSource(t, brokers, func(c *SourceConfig) { c.Until = Until{kind: startLatest} }, in)
	if got := splitsOf(t, bounded, splits); len(got) != 1 {
		t.Errorf("a bounded run takes a later partition: %+v", got)
	}
}

func topicUnknown(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	// The nearest name of what is there, and not the other one that is not there either.
	s := newTestSource(t, brokers, nil, in+"ss", in+"s")
	_, err := s.Splits(testContext(t), nil)
	if !connectors.IsPermanent(err) {
		t.Fatalf("splits: %v, want a permanent error", err)
	}
	wantText(t, err, in+"s", "does not exist", "did you mean "+in+"?")
}

func knownTopicGone(t *testing.T, brokers []string) {
	in, other := topic(t, brokers, 1, nil), topic(t, brokers, 1, nil)
	s := newTestSource(t, brokers, nil, in, other)
	splits := splitsOf(t, s, nil)
	for i := range splits {
		splits[i].Offset = 7
	}
	adm := kadm.NewClient(client(t, brokers))
	if _, err := adm.DeleteTopic(testContext(t), in); err != nil {
		t.Fatal(err)
	}
	got := splitsOf(t, newTestSource(t, brokers, nil, in, other), splits)
	if len(got) != 2 || got[0].Offset != 7 || got[1].Offset != 7 {
		t.Errorf("splits %+v, want both at 7", got)
	}
	// Its reader goes on with the other topic and reports no error.
	for i := range got {
		got[i].Offset = 0
	}
	send(t, manual(t, brokers), other, 0, "one")
	r := readerOf(t, s, got)
	defer r.Close()
	values, _ := drain(t, r, got, 1)
	wantSet(t, "values", values, []string{"one"})
	ctx, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	if b, err := r.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("poll: %v, %v, want it to wait", b, err)
	}
}

func topicRemoved(t *testing.T, brokers []string) {
	in, other := topic(t, brokers, 1, nil), topic(t, brokers, 1, nil)
	splits := splitsOf(t, newTestSource(t, brokers, nil, in, other), nil)
	got := splitsOf(t, newTestSource(t, brokers, nil, other), splits)
	if len(got) != 1 || got[0].ID != splitID(other, 0) {
		t.Errorf("splits %+v, want that of %s", got, other)
	}
}

func patternFinds(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	create(t, brokers, in+"-b", 1, nil)
	create(t, brokers, "x-"+in, 1, nil)
	s := newTestSource(t, brokers, func(c *SourceConfig) { c.TopicPattern = regexp.QuoteMeta(in) + "(-.)?" })
	got := splitsOf(t, s, nil)
	if len(got) != 2 || got[0].ID != splitID(in, 0) || got[1].ID != splitID(in+"-b", 0) {
		t.Errorf("splits %+v", got)
	}
	s = newTestSource(t, brokers, func(c *SourceConfig) { c.TopicPattern = "nothing-" + regexp.QuoteMeta(in) })
	_, err := s.Splits(testContext(t), nil)
	wantText(t, err, "topic_pattern", "nothing-")
}

func noSplitsYet(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	send(t, manual(t, brokers), in, 0, "one")
	s := newTestSource(t, brokers, nil, in)
	r := readerOf(t, s, nil)
	defer r.Close()
	ctx, cancel := context.WithTimeout(testContext(t), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("poll: %v, want it to wait", err)
	}
	splits := splitsOf(t, s, nil)
	if err := r.Add(splits); err != nil {
		t.Fatal(err)
	}
	values, _ := drain(t, r, splits, 1)
	wantSet(t, "values", values, []string{"one"})
}
