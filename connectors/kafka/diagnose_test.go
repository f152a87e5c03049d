package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// findings are what a Diagnoser reports, by check.
func findings(t *testing.T, of any, reach time.Duration) map[string]connectors.Finding {
	t.Helper()
	out := map[string]connectors.Finding{}
	of.(connectors.Diagnoser).Diagnose(testContext(t), &connectors.Diagnosis{
		Reach: reach, Timeout: time.Minute, Report: func(f connectors.Finding) { out[f.Check] = f },
	})
	return out
}

func wantFinding(t *testing.T, all map[string]connectors.Finding, check string, level connectors.Level, text string) {
	t.Helper()
	if f := all[check]; f.Level != level || !strings.Contains(f.Detail, text) {
		t.Errorf("%s: found %+v, want %s and %q", check, f, level, text)
	}
}

func diagnosedSource(t *testing.T, brokers []string, change func(c *SourceConfig)) *source {
	t.Helper()
	c := newSourceConfig().(*SourceConfig)
	c.Brokers = brokers
	change(c)
	s, err := newSource(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func diagnosedSink(t *testing.T, brokers []string, topic string, env connectors.SinkEnv) connectors.Sink {
	t.Helper()
	c := sinkTo(brokers, topic)
	s := newSink(c)
	t.Cleanup(func() { _ = s.Close() })
	env.Pipeline, env.Name, env.Subtasks, env.ReadOnly = "p-"+topic, "sink", 1, true
	if err := s.Open(testContext(t), env); err != nil {
		t.Fatal(err)
	}
	return s
}

func sinkTo(brokers []string, topic string) *SinkConfig {
	c := newSinkConfig().(*SinkConfig)
	c.Brokers = brokers
	c.Topic = connectors.Template{Text: topic, Parts: []connectors.TemplatePart{{Literal: topic}}}
	return c
}

func TestTheDiagnosisOfASourceKnowsItsTopics(t *testing.T) {
	_, brokers := fake(t)
	week := "604800000"
	in := topic(t, brokers, 3, map[string]*string{"cleanup.policy": ptr("delete"), "retention.ms": &week})
	s := diagnosedSource(t, brokers, func(c *SourceConfig) { c.Topics, c.Group = []string{in}, "lag" })
	all := findings(t, s, time.Hour)
	wantFinding(t, all, "brokers", connectors.LevelOK, "1 of 1 reached, Kafka ")
	wantFinding(t, all, "topics", connectors.LevelOK, "1 with 3 partitions in all can be read; a pipeline that is down for longer than 7d loses records of "+in)
	wantFinding(t, all, "group", connectors.LevelOK, "lag")
	all = findings(t, s, 30*24*time.Hour)
	wantFinding(t, all, "topic "+in, connectors.LevelWarning, "records are kept for 7d (retention.ms), and a restore can go back 30d")
	if key, _ := s.OpenAdvice(unknownTopic("x", &s.conn, nil)); key != "topics" {
		t.Errorf("a topic that is not there is told of key %q", key)
	}
}

func ptr(s string) *string { return &s }

// withRights makes a cluster tell of its topics that a user may do only that.
func withRights(c *kfake.Cluster, rights int32, change func(t *kmsg.MetadataResponseTopic)) {
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		m := req.(*kmsg.MetadataRequest)
		if !m.IncludeTopicAuthorizedOperations || len(m.Topics) == 0 {
			return nil, nil, false
		}
		resp := m.ResponseKind().(*kmsg.MetadataResponse)
		for i := range m.Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.AuthorizedOperations = m.Topics[i].Topic, rights
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Replicas = []int32{0, 1, 2}
			topic.Partitions = append(topic.Partitions, p)
			if change != nil {
				change(&topic)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
}

const mayDescribe = 1 << kmsg.ACLOperationDescribe

func TestRightsThatATopicLacksAreNamed(t *testing.T) {
	c, brokers := fake(t)
	name := topic(t, brokers, 1, nil)
	source := diagnosedSource(t, brokers, func(c *SourceConfig) { c.Topics = []string{name} })
	sink := diagnosedSink(t, brokers, name, connectors.SinkEnv{})
	withRights(c, mayDescribe, nil)
	all := findings(t, source, 0)
	wantFinding(t, all, "topic "+name, connectors.LevelFailed, "no right to READ it")
	if f := all["topic "+name]; f.Key != "topics" || !strings.Contains(f.Advice, "--operation READ") {
		t.Errorf("found %+v", f)
	}
	wantFinding(t, findings(t, sink, 0), "topic "+name, connectors.LevelFailed, "no right to WRITE and READ it")
}

func TestATopicWithoutLeadersAndOneCopyThatIsEnoughAreTold(t *testing.T) {
	for text, change := range map[string]func(t *kmsg.MetadataResponseTopic){
		"1 of 1 partitions have no leader":                func(t *kmsg.MetadataResponseTopic) { t.Partitions[0].Leader = -1 },
		"it has 3 copies, and one is enough for a record": nil,
	} {
		c, brokers := fake(t)
		name := topic(t, brokers, 1, map[string]*string{"min.insync.replicas": ptr("1")})
		sink := diagnosedSink(t, brokers, name, connectors.SinkEnv{})
		withRights(c, -1<<31, change)
		var texts []string
		sink.(connectors.Diagnoser).Diagnose(testContext(t), &connectors.Diagnosis{Report: func(f connectors.Finding) {
			if f.Level != connectors.LevelOK {
				texts = append(texts, f.Detail)
			}
		}})
		if len(texts) != 1 || !strings.Contains(texts[0], text) {
			t.Errorf("found %q, want %q", texts, text)
		}
	}
}

func TestTheDiagnosisOfASinkKnowsItsTransactions(t *testing.T) {
	_, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	sink := diagnosedSink(t, brokers, out, connectors.SinkEnv{Interval: 10 * time.Second})
	all := findings(t, sink, 0)
	wantFinding(t, all, "topic "+out, connectors.LevelOK, "1 partitions, one copy")
	wantFinding(t, all, "transactions", connectors.LevelOK, "open for 15m; checkpoints come every 10s")
	wantFinding(t, all, "transactional ids", connectors.LevelOK, "none of them with an open transaction")

	slow := diagnosedSink(t, brokers, out, connectors.SinkEnv{Interval: 10 * time.Minute})
	wantFinding(t, findings(t, slow, 0), "transactions", connectors.LevelWarning, "go back to an older one")

	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	p.write(0, "a")
	if _, err := p.checkpoint(1, 1); err != nil {
		t.Fatal(err)
	}
	other := newSink(sinkTo(brokers, out))
	t.Cleanup(func() { _ = other.Close() })
	if err := other.Open(testContext(t), connectors.SinkEnv{Pipeline: "p-" + out, Subtasks: 1, ReadOnly: true, Interval: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, findings(t, other, 0), "transactional ids", connectors.LevelOK, "1 open transactions, the oldest for")
}

func TestARefusedGroupFailsTheDiagnosis(t *testing.T) {
	c, brokers := fake(t)
	in := topic(t, brokers, 1, nil)
	c.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.ErrorCode = "lag", kerr.GroupAuthorizationFailed.Code
		resp.Groups = append(resp.Groups, g)
		return resp, nil, true
	})
	s := diagnosedSource(t, brokers, func(c *SourceConfig) { c.Topics, c.Group = []string{in}, "lag" })
	wantFinding(t, findings(t, s, 0), "group", connectors.LevelFailed, "GROUP_AUTHORIZATION_FAILED")
}
