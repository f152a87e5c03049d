package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// ID implements connectors.Committer: the cluster's id and the prefix.
func (t *txnSet) ID() string { return t.id }

// commitPatience is how long a commit is tried before its failure is told.
const commitPatience = 15 * time.Second

// Commit implements connectors.Committer. In the process that prepared c the
// client's own EndTransaction is tried, once: after an answer that got lost the
// client would only abort. From then on, and in any other process, EndTxn is sent
// as it is, with the producer id and epoch that c names, until the answer, or
// else the witness, decides.
func (t *txnSet) Commit(ctx context.Context, c connectors.Committable, restored bool) error {
	t.commits.Lock()
	defer t.commits.Unlock()
	if c.Empty {
		t.noteResolved(c.Checkpoint, restored)
		return nil
	}
	var d txnData
	if err := json.Unmarshal(c.Data, &d); err != nil {
		return connectors.Permanent(fmt.Errorf("read the committable of checkpoint %d: %w", c.Checkpoint.Number, err))
	}
	iv := t.live(c.Checkpoint, &d)
	if iv != nil && iv.committed {
		return nil
	}
	t.crash("kafka.endtxn.before")
	kept := t.endByClient(ctx, iv)
	var err error
	if !kept {
		err = t.resolve(ctx, c, &d, restored)
	}
	t.crash("kafka.endtxn.after")
	if err != nil {
		return err
	}
	t.noteCommitted(c.Checkpoint, restored)
	if iv != nil {
		t.free(iv, kept)
	}
	return nil
}

// endByClient has the client that wrote an interval commit it, and reports whether it did.
func (t *txnSet) endByClient(ctx context.Context, iv *interval) bool {
	// Without records the client would end nothing, and say that it did.
	if iv == nil || iv.ended || !t.stream.hasRecords(iv) {
		return false
	}
	iv.ended = true
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	return iv.client.EndTransaction(ctx, kgo.TryCommit) == nil
}

// live is the interval of this process that a committable is of, or nil.
func (t *txnSet) live(id connectors.CheckpointID, d *txnData) *interval {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, iv := range t.pending {
		if iv.id == id && iv.slot != nil && iv.slot.id == d.TransactionalID {
			return iv
		}
	}
	return nil
}

// free gives back the slot of a committed interval. Its client goes on unless
// the commit went past it, which it does not know of.
func (t *txnSet) free(iv *interval, kept bool) {
	if !kept {
		t.discard(iv.slot)
	}
	t.mu.Lock()
	iv.committed = true
	t.mu.Unlock()
	t.release(iv.slot)
}

func (t *txnSet) noteResolved(id connectors.CheckpointID, restored bool) {
	if !restored {
		return
	}
	t.mu.Lock()
	t.through = resolved(t.through, id)
	t.mu.Unlock()
}

func (t *txnSet) noteCommitted(id connectors.CheckpointID, restored bool) {
	t.noteResolved(id, restored)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !restored && compareIDs(id, t.witness.CheckpointID) > 0 {
		t.witness.CheckpointID, t.witness.At = id, t.now().Unix()
	}
}

// resolve finds out or brings about that c is committed, or that it never will be.
func (t *txnSet) resolve(ctx context.Context, c connectors.Committable, d *txnData, restored bool) error {
	ctx, cancel := context.WithTimeout(ctx, commitPatience)
	defer cancel()
	what := fmt.Sprintf("commit transaction %s of checkpoint %d", d.TransactionalID, c.Checkpoint.Number)
	var last error // before the time ran out
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		var outcome error
		_, err := t.reach(ctx, func(ctx context.Context) (err error) {
			outcome, err = t.attempt(ctx, what, c, d, restored)
			return err
		})
		if err == nil {
			return outcome
		}
		if final, help := denied(err); final || connectors.IsPermanent(err) {
			return connectors.Permanent(fmt.Errorf("%s: %w %s", what, err, help))
		}
		if errors.Is(err, kgo.ErrClientClosed) {
			return fmt.Errorf("%s: the sink is closed: %w", what, err)
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		// Refusals such as PRODUCER_FENCED show in the next description.
		if pause(ctx, wait) != nil {
			return t.conn.explain(t.dials, what, last)
		}
	}
}

// attempt looks at a transaction once, and tries to commit it where it is open. The
// outcome is final: nil for committed, else why it never will be. An error says that it
// is not known yet.
func (t *txnSet) attempt(ctx context.Context, what string, c connectors.Committable, d *txnData, restored bool) (outcome, err error) {
	// The order matters: a witness read after the transaction was seen ended is
	// there if it was committed.
	desc, found, err := t.describe(ctx, d.TransactionalID)
	if err != nil {
		return nil, err
	}
	w, _, seen, err := t.readWitness(ctx, d.Group)
	if err != nil || seen && w.proves(c.Checkpoint) {
		return nil, err
	}
	switch stateOf(desc, found, d) {
	case txnAborted:
		return fmt.Errorf("%s: %w: the broker aborted it, its transaction_timeout ended at %s; the last commit is %s",
			what, connectors.ErrLost, c.Expires.Format(time.RFC3339), describeWitness(w, seen)), nil
	case txnGone:
		return t.verdict(what, c, d, w, seen, restored), nil
	case txnOpen:
		return nil, t.endTxn(ctx, d, true)
	case txnEnding:
		return nil, kerr.ConcurrentTransactions
	}
	return nil, nil // committed
}

