package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-etl/sluice/connectors"
)

// regions makes rows whose topic is named by a slot, null where it is empty.
func regions(regions ...string) *connectors.Rows {
	rows := rowsOf(regions...)
	rows.Batch.SetStride(1)
	for i, r := range regions {
		v := connectors.NullValue()
		if r != "" {
			v = connectors.TextValue(connectors.String, []byte(r))
		}
		rows.Batch.Row(i)[0] = v
	}
	return rows
}

// refusals are the kinds and positions that a write refuses.
func refusedRows(t *testing.T, err error) string {
	t.Helper()
	var refused *connectors.RowsError
	if err == nil {
		return ""
	}
	if !errors.As(err, &refused) {
		t.Fatalf("write: %v", err)
	}
	var out []string
	for _, r := range refused.Rows {
		out = append(out, fmt.Sprintf("%d %s", r.Row, r.Kind))
	}
	return strings.Join(out, ", ")
}

func TestEachRowNamesItsTopic(t *testing.T) {
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			_, brokers := fake(t)
			prefix := topic(t, brokers, 1, nil) + "-"
			eu, us := prefix+"eu", prefix+"us"
			create(t, brokers, eu, 1, nil)
			small := "5000"
			create(t, brokers, us, 2, map[string]*string{"max.message.bytes": &small})
			change := func(c *SinkConfig, _ *connectors.SinkEnv) {
				c.Delivery, c.Topic = delivery, template(t, prefix+"{region}")
			}
			p := process(t, brokers, 1, change, prefix).start(1, nil)
			rows := regions("eu", "us", "", "nowhere", "no/topic", "eu")
			err := p.writers[0].Write(testContext(t), rows)
			if got := refusedRows(t, err); got != "2 topic, 3 topic, 4 topic" {
				t.Errorf("refused %s", got)
			}
			wantText(t, p.writers[0].Write(testContext(t), regions("nowhere")), "topic "+prefix+"nowhere does not exist")
			large := regions("us")
			large.Values[0] = make([]byte, 6000)
			if got := refusedRows(t, p.writers[0].Write(testContext(t), large)); got != "0 too_large" {
				t.Errorf("a record above the topic's own limit: refused %s", got)
			}
			cs := p.prepared(1, 1)
			if delivery == exactlyOnce {
				// A later process, which has written nothing, finds the witness.
				p.stop()
				p = process(t, brokers, 1, change, prefix)
				p.mustCommit(cs, true)
				w, ok, err := p.commit.Witness(testContext(t))
				if err != nil || !ok || w.Number != 1 {
					t.Errorf("witness %v %v %v", w, ok, err)
				}
				p.start(1, cs)
				if err := p.writers[0].Write(testContext(t), regions("us")); err != nil {
					t.Fatal(err)
				}
				p.mustCommit(p.prepared(2, 2), false)
			}
			p.stop()
			wantTopic(t, "eu", brokers, eu, []string{"eu", "eu"})
			want := []string{"us"}
			if delivery == exactlyOnce {
				want = []string{"us", "us"}
			}
			wantTopic(t, "us", brokers, us, want)
			all, err := kadm.NewClient(client(t, brokers)).ListTopics(testContext(t))
			if err != nil || slices.Contains(all.Names(), prefix+"nowhere") {
				t.Errorf("topics %v %v: one was created that nobody asked for", all.Names(), err)
			}
		})
	}
}

func TestTopicsThatRowsNameAreCreatedOnRequest(t *testing.T) {
	_, brokers := fake(t)
	prefix := topic(t, brokers, 1, nil) + "-"
	p := process(t, brokers, 1, func(c *SinkConfig, _ *connectors.SinkEnv) {
		c.Topic, c.CreateTopics = template(t, prefix+"{region}"), CreateConfig{Partitions: 3, Replication: 1, Max: 2}
	}, prefix).start(1, nil)
	defer p.stop()
	err := p.writers[0].Write(testContext(t), regions("a", "b", "c", "a"))
	if got := refusedRows(t, err); got != "2 topic" {
		t.Errorf("refused %s, want the row beyond create_topics.max", got)
	}
	wantText(t, err, "create_topics.max")
	p.mustCommit(p.prepared(1, 1), false)
	wantTopic(t, "a", brokers, prefix+"a", []string{"a", "a"})
	all, err := kadm.NewClient(client(t, brokers)).ListTopics(testContext(t))
	if err != nil || len(all[prefix+"b"].Partitions) != 3 {
		t.Errorf("topics %v %v", all, err)
	}
}

func TestATopicTemplateIsConfined(t *testing.T) {
	for s, reason := range map[string]string{
		"{region}":            "begin the name with fixed text",
		"_{region}":           "begin the name with fixed text",
		"__consumer{region}":  "begin the name with fixed text",
		"events {region}":     "no part of a topic name",
		"events-{region}/all": "no part of a topic name",
		"no topic":            "no topic name",
		"events-{region}":     "",
		"events-{a}.{b}":      "",
	} {
		c := newSinkConfig().(*SinkConfig)
		c.Brokers, c.Topic = []string{"localhost:9092"}, template(t, s)
		err := c.Validate()
		if reason == "" && err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if reason != "" {
			wantText(t, err, reason)
		}
	}
	c := newSinkConfig().(*SinkConfig)
	c.Brokers, c.Topic, c.CreateTopics.Partitions = []string{"localhost:9092"}, fixedTopic("fixed"), 3
	wantText(t, c.Validate(), "create_topics")
}
