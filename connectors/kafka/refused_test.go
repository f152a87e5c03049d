package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-etl/sluice/connectors"
)

func TestRowsThatTheTopicsConfigurationRefusesAreRefusedOneByOne(t *testing.T) {
	_, brokers := fake(t)
	compact, hour := "compact", "3600000"
	out := topic(t, brokers, 1, map[string]*string{"cleanup.policy": &compact, "message.timestamp.after.max.ms": &hour})
	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	rows := rowsOf("a", "no key", "too late", "d")
	for i := range rows.Batch.Records {
		rows.Batch.Records[i].Key = []byte("k")
	}
	rows.Batch.Records[1].Key = nil
	rows.Batch.Records[2].Time = time.Now().Add(2 * time.Hour).UnixMilli()
	err := p.writers[0].Write(testContext(t), rows)
	var refused *connectors.RowsError
	if !errors.As(err, &refused) || len(refused.Rows) != 2 {
		t.Fatalf("write: %v, want rows 1 and 2 refused", err)
	}
	for i, kind := range []string{"key", "timestamp"} {
		if r := refused.Rows[i]; r.Row != i+1 || r.Kind != kind {
			t.Errorf("refused %+v, want row %d for its %s", r, i+1, kind)
		}
	}
	p.mustCommit(p.prepared(1, 1), false)
	wantTopic(t, "topic", brokers, out, []string{"a", "d"})
}

func TestARecordThatIsAlwaysRefusedStopsThePipeline(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.InvalidTimestamp, kerr.InvalidRecord} {
		t.Run(refusal.Message, func(t *testing.T) {
			c, brokers := fake(t)
			p := process(t, brokers, 1, nil, topic(t, brokers, 1, nil)).start(1, nil)
			defer p.stop()
			refuseProduce(c, func() *kerr.Error { return refusal })
			p.write(0, "never")
			_, err := p.checkpoint(1, 1)
			wantText(t, err, refusal.Message)
			if !connectors.IsPermanent(err) {
				t.Error("the error is not permanent: restarts would meet it for ever")
			}
		})
	}
}

func TestADeadLetterIsTakenWhateverItsTime(t *testing.T) {
	_, brokers := fake(t)
	hour := "3600000"
	out := topic(t, brokers, 1, map[string]*string{"message.timestamp.after.max.ms": &hour})
	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	rows := rowsOf("too late")
	rows.Batch.Records[0].Time = time.Now().Add(48 * time.Hour).UnixMilli()
	rows.DeadLetter = []*connectors.RecordError{{Step: "out", Reason: "too far from the clock", Kind: "timestamp"}}
	if err := p.writers[0].Write(testContext(t), rows); err != nil {
		t.Fatal(err)
	}
	p.mustCommit(p.prepared(1, 1), false)
	if got := fetchAll(t, brokers, out, 1)[0].Timestamp; got.After(time.Now().Add(time.Hour)) {
		t.Errorf("its time is %v, which the topic refuses", got)
	}
}