// What is known of a transaction from its description.
type txnStatus uint8

const (
	txnOpen      txnStatus = iota // it can be committed, or repeated
	txnEnding                     // the coordinator is at it
	txnCommitted                  // it was
	txnAborted                    // its records are gone
	txnGone                       // its id was used on, or forgotten
)

// stateOf reads a description against what was prepared. The end of a
// transaction raises the epoch by one where the cluster's transactions are of
// version 2, and so does an abort by timeout.
func stateOf(desc kadm.DescribedTransaction, found bool, d *txnData) txnStatus {
	if !found || desc.ProducerID != d.ProducerID {
		return txnGone
	}
	same, next := desc.ProducerEpoch == d.Epoch, desc.ProducerEpoch == d.Epoch+1
	switch {
	case !same && !next:
		return txnGone
	case desc.State == "PrepareCommit":
		return txnEnding
	case desc.State == "PrepareAbort" || desc.State == "CompleteAbort" || desc.State == "PrepareEpochFence":
		return txnAborted
	case desc.State == "CompleteCommit" && (same || d.Version >= transactionsV2):
		return txnCommitted
	case same && (desc.State == "Ongoing" || desc.State == "Empty"):
		return txnOpen
	}
	return txnGone
}

// verdict decides about a transaction whose id was used on or forgotten and that
// the newest witness does not prove. A witness that is missing proves something
// only as long as it would have been kept.
func (t *txnSet) verdict(what string, c connectors.Committable, d *txnData, w witness, seen, restored bool) error {
	const margin = time.Hour
	newer := seen && (w.foreign || w.Generation > c.Checkpoint.Generation)
	expired := !seen && t.now().After(d.Prepared.Add(d.WitnessKept-margin))
	switch {
	case newer || expired:
		return fmt.Errorf("%s: %w: its id was used on and the last commit is %s", what, connectors.ErrAmbiguous, describeWitness(w, seen))
	case restored:
		return fmt.Errorf("%s: %w: it was aborted when its id was used on; the last commit is %s", what, connectors.ErrLost, describeWitness(w, seen))
	}
	return fmt.Errorf("%s: %w: another process took its id over; the last commit is %s", what, connectors.ErrFenced, describeWitness(w, seen))
}

func describeWitness(w witness, seen bool) string {
	if !seen {
		return "not on record"
	}
	text := fmt.Sprintf("checkpoint %d of generation %d", w.Number, w.Generation)
	if w.foreign {
		text += fmt.Sprintf(" of pipeline %s with another checkpoint storage, which uses the same transactional_id_prefix", w.Pipeline)
	}
	return text
}

// Witness implements connectors.Committer. A commit that the cluster has accepted
// and is still carrying out is waited for.
func (t *txnSet) Witness(ctx context.Context) (connectors.CheckpointID, bool, error) {
	var w witness
	var ok bool
	err := t.ask(ctx, "read the witness in group "+t.group(), func(ctx context.Context) error {
		err := t.settled(ctx)
		if err == nil {
			w, _, ok, err = t.readWitness(ctx, t.group())
		}
		return err
	})
	if err == nil && ok && w.foreign {
		return connectors.CheckpointID{}, false, &connectors.ForeignWitnessError{
			Mark: fmt.Sprintf("%s/%d/%d", w.Origin, w.Generation, w.Number),
			Text: fmt.Sprintf("the last commit under the prefix %s is %s", t.prefix, describeWitness(w, true)),
		}
	}
	return w.CheckpointID, ok, err
}

// settled waits until no transaction of the pipeline is being committed.
func (t *txnSet) settled(ctx context.Context) error {
	ids := make([]string, 0, len(t.slots))
	for _, s := range t.slots {
		ids = append(ids, s.id)
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		got, err := kadm.NewClient(t.admin).DescribeTransactions(ctx, ids...)
		if err != nil {
			return err
		}
		ending := false
		for _, d := range got {
			if d.Err != nil && !errors.Is(d.Err, kerr.TransactionalIDNotFound) {
				return d.Err
			}
			ending = ending || d.State == "PrepareCommit"
		}
		if !ending {
			return nil
		}
		if pause(ctx, wait) != nil {
			return kerr.ConcurrentTransactions
		}
	}
}

