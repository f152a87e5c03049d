package transform

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/sluice-etl/sluice/connectors"
)

// SampleConfig is the block of a sample.
type SampleConfig struct {
	Fraction float64 `key:"fraction" doc:"The share of the records that stays, above 0 and up to 1. Which ones is decided by topic, partition and offset: the same at every run."`
	Every    int     `key:"every" doc:"One of so many records stays: those of each partition whose offset is a multiple of it."`
}

// Validate checks the block.
func (c *SampleConfig) Validate() error {
	switch {
	case c.Fraction != 0 && c.Every != 0:
		return &connectors.FieldError{Key: "every", Msg: "fraction and every exclude each other", Help: "keep one of them"}
	case c.Every < 0:
		return &connectors.FieldError{Key: "every", Msg: "one of a negative number of records cannot stay", Help: "write every: 10 for each tenth"}
	case c.Every > 0:
	case !(c.Fraction > 0 && c.Fraction <= 1):
		return &connectors.FieldError{Key: "fraction", Msg: "the share that stays must be above 0 and at most 1", Help: "write fraction: 0.01 for one of a hundred, or every: 100"}
	}
	return nil
}

func init() {
	Register(Spec{
		Name:      "sample",
		Doc:       "Lets a share of the records through.",
		NewConfig: func() any { return &SampleConfig{} },
		Build: func(config any, env *Env) Step {
			c := *config.(*SampleConfig)
			env.Output(env.In)
			s := &sample{every: int64(c.Every)}
			// 2^64 itself does not fit: everything stays then.
			if share := math.Ldexp(c.Fraction, 64); share < math.MaxUint64 {
				s.below = uint64(share)
			} else {
				s.below = math.MaxUint64
			}
			return s
		},
	})
}

type sample struct {
	every int64
	below uint64 // hashes below it stay
}

func (s *sample) Start(env RunEnv) Instance { return &sampleRun{sample: s, env: env} }

type sampleRun struct {
	*sample
	env RunEnv
	// made counts records that steps made, which have no offset.
	made   int64
	origin *connectors.Origin // of the last record
	prefix uint64             // hash of its topic and partition
}

// Process drops the rows that do not belong to the share.
func (s *sampleRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	n := 0
	for _, row := range sel {
		if s.stays(&b.Records[row]) {
			sel[n] = row
			n++
		}
	}
	if dropped := len(sel) - n; dropped > 0 {
		s.env.Dropped(dropped)
	}
	if n == 0 {
		return nil
	}
	return s.env.Emit(ctx, 0, b, sel[:n])
}

func (s *sampleRun) stays(r *connectors.Record) bool {
	offset := r.Offset
	if r.Origin == nil {
		offset = s.made
		s.made++
	}
	if s.every > 0 {
		return offset%s.every == 0
	}
	if r.Origin != s.origin {
		s.origin, s.prefix = r.Origin, 0
		if o := r.Origin; o != nil {
			s.prefix = xxhash.Sum64String(o.Topic) + uint64(o.Partition)
		}
	}
	var key [16]byte
	binary.LittleEndian.PutUint64(key[:], s.prefix)
	binary.LittleEndian.PutUint64(key[8:], uint64(offset))
	return s.below == math.MaxUint64 || xxhash.Sum64(key[:]) < s.below
}
