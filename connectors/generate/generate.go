// Package generate is the source that makes records up, for demos and for load.
// Each record is a pure function of its partition and offset, so that a pipeline
// that goes on from a checkpoint sees what it would have seen.
package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Config is the block of a generate source.
type Config struct {
	Kind       string  `key:"kind" doc:"What the records are: sequence numbers, or bids of an auction of about 200 bytes." enum:"sequence|bid"`
	Count      int64   `key:"count" doc:"How many records to make over all partitions; 0 never ends."`
	Rate       float64 `key:"rate" doc:"Records a second over all partitions; 0 as fast as they are taken."`
	Partitions int64   `key:"partitions" doc:"How many partitions the records come in."`
	StartTime  string  `key:"start_time" doc:"Event time of the first record, RFC 3339; each next one is 1/rate later, 1 ms without a rate."`
}

// maxPartitions bounds what one source keeps positions of.
const maxPartitions = 1 << 16

// Validate reports every key that is out of its range.
func (c *Config) Validate() error {
	var faults []error
	fault := func(key, msg string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg})
	}
	if c.Kind != "sequence" && c.Kind != "bid" {
		fault("kind", fmt.Sprintf("%q is neither sequence nor bid", c.Kind))
	}
	if c.Count < 0 {
		fault("count", "cannot be negative")
	}
	if !(c.Rate >= 0 && c.Rate <= 1e9) {
		fault("rate", "must be between 0 and 1e9 records a second")
	}
	if c.Partitions < 1 || c.Partitions > maxPartitions {
		fault("partitions", fmt.Sprintf("must be between 1 and %d", maxPartitions))
	}
	if _, err := time.Parse(time.RFC3339, c.StartTime); err != nil {
		fault("start_time", fmt.Sprintf("%q is no time such as 2026-01-01T00:00:00Z", c.StartTime))
	}
	return errors.Join(faults...)
}

func init() {
	connectors.RegisterSource(connectors.SourceSpec{
		Name:    "generate",
		Example: "generate:\n  rate: 10\n",
		Doc:     "Makes up records at a given rate, the same ones each time: for demos and for load.",
		NewConfig: func() any {
			return &Config{Kind: "sequence", Partitions: 1, StartTime: "2026-01-01T00:00:00Z"}
		},
		New: func(config any) (connectors.Source, error) {
			c, ok := config.(*Config)
			if !ok {
				return nil, fmt.Errorf("generate source: configuration is a %T", config)
			}
			return New(*c)
		},
		Bounded: func(config any) bool { c, ok := config.(*Config); return ok && c.Count > 0 },
	})
}

// Source makes records up.
type Source struct {
	config  Config
	start   int64         // event time of the first record, ms
	step    time.Duration // event time between two records of the whole source
	origins []connectors.Origin
}

var _ connectors.Source = (*Source)(nil)

// New makes a source of a configuration that Validate accepts.
func New(c Config) (*Source, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	start, err := time.Parse(time.RFC3339, c.StartTime)
	if err != nil {
		return nil, fmt.Errorf("parse start_time: %w", err)
	}
	s := &Source{config: c, start: start.UnixMilli(), step: time.Millisecond}
	if c.Rate > 0 {
		s.step = max(1, time.Duration(float64(time.Second)/c.Rate))
	}
	s.origins = make([]connectors.Origin, c.Partitions)
	for p := range s.origins {
		s.origins[p] = connectors.Origin{Topic: "generate", Partition: int32(p)}
	}
	return s, nil
}

// splitID names partition p of a source of n: another number of partitions
// makes other records, which must not go on from the old positions.
func splitID(p, n int64) string { return fmt.Sprintf("generate/%d-of-%d", p, n) }

// Splits lists the partitions. A checkpoint of another number of partitions is
// refused.
func (s *Source) Splits(_ context.Context, restored []connectors.Split) ([]connectors.Split, error) {
	n := s.config.Partitions
	if restored != nil {
		if err := s.check(restored); err != nil {
			return nil, err
		}
		return restored, nil
	}
	splits := make([]connectors.Split, n)
	for p := range n {
		until := int64(-1)
		if s.config.Count > 0 {
			until = s.config.Count / n
			if p < s.config.Count%n {
				until++
			}
		}
		splits[p] = connectors.Split{ID: splitID(p, n), Until: until}
	}
	return splits, nil
}

func (s *Source) check(restored []connectors.Split) error {
	if int64(len(restored)) != s.config.Partitions {
		return connectors.Permanent(fmt.Errorf("restore generate source: the checkpoint has %d partitions, the pipeline file says %d; other partitions make other records, so set partitions: %d or start anew",
			len(restored), s.config.Partitions, len(restored)))
	}
	for _, split := range restored {
		if _, err := s.partition(split.ID); err != nil {
			return err
		}
	}
	return nil
}

// partition is the number of the partition that a split is.
func (s *Source) partition(id string) (int64, error) {
	var p, n int64
	if _, err := fmt.Sscanf(id, "generate/%d-of-%d", &p, &n); err != nil || n != s.config.Partitions || p < 0 || p >= n {
		return 0, connectors.Permanent(fmt.Errorf("restore generate source: split %q is none of the %d partitions", id, s.config.Partitions))
	}
	return p, nil
}

// Discover finds nothing: the partitions are fixed.
func (s *Source) Discover(context.Context, []connectors.Split) ([]connectors.Split, error) {
	return nil, nil
}

// Committed does nothing.
func (s *Source) Committed(context.Context, []connectors.Split) error { return nil }

// Close does nothing.
func (s *Source) Close() error { return nil }

// Reader makes the reader of some of the partitions.
func (s *Source) Reader(env connectors.ReaderEnv, splits []connectors.Split) (connectors.Reader, error) {
	r := &reader{source: s, batches: env.Batches}
	if err := r.Add(splits); err != nil {
		return nil, err
	}
	return r, nil
}