// Revoke implements connectors.Committer: it takes over all transactional ids of
// the pipeline, which aborts what is open in them and fences whoever had them. An
// id whose open transaction a retained checkpoint holds is left alone and not
// used.
func (t *txnSet) Revoke(ctx context.Context, keep []connectors.Committable) error {
	ids := make([]string, 0, len(t.slots))
	for _, s := range t.slots {
		ids = append(ids, s.id)
	}
	for _, id := range t.strayIDs(ctx) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	kept, err := t.kept(ctx, keep)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(ids))
	for i, id := range ids {
		wg.Go(func() {
			defer connectors.Recovered(&errs[i])
			errs[i] = t.revoke(ctx, id, kept[id])
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, connectors.IsPermanent); i >= 0 {
		return errs[i] // which is the same for all ids
	}
	return errors.Join(errs...)
}

// kept are the transactions, by id, that retained checkpoints hold and that are
// not known to be committed. Those that are do not count: their id can be open
// again with what came after, and in clusters below transactionsV2 under the same
// epoch.
func (t *txnSet) kept(ctx context.Context, keep []connectors.Committable) (map[string][]txnData, error) {
	var w witness
	err := t.ask(ctx, "read the witness in group "+t.group(), func(ctx context.Context) error {
		err := t.settled(ctx)
		if err == nil {
			w, _, _, err = t.readWitness(ctx, t.group())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	here := witness{Through: slices.Clone(t.through)}
	t.mu.Unlock()
	out := map[string][]txnData{}
	for _, c := range keep {
		var d txnData
		if c.Committer != t.id || c.Empty || w.proves(c.Checkpoint) || here.proves(c.Checkpoint) || json.Unmarshal(c.Data, &d) != nil {
			continue
		}
		out[d.TransactionalID] = append(out[d.TransactionalID], d)
	}
	return out, nil
}

func (t *txnSet) revoke(ctx context.Context, id string, kept []txnData) error {
	return t.ask(ctx, "take over transactional id "+id, func(ctx context.Context) error {
		if len(kept) > 0 {
			desc, found, err := t.describe(ctx, id)
			if err != nil {
				return err
			}
			for i := range kept {
				if desc.State == "Ongoing" && stateOf(desc, found, &kept[i]) == txnOpen {
					t.reserve(id)
					return nil
				}
			}
		}
		return t.takeOver(ctx, id)
	})
}

// reserve keeps an id from being used.
func (t *txnSet) reserve(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.slots {
		if s.id == id {
			s.busy = true
		}
	}
	t.log.Warn("a kafka transaction of a retained checkpoint is still open, its id stays unused until the next start", "transactional_id", id)
}

// strayIDs are transactional ids of this pipeline that the cluster knows, such as
// those of a run with more slots. Where the list cannot be had, there are none.
func (t *txnSet) strayIDs(ctx context.Context) []string {
	var out []string
	err := t.ask(ctx, "list transactions", func(ctx context.Context) error {
		listed, err := kadm.NewClient(t.admin).ListTransactions(ctx, nil, nil)
		for _, l := range listed {
			if _, ours := slotOf(t.prefix, l.TxnID); ours {
				out = append(out, l.TxnID)
			}
		}
		return err
	})
	if err != nil {
		t.log.Warn("kafka transactions cannot be listed: those of a run with more slots end by their timeout", "err", err)
	}
	return out
}

// begin readies the set for records, after Revoke.
func (t *txnSet) begin(ctx context.Context, restored connectors.Restored) error {
	var place witnessPlace
	for _, p := range restored.Subtasks {
		var st txnState
		if len(p.State) > 0 && json.Unmarshal(p.State, &st) == nil && st.Witness.Topic != "" {
			place = st.Witness
		}
	}
	err := t.ask(ctx, "read the witness in group "+t.group(), func(ctx context.Context) error {
		return t.placeWitness(ctx, place)
	})
	if err != nil {
		return err
	}
	t.mu.Lock()
	topic := t.place.Topic
	t.mu.Unlock()
	if topic == "" {
		return nil // the first row names it
	}
	// An offset of a topic can be committed only by those who may read it.
	return t.conn.checkTopics(ctx, t.dials, t.admin, []string{topic}, kmsg.ACLOperationRead)
}

// Done implements connectors.Committer. The slot of a transaction that was given
// up, and not committed, is freed too: its id begins anew.
func (t *txnSet) Done(n connectors.CheckpointID) {
	t.commits.Lock()
	defer t.commits.Unlock()
	t.mu.Lock()
	var givenUp []*interval
	t.pending = slices.DeleteFunc(t.pending, func(iv *interval) bool {
		done := compareIDs(iv.id, n) <= 0
		if done && iv.slot != nil && !iv.committed {
			givenUp = append(givenUp, iv)
		}
		return done
	})
	t.mu.Unlock()
	for _, iv := range givenUp {
		t.free(iv, false)
	}
}
