package kafka

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

func checked(t *testing.T, s *source, splits []connectors.Split) []connectors.Availability {
	t.Helper()
	got, err := s.CheckPositions(testContext(t), splits)
	if err != nil || len(got) != len(splits) {
		t.Fatalf("positions %+v, %v", got, err)
	}
	return got
}

func positionsChecked(t *testing.T, brokers []string) {
	in, restored := trimmed(t, brokers) // has 10 to 20, wanted is 3
	s := newTestSource(t, brokers, nil, in)
	got := checked(t, s, restored)[0]
	if !errors.Is(got.Err, connectors.ErrMissingOffset) || !connectors.IsPermanent(got.Err) || got.First != 10 || got.End != 20 {
		t.Errorf("a position that was deleted: %+v", got)
	}
	wantText(t, got.Err, in, "wanted 3", "available 10 to 20")
	for policy, next := range map[string]int64{"earliest": 10, "latest": 20} {
		s := newTestSource(t, brokers, func(c *SourceConfig) { c.OnMissingOffset = policy }, in)
		if got := checked(t, s, restored)[0]; got.Err != nil || got.Next != next {
			t.Errorf("on_missing_offset: %s: %+v", policy, got)
		}
	}
	for offset, fine := range map[int64]bool{10: true, 20: true, 21: false} {
		restored[0].Offset = offset
		if got := checked(t, s, restored)[0]; (got.Err == nil) != fine || fine && got.Next != offset {
			t.Errorf("position %d: %+v", offset, got)
		}
	}
	restored[0].Offset, restored[0].Until = 3, 3
	if got := checked(t, s, restored)[0]; got.Err != nil {
		t.Errorf("one that is read to its end: %+v", got)
	}
	other := topic(t, brokers, 1, nil)
	splits := splitsOf(t, newTestSource(t, brokers, nil, other), nil)
	recreate(t, brokers, other)
	if got := checked(t, newTestSource(t, brokers, nil, other), splits)[0]; !connectors.IsPermanent(got.Err) {
		t.Errorf("a topic created anew: %+v", got)
	}
	splits[0].ID = splitID(in+"-gone", 0)
	if got := checked(t, s, splits)[0]; !got.Gone || got.Err != nil || got.Next != splits[0].Offset {
		t.Errorf("a topic that is not there: %+v", got)
	}
}

func changesCounted(t *testing.T, brokers []string) {
	in, restored := trimmed(t, brokers)
	ctx := testContext(t)
	s := newTestSource(t, brokers, func(c *SourceConfig) {
		c.OnMissingOffset, c.Discover = "earliest", connectors.TimeSpan(time.Nanosecond)
	}, in, topic(t, brokers, 1, nil))
	splits := splitsOf(t, s, restored)
	r := readerOf(t, s, splits)
	drain(t, r, splits, 10)
	r.Close()
	adm := kadm.NewClient(client(t, brokers))
	if _, err := adm.UpdatePartitions(ctx, 3, in); err != nil {
		t.Fatal(err)
	}
	for found := 0; found < 2 && ctx.Err() == nil; {
		fresh, err := s.Discover(ctx, splits)
		if err != nil {
			t.Fatal(err)
		}
		found, splits = found+len(fresh), append(splits, fresh...)
	}
	if _, err := adm.DeleteTopic(ctx, in); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for err := error(nil); err == nil && ctx.Err() == nil; _, err = s.Discover(ctx, splits) {
		}
	}
	want := map[string]int64{
		"topics_found": 1, "partitions_found": 2, "topics_gone": 1, "topics_recreated": 0,
		"offsets_missing": 1, "records_missed": 7, "log_truncated": 0,
	}
	if got := s.Counts(); !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}

func TestAPartitionThatDoesNotAnswerIsNotTakenForGone(t *testing.T) {
	c, brokers := fake(t)
	in := topic(t, brokers, 1, nil)
	s := newTestSource(t, brokers, nil, in)
	splits := splitsOf(t, s, nil)
	c.ControlKey(int16(kmsg.ListOffsets), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.ListOffsetsRequest)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewListOffsetsResponseTopic()
			st.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				sp := kmsg.NewListOffsetsResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.TopicAuthorizationFailed.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	if got, err := s.CheckPositions(testContext(t), splits); err == nil {
		t.Errorf("positions %+v of a partition whose offsets the broker does not tell", got)
	}
}
