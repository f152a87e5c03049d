package kafka

import (
	"errors"

	"github.com/sluice-etl/sluice/connectors"
)

// letters makes the source that reads the topic of a sink from its beginning to its end.
func (c *SinkConfig) letters() (connectors.ReadBack, error) {
	topic, fixed := c.Topic.Fixed()
	if !fixed {
		return connectors.ReadBack{}, &connectors.FieldError{
			Key: "topic", Msg: "dead letters need a fixed topic: what an expression reads may be what a refused record lacks, and nobody would know where they are",
			Help: "write a topic's name without {…}, such as dead-letters",
		}
	}
	src := newSourceConfig().(*SourceConfig)
	src.Brokers, src.Topics, src.TLS, src.SASL, src.Client = c.Brokers, []string{topic}, c.TLS, c.SASL, c.Client
	src.Until = Until{kind: startLatest}
	src.OnMissingOffset = "earliest" // what was deleted meanwhile cannot be brought back
	s, err := newSource(src)
	return connectors.ReadBack{
		Source: s,
		Same:   func(a, b connectors.Split) bool { return splitDetail(a).TopicID == splitDetail(b).TopicID },
	}, err
}

// beside is the configuration of a sink of another pipeline, which shares no transaction
// with this one's.
func (c *SinkConfig) beside(suffix string) *SinkConfig {
	other := *c
	if other.TransactionalIDPrefix != "" {
		other.TransactionalIDPrefix += suffix
	}
	return &other
}

// back makes a sink for each topic that is read.
func (c *SourceConfig) back() ([]connectors.Back, error) {
	if c.TopicPattern != "" {
		return nil, errors.New("it reads topics by a pattern: name them with topics")
	}
	var out []connectors.Back
	for _, topic := range c.Topics {
		sink := newSinkConfig().(*SinkConfig)
		sink.Brokers, sink.TLS, sink.SASL, sink.Client = c.Brokers, c.TLS, c.SASL, c.Client
		sink.Topic = connectors.Template{Text: topic, Parts: []connectors.TemplatePart{{Literal: topic}}}
		sink.Partition = connectors.Expr{Text: "meta.partition"}
		out = append(out, connectors.Back{Topic: topic, Sink: "kafka", Config: sink})
	}
	return out, nil
}
