package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// OpenAdvice tells which key names a topic that cannot be written to. It implements
// connectors.OpenAdviser.
func (s *sink) OpenAdvice(err error) (key, help string) {
	if aboutTopic(err) {
		return "topic", ""
	}
	return "", ""
}

// Diagnose tells of the brokers, the topic with its copies, what its user may do, and of
// the pipeline's transactions. It implements connectors.Diagnoser.
func (s *sink) Diagnose(ctx context.Context, with *connectors.Diagnosis) {
	d := newDiagnosis(with, &s.conn, s.dials, s.admin)
	d.brokers(ctx)
	if s.topic != "" {
		if all, err := d.topics(ctx, []string{s.topic}); err != nil {
			d.Fail("topic "+s.topic, "topic", err, "")
		} else if len(all) == 1 {
			s.diagnoseTopic(d, &all[0])
		}
	}
	if s.set != nil {
		s.diagnoseLimits(d)
		s.diagnoseIDs(ctx, d)
	}
}

// diagnoseTopic reports whether the topic can be written to, and how safe it is there.
func (s *sink) diagnoseTopic(d *diagnosis, f *facts) {
	wanted := []kmsg.ACLOperation{kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe}
	if s.set != nil {
		wanted = append(wanted, kmsg.ACLOperationRead) // of the witness, an offset of the topic
	}
	if !d.usable(f, "topic", wanted...) {
		return
	}
	check := "topic " + f.name
	least := int(configNumber(f.config, "min.insync.replicas"))
	switch {
	case f.configError != nil:
		d.Warn(check, "topic", fmt.Sprintf("it can be written to; its settings are not known: %v", f.configError), "give this user DESCRIBE_CONFIGS on it, by which the sink learns the largest record that it takes")
		return
	case f.replicas > 1 && least < 2:
		d.Warn(check, "topic", fmt.Sprintf("it has %d copies, and one is enough for a record to count as written (min.insync.replicas %d): the loss of one broker can lose what was committed", f.replicas, least),
			"set min.insync.replicas of the topic to 2")
	case f.replicas > 1 && least >= f.replicas:
		d.Warn(check, "topic", fmt.Sprintf("it has %d copies and needs all of them (min.insync.replicas %d): while one broker is down nothing can be written", f.replicas, least),
			"lower min.insync.replicas, or add a copy")
	}
	limit := configNumber(f.config, "max.message.bytes")
	if own := int64(s.cfg.MaxRecordBytes); own > limit && limit > 0 {
		d.Warn(check, "max_record_bytes", fmt.Sprintf("max_record_bytes %s is above what the topic takes, max.message.bytes = %d: the broker refuses such records, and the pipeline stops", s.cfg.MaxRecordBytes, limit),
			"lower the one or raise the other")
	}
	text := fmt.Sprintf("%d partitions, %s, records up to %d bytes", f.parts, copiesText(f.replicas), limit)
	if s.fixed != nil && s.fixed.keyed {
		text += ", compacted: it takes no record without a key"
	}
	d.OK(check, text)
}

func copiesText(n int) string {
	if n == 1 {
		return "one copy, which is gone with its broker's disk"
	}
	return fmt.Sprintf("%d copies", n)
}

// diagnoseLimits compares how long a transaction may stay open with what it has to
// outlast.
func (s *sink) diagnoseLimits(d *diagnosis) {
	t := s.set
	t.mu.Lock()
	timeout := t.timeout
	t.mu.Unlock()
	text := fmt.Sprintf("the broker aborts one that is open for %s; checkpoints come every %s", span(timeout), span(s.env.Interval))
	if s.env.Interval > 0 && timeout < 3*s.env.Interval {
		d.Warn("transactions", "transaction_timeout", text+": a slow checkpoint or a restart makes the pipeline go back to an older one",
			"lengthen transaction_timeout, up to the broker's transaction.max.timeout.ms, or shorten checkpoint.interval")
		return
	}
	d.OK("transactions", text+", and the pipeline can be down for nearly as long without going back")
}

// diagnoseIDs reports on the right to the transactional ids, and on transactions that
// are open under them.
func (s *sink) diagnoseIDs(ctx context.Context, d *diagnosis) {
	id := slotID(s.set.prefix, 0)
	err := d.ask(ctx, "describe transactional id "+id, func(ctx context.Context) error {
		_, _, err := s.set.describe(ctx, id)
		return err
	})
	if err != nil {
		d.Fail("transactional ids", "transactional_id_prefix", err, "")
		return
	}
	open, err := (&Transactions{sink: s}).Others(ctx, nil)
	if err != nil {
		if mayNotList(err) {
			d.OK("transactional ids", s.set.prefix+".*; this user may not list those that are open")
			return
		}
		d.Fail("transactional ids", "transactional_id_prefix", err, "")
		return
	}
	if len(open) == 0 {
		d.OK("transactional ids", s.set.prefix+".*, none of them with an open transaction")
		return
	}
	oldest := open[0]
	for _, t := range open {
		if t.Begun.Before(oldest.Begun) {
			oldest = t
		}
	}
	age := time.Since(oldest.Begun).Round(time.Second)
	text := fmt.Sprintf("%s.*, %d open transactions, the oldest for %s (%s)", s.set.prefix, len(open), age, oldest.TransactionalID)
	if age < max(time.Minute, 3*s.env.Interval) {
		d.OK("transactional ids", text+", as a running pipeline has them")
		return
	}
	d.Warn("transactional ids", "transactional_id_prefix", fmt.Sprintf("%s: readers with read_committed wait behind it, and the broker aborts it at %s with what a checkpoint may have prepared in it", text, oldest.Expires.UTC().Format(time.RFC3339)),
		"start the pipeline before then; etl txn list shows which checkpoint it belongs to")
}

// mayNotList reports whether an error of listing transactions is about rights alone.
func mayNotList(err error) bool {
	refused := func(err error) bool {
		return errors.Is(err, kerr.ClusterAuthorizationFailed) || errors.Is(err, kerr.TransactionalIDAuthorizationFailed)
	}
	var shards *kadm.ShardErrors
	if !errors.As(err, &shards) {
		return refused(err)
	}
	for _, s := range shards.Errs {
		if !refused(s.Err) {
			return false
		}
	}
	return true
}
