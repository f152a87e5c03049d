package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/sluice-etl/sluice/connectors"
)

// transactionsV2 is the transaction.version from which on EndTxn raises the
// producer's epoch and requests add themselves to the transaction.
const transactionsV2 = 2

// oldTransactions are the versions for clusters below transactionsV2: the newer
// ones of these two requests mean its rules.
func oldTransactions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.EndTxn), 4)
	v.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 4)
	return v
}

// raw is the client for requests about a transaction of a version.
func (t *txnSet) raw(version int16) *kgo.Client {
	if version < transactionsV2 {
		return t.legacy
	}
	return t.admin
}

// readFeatures learns the cluster's transaction.version, and whether it can tell
// the state of a transaction at all.
func (t *txnSet) readFeatures(ctx context.Context) error {
	describes := false
	err := t.conn.ask(ctx, t.dials, "read the cluster's features", func(ctx context.Context) error {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "sluice", "1"
		resp, err := req.RequestWith(ctx, t.admin)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			return err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.version = 0
		for _, f := range resp.FinalizedFeatures {
			if f.Name == "transaction.version" {
				t.version = f.MaxVersionLevel
			}
		}
		for _, k := range resp.ApiKeys {
			describes = describes || k.ApiKey == int16(kmsg.DescribeTransactions)
		}
		return nil
	})
	if err == nil && !describes {
		return connectors.Permanent(fmt.Errorf("kafka %s cannot describe transactions: delivery exactly_once needs Kafka 3.0 or newer; set delivery: at_least_once", strings.Join(t.conn.brokers, ", ")))
	}
	return err
}

// Defaults of Kafka's brokers.
const (
	brokerMaxTransaction = 15 * time.Minute
	brokerOffsetsKept    = 7 * 24 * time.Hour
)

// readTimeouts settles the transaction timeout and learns how long offsets are
// kept. Where the user may not ask, Kafka's defaults are taken, and a refusal
// shows when the first transaction is opened.
func (t *txnSet) readTimeouts(ctx context.Context) error {
	limit, kept := brokerMaxTransaction, brokerOffsetsKept
	if c, err := t.brokerConfig(ctx); err == nil {
		if ms := configNumber(c, "transaction.max.timeout.ms"); ms > 0 {
			limit = time.Duration(ms) * time.Millisecond
		}
		if minutes := configNumber(c, "offsets.retention.minutes"); minutes > 0 {
			kept = time.Duration(minutes) * time.Minute
		}
	}
	t.keeps = kept
	t.timeout = min(limit, brokerMaxTransaction)
	if t.claimed > 0 {
		t.timeout = t.claimed
	}
	if t.timeout > limit {
		return connectors.Permanent(connectors.Advise("transaction_timeout", fmt.Errorf("transaction_timeout %v is above the limit of kafka %s, transaction.max.timeout.ms = %d",
			t.timeout, strings.Join(t.conn.brokers, ", "), limit.Milliseconds()), "lower the one or raise the other"))
	}
	return nil
}

func (t *txnSet) brokerConfig(ctx context.Context) (kadm.ResourceConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	adm := kadm.NewClient(t.admin)
	meta, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return kadm.ResourceConfig{}, err
	}
	if len(meta.Brokers) == 0 {
		return kadm.ResourceConfig{}, errors.New("no broker")
	}
	configs, err := adm.DescribeBrokerConfigs(ctx, meta.Brokers[0].NodeID)
	if err != nil {
		return kadm.ResourceConfig{}, err
	}
	if len(configs) == 0 {
		return kadm.ResourceConfig{}, errors.New("no answer")
	}
	return configs[0], configs[0].Err
}

// describe asks what a transactional id's coordinator knows. found is false
// where it has forgotten it.
func (t *txnSet) describe(ctx context.Context, id string) (d kadm.DescribedTransaction, found bool, err error) {
	got, err := kadm.NewClient(t.admin).DescribeTransactions(ctx, id)
	if err != nil {
		return d, false, err
	}
	d = got[id]
	if errors.Is(d.Err, kerr.TransactionalIDNotFound) {
		return d, false, nil
	}
	return d, d.Err == nil, d.Err
}

// endTxn asks once for a transaction to be committed, or aborted.
func (t *txnSet) endTxn(ctx context.Context, d *txnData, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = d.TransactionalID, d.ProducerID, d.Epoch, commit
	resp, err := req.RequestWith(ctx, t.raw(d.Version))
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// takeOver raises the epoch of a transactional id: its open transaction is
// aborted and whoever had it is fenced.
func (t *txnSet) takeOver(ctx context.Context, id string) error {
	for {
		t.mu.Lock()
		timeout := t.timeout
		t.mu.Unlock()
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = kmsg.StringPtr(id)
		req.TransactionTimeoutMillis = int32(timeout.Milliseconds())
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(ctx, t.admin)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case errors.Is(err, kerr.ConcurrentTransactions):
			if pause(ctx, 20*time.Millisecond) != nil {
				return err
			}
		case errors.Is(err, kerr.InvalidTransactionTimeout) && t.claimed == 0 && timeout > time.Minute:
			t.mu.Lock()
			t.timeout = timeout / 2
			t.mu.Unlock()
		default:
			return err
		}
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
