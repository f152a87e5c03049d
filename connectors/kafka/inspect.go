package kafka

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// Transactions looks at what a pipeline prepared on a cluster, and ends it, beside
// the pipeline. It takes no transactional id over and fences nobody.
type Transactions struct{ sink *sink }

// Transaction is what is known of one.
type Transaction struct {
	Committer       string    `json:"committer,omitempty"`
	Checkpoint      uint64    `json:"checkpoint,omitempty"` // that prepared it; 0 for one that no checkpoint refers to
	Generation      uint64    `json:"generation,omitempty"`
	TransactionalID string    `json:"transactional_id"`
	ProducerID      int64     `json:"producer_id"`
	Epoch           int16     `json:"epoch"`
	Status          string    `json:"status"` // open, ending, committed, aborted, unknown, or empty for nothing to publish
	State           string    `json:"state"`  // as the broker calls it, of what the id is used for now
	Begun           time.Time `json:"begun,omitzero"`
	Expires         time.Time `json:"expires,omitzero"` // when the broker aborts it
	Records         int64     `json:"records,omitempty"`
	Proven          bool      `json:"proven"` // the witness says that it was committed
	Referenced      bool      `json:"referenced"`
	Topics          []string  `json:"topics,omitempty"`
}

// The values of Transaction.Status.
const (
	StatusNothing   = "empty"
	StatusOpen      = "open"
	StatusEnding    = "ending"
	StatusCommitted = "committed"
	StatusAborted   = "aborted"
	StatusUnknown   = "unknown"
)

// NewSinkConfig is a configuration that holds the defaults.
func NewSinkConfig() *SinkConfig { return newSinkConfig().(*SinkConfig) }

// Prefix is what the transactional ids of a committer begin with; ok is false for
// the committers of other sinks.
func Prefix(committer string) (prefix string, ok bool) {
	parts := strings.SplitN(committer, "/", 3)
	if len(parts) != 3 || parts[0] != "kafka" {
		return "", false
	}
	return parts[2], true
}

// OpenTransactions connects to the cluster of a sink. origin is that of the
// checkpoints' storage.
func OpenTransactions(ctx context.Context, c *SinkConfig, pipeline, origin string, log *slog.Logger) (*Transactions, error) {
	own := *c
	own.Topic, own.Delivery = connectors.Template{}, exactlyOnce
	s := newSink(&own).(*txnSink).sink
	err := s.Open(ctx, connectors.SinkEnv{
		Log: log, Pipeline: pipeline, Name: "kafka", Origin: func() string { return origin }, ReadOnly: true,
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Transactions{s}, nil
}

// ID is that of the committer whose transactions these are.
func (t *Transactions) ID() string { return t.sink.set.ID() }

// Close closes the connections.
func (t *Transactions) Close() error { return t.sink.Close() }

// Look tells of each committable of this committer what has become of it.
func (t *Transactions) Look(ctx context.Context, list []connectors.Committable) ([]Transaction, error) {
	var out []Transaction
	for i := range list {
		if list[i].Committer != t.ID() {
			continue
		}
		one, _, err := t.look(ctx, &list[i])
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func (t *Transactions) look(ctx context.Context, c *connectors.Committable) (Transaction, txnData, error) {
	set := t.sink.set
	one := Transaction{
		Committer: c.Committer, Checkpoint: c.Checkpoint.Number, Generation: c.Checkpoint.Generation,
		Expires: c.Expires, Records: c.Records, Referenced: true, Status: StatusNothing,
	}
	var d txnData
	if c.Empty {
		return one, d, nil
	}
	if err := json.Unmarshal(c.Data, &d); err != nil {
		return one, d, connectors.Permanent(fmt.Errorf("read the committable of checkpoint %d: %w", c.Checkpoint.Number, err))
	}
	one.TransactionalID, one.ProducerID, one.Epoch = d.TransactionalID, d.ProducerID, d.Epoch
	var desc kadm.DescribedTransaction
	var found, seen bool
	var w witness
	err := set.ask(ctx, "describe transaction "+d.TransactionalID, func(ctx context.Context) (err error) {
		if desc, found, err = set.describe(ctx, d.TransactionalID); err == nil {
			w, _, seen, err = set.readWitness(ctx, d.Group)
		}
		return err
	})
	if err != nil {
		return one, d, err
	}
	one.State = "not known"
	if found {
		one.State = desc.State
	}
	one.Proven = seen && w.proves(c.Checkpoint)
	switch status := stateOf(desc, found, &d); {
	case one.Proven || status == txnCommitted:
		one.Status = StatusCommitted
	case status == txnOpen && desc.State == "Ongoing":
		one.Status, one.Begun, one.Topics = StatusOpen, time.UnixMilli(desc.StartTimestamp), topicsOf(desc)
	case status == txnEnding:
		one.Status = StatusEnding
	case status == txnAborted, status == txnOpen:
		// Nothing of it is there any more: a prepared transaction is never empty.
		one.Status = StatusAborted
	default:
		one.Status = StatusUnknown
	}
	return one, d, nil
}

func topicsOf(d kadm.DescribedTransaction) []string {
	out := d.Topics.Topics()
	slices.Sort(out)
	return out
}

// Others are the transactions under the committer's prefix that are open and that no
// committable refers to: what a running process is writing, or what one left behind.
func (t *Transactions) Others(ctx context.Context, referenced []connectors.Committable) ([]Transaction, error) {
	set := t.sink.set
	known := map[txnKey]bool{}
	for i := range referenced {
		var d txnData
		if referenced[i].Committer == t.ID() && json.Unmarshal(referenced[i].Data, &d) == nil {
			known[txnKey{d.TransactionalID, d.ProducerID, d.Epoch}] = true
		}
	}
	var out []Transaction
	err := set.ask(ctx, "list transactions", func(ctx context.Context) error {
		adm := kadm.NewClient(set.admin)
		listed, err := adm.ListTransactions(ctx, nil, []string{"Ongoing"})
		if err != nil {
			return err
		}
		var ids []string
		for _, l := range listed {
			if _, ours := slotOf(set.prefix, l.TxnID); ours {
				ids = append(ids, l.TxnID)
			}
		}
		if out = nil; len(ids) == 0 {
			return nil
		}
		described, err := adm.DescribeTransactions(ctx, ids...)
		if err != nil {
			return err
		}
		for id, d := range described {
			if d.Err == nil && d.State == "Ongoing" && !known[txnKey{id, d.ProducerID, d.ProducerEpoch}] {
				begun := time.UnixMilli(d.StartTimestamp)
				out = append(out, Transaction{
					Committer: t.ID(), TransactionalID: id, ProducerID: d.ProducerID, Epoch: d.ProducerEpoch, Status: StatusOpen, State: d.State,
					Begun: begun, Expires: begun.Add(time.Duration(d.TimeoutMillis) * time.Millisecond), Topics: topicsOf(d),
				})
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Transaction) int { return cmp.Compare(a.TransactionalID, b.TransactionalID) })
	return out, err
}

// txnKey is one transactional id in one use of it.
type txnKey struct {
	id    string
	pid   int64
	epoch int16
}

// End commits or aborts what a committable refers to, as a restore commits it: by the
// producer id and epoch that it names. It is done only where the transaction is open.
func (t *Transactions) End(ctx context.Context, c *connectors.Committable, commit bool) (Transaction, error) {
	one, d, err := t.look(ctx, c)
	if err != nil {
		return one, err
	}
	want := map[bool]string{true: StatusCommitted, false: StatusAborted}[commit]
	switch {
	case one.Status == StatusNothing || one.Status == want:
		return one, nil
	case one.Status != StatusOpen && one.Status != StatusEnding:
		return one, connectors.Permanent(fmt.Errorf("transaction %s of checkpoint %d is %s (%s at the broker): it can be %s no more",
			d.TransactionalID, c.Checkpoint.Number, one.Status, one.State, want))
	}
	if commit {
		// The next start proves it by the same steps.
		if err := t.sink.set.resolve(ctx, *c, &d, true); err != nil {
			return one, err
		}
		one.Status, one.Proven = StatusCommitted, true
		return one, nil
	}
	if err := t.abort(ctx, &d); err != nil {
		return one, err
	}
	again, _, err := t.look(ctx, c)
	if err == nil && (again.Status == StatusOpen || again.Status == StatusCommitted) {
		return again, fmt.Errorf("transaction %s is %s after the broker was told to abort it", d.TransactionalID, again.Status)
	}
	again.Status = StatusAborted
	return again, err
}

// abort sends EndTxn until the coordinator has carried it out, or refuses it.
func (t *Transactions) abort(ctx context.Context, d *txnData) error {
	set := t.sink.set
	return set.ask(ctx, "abort transaction "+d.TransactionalID, func(ctx context.Context) error {
		for {
			err := set.endTxn(ctx, d, false)
			if err == nil {
				// The markers are written after the answer.
				for {
					desc, found, err := set.describe(ctx, d.TransactionalID)
					if err != nil || !found || desc.State != "PrepareAbort" {
						return err
					}
					if pause(ctx, coordinatorRetry) != nil {
						return kerr.ConcurrentTransactions
					}
				}
			}
			if !errors.Is(err, kerr.ConcurrentTransactions) && !kerr.IsRetriable(err) || errors.Is(err, kgo.ErrClientClosed) {
				return err
			}
			if perr := pause(ctx, coordinatorRetry); perr != nil {
				return errors.Join(err, perr)
			}
		}
	})
}
