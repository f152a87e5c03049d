package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/kafka"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/storage"
)

// txnFlags are the flags of the commands about transactions.
type txnFlags struct {
	file    string
	brokers []string
	id      string
	yes     bool
	format  string
}

func (a *app) txnCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "txn",
		Short: "Lists, commits and aborts the Kafka transactions that a checkpoint refers to",
		Long: `Shows what has become of the Kafka transactions that a checkpoint refers to, and ends them by hand, by the producer id and epoch that
the checkpoint holds. A start of the pipeline does all of it by itself: these commands are for a pipeline that cannot be started, and
whose open transactions hold readers of committed records back.`,
		Example: "  etl txn list file:///var/lib/etl/orders/4f1c…/chk-860 -f orders.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		a.txnVerb("list", "Shows the transactions of a checkpoint, and open ones that no checkpoint refers to",
			`Shows each transaction that the checkpoint refers to, with its state on the broker, and the open ones under the pipeline's prefix that no
checkpoint refers to: those of a running process, or what one has left behind, which the next start takes back.`, a.listTransactions),
		a.txnVerb("commit", "Commits the open transactions of a checkpoint",
			`Commits the open transactions of a checkpoint, as a start that restores it would. The pipeline must not run.`,
			func(ctx context.Context, path string, f *txnFlags) error {
				return a.endTransactions(ctx, path, f, true)
			}),
		a.txnVerb("abort", "Aborts the open transactions of a checkpoint",
			`Aborts the open transactions of a checkpoint: its results are taken back. A start that restores it afterwards finds them lost and does what
checkpoint.on_lost_commit says: by default it goes back and writes them again. The pipeline must not run.`,
			func(ctx context.Context, path string, f *txnFlags) error {
				return a.endTransactions(ctx, path, f, false)
			}))
	return c
}

func (a *app) txnVerb(verb, short, long string, do func(context.Context, string, *txnFlags) error) *cobra.Command {
	f := &txnFlags{format: "text"}
	c := &cobra.Command{
		Use: verb + " PATH", Short: short, Long: long, Args: cobra.ExactArgs(1),
		Example: fmt.Sprintf("  etl txn %s /var/lib/etl/orders/4f1c…/chk-860 -f orders.yaml\n  etl txn %s s3://bucket/etl/orders/4f1c…/chk-860 --brokers kafka-1:9092", verb, verb),
		RunE: func(c *cobra.Command, args []string) error {
			switch f.format {
			case "json":
				a.json = true
			case "text":
			default:
				return usageError(fmt.Errorf("--format cannot be %q: write text or json", f.format))
			}
			return do(c.Context(), args[0], f)
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.file, "file", "f", "", "pipeline file whose kafka sinks say how to reach the cluster")
	fl.StringSliceVar(&f.brokers, "brokers", nil, "addresses of brokers, where no tls and no sasl is needed")
	fl.StringVar(&f.format, "format", f.format, "text or json")
	if verb != "list" {
		fl.StringVar(&f.id, "id", "", "only the transaction of this transactional id")
		fl.BoolVar(&f.yes, "yes", false, "do it; without this it is only shown what would be done")
	}
	return c
}

// txnWork is a checkpoint and the clusters of its transactions.
type txnWork struct {
	opened   *checkpoint.Opened
	survey   *checkpoint.Survey // nil for a checkpoint outside of its pipeline's folder
	clusters map[string]*kafka.Transactions
}

func (w *txnWork) close() {
	for _, t := range w.clusters {
		_ = t.Close()
	}
}

// txnWorkOf reads the checkpoint and connects to the clusters of its committables.
func (a *app) txnWorkOf(ctx context.Context, path string, f *txnFlags) (*txnWork, error) {
	if (f.file == "") == (len(f.brokers) == 0) {
		return nil, usageError(errors.New("give the pipeline file with -f, or --brokers"))
	}
	o, err := checkpoint.Inspect(ctx, path)
	if err != nil {
		return nil, failed(err)
	}
	w := &txnWork{opened: o, clusters: map[string]*kafka.Transactions{}}
	if w.survey, err = surveyOf(ctx, o); err != nil {
		return nil, failed(err)
	}
	configs, err := a.txnConfigs(o.Meta, f)
	if err != nil {
		return nil, err
	}
	origin := ""
	if w.survey != nil {
		origin = w.survey.Origin()
	}
	for _, c := range configs {
		t, err := kafka.OpenTransactions(ctx, c, o.Meta.Pipeline, origin, a.log)
		if err != nil {
			w.close()
			return nil, failed(err)
		}
		if w.clusters[t.ID()] != nil { // sinks on one cluster share their transactions
			_ = t.Close()
			continue
		}
		w.clusters[t.ID()] = t
	}
	for _, c := range o.Meta.Committables {
		if _, ours := kafka.Prefix(c.Committer); ours && !c.Empty && w.clusters[c.Committer] == nil {
			w.close()
			return nil, &codeError{code: exitPerson, err: fmt.Errorf("the checkpoint refers to transactions of %s (cluster and prefix), which is not where %s leads", c.Committer, source(f))}
		}
	}
	return w, nil
}

func source(f *txnFlags) string {
	if f.file != "" {
		return f.file
	}
	return strings.Join(f.brokers, ",")
}

// surveyOf looks at the folder of the checkpoint's pipeline; nil where it is elsewhere.
func surveyOf(ctx context.Context, o *checkpoint.Opened) (*checkpoint.Survey, error) {
	at := strings.TrimRight(o.Path, "/")
	for _, name := range []string{"", o.Meta.Job, o.Meta.Pipeline} { // the last two are known, the first is chk-N
		cut := strings.LastIndexByte(at, '/')
		if cut < 0 || name != "" && at[cut+1:] != name {
			return nil, nil
		}
		at = at[:cut]
	}
	fs, err := storage.Open(at)
	if err != nil {
		return nil, err
	}
	s, err := checkpoint.NewStore(fs, o.Meta.Pipeline, checkpoint.StoreOptions{})
	if err != nil {
		return nil, err
	}
	return s.Survey(ctx)
}

// txnConfigs are how the clusters are reached: by the sinks of the file, or else by
// the brokers, with the prefix that the checkpoint names.
func (a *app) txnConfigs(m *checkpoint.Metadata, f *txnFlags) ([]*kafka.SinkConfig, error) {
	if f.file == "" {
		c := kafka.NewSinkConfig()
		c.Brokers, c.TransactionalIDPrefix = f.brokers, m.Pipeline
		for _, one := range m.Committables {
			if prefix, ours := kafka.Prefix(one.Committer); ours {
				c.TransactionalIDPrefix = prefix
			}
		}
		return []*kafka.SinkConfig{c}, nil
	}
	p, faults := spec.Load(f.file, spec.Options{})
	if faults.HasErrors() {
		_ = faults.Print(a.err, a.color())
		return nil, &codeError{code: exitUsage, err: fmt.Errorf("%s is not valid", f.file), shown: true}
	}
	if p.Name != m.Pipeline {
		return nil, usageError(fmt.Errorf("%s is pipeline %s, and the checkpoint is of %s", f.file, p.Name, m.Pipeline))
	}
	var out []*kafka.SinkConfig
	for i := range p.Sinks {
		if c, ok := p.Sinks[i].Config.(*kafka.SinkConfig); ok && p.Sinks[i].Kind == "kafka" {
			if _, expires := c.Expiry(); expires != "" {
				out = append(out, c)
			}
		}
	}
	if len(out) == 0 {
		return nil, usageError(fmt.Errorf("%s has no kafka sink with delivery exactly_once", f.file))
	}
	return out, nil
}

// txnReport is what list prints.
type txnReport struct {
	Path         string              `json:"path"`
	Pipeline     string              `json:"pipeline"`
	Committed    bool                `json:"committed"` // the checkpoint's own marker
	Transactions []kafka.Transaction `json:"transactions"`
}

func (a *app) listTransactions(ctx context.Context, path string, f *txnFlags) error {
	w, err := a.txnWorkOf(ctx, path, f)
	if err != nil {
		return err
	}
	defer w.close()
	m := w.opened.Meta
	r := txnReport{Path: w.opened.Path, Pipeline: m.Pipeline, Committed: w.opened.Committed, Transactions: []kafka.Transaction{}}
	referenced := append([]connectors.Committable(nil), m.Committables...)
	if w.survey != nil {
		for _, c := range w.survey.Checkpoints {
			if c.Meta != nil {
				referenced = append(referenced, c.Meta.Committables...)
			}
		}
	}
	for _, t := range w.clusters {
		own, err := t.Look(ctx, m.Committables)
		if err != nil {
			return failed(err)
		}
		others, err := t.Others(ctx, referenced)
		if err != nil {
			return failed(err)
		}
		r.Transactions = append(append(r.Transactions, own...), others...)
	}
	return a.printAs(r, func(w *tabwriter.Writer) { r.write(w, time.Now()) })
}

func (r *txnReport) write(w *tabwriter.Writer, now time.Time) {
	marker := "no: a start commits what is open"
	if r.Committed {
		marker = "yes"
	}
	_, _ = fmt.Fprintf(w, "checkpoint\t%s\nproven by its marker\t%s\n\n", r.Path, marker)
	if len(r.Transactions) == 0 {
		_, _ = fmt.Fprintln(w, "no Kafka transactions")
		return
	}
	_, _ = fmt.Fprintln(w, "CHECKPOINT\tTRANSACTIONAL ID\tPRODUCER\tEPOCH\tSTATUS\tBROKER SAYS\tAGE\tENDS\tRECORDS\tPROVEN")
	for i := range r.Transactions {
		t := &r.Transactions[i]
		if t.Status == kafka.StatusNothing {
			_, _ = fmt.Fprintf(w, "%d\t-\t-\t-\tnothing to publish\n", t.Checkpoint)
			continue
		}
		from, age, ends, proven := "none", "-", "-", "no"
		if t.Referenced {
			from = strconv.FormatUint(t.Checkpoint, 10)
		}
		if !t.Begun.IsZero() {
			age = short(now.Sub(t.Begun))
		}
		if t.Status == kafka.StatusOpen {
			if ends = "in " + short(t.Expires.Sub(now)); now.After(t.Expires) {
				ends = "now"
			}
		}
		if t.Proven {
			proven = "yes"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\n", from, t.TransactionalID, t.ProducerID, t.Epoch, t.Status, t.State, age, ends, t.Records, proven)
	}
}

// endTransactions commits or aborts what the checkpoint refers to.
func (a *app) endTransactions(ctx context.Context, path string, f *txnFlags, commit bool) error {
	w, err := a.txnWorkOf(ctx, path, f)
	if err != nil {
		return err
	}
	defer w.close()
	if err := a.mayEnd(ctx, w, commit); err != nil {
		return &codeError{code: exitPerson, err: err}
	}
	r := txnReport{Path: w.opened.Path, Pipeline: w.opened.Meta.Pipeline, Committed: w.opened.Committed, Transactions: []kafka.Transaction{}}
	found := false
	for i := range w.opened.Meta.Committables {
		c := &w.opened.Meta.Committables[i]
		t := w.clusters[c.Committer]
		if t == nil || c.Empty {
			continue
		}
		seen, err := t.Look(ctx, []connectors.Committable{*c})
		if err != nil {
			return failed(err)
		}
		if f.id != "" && seen[0].TransactionalID != f.id {
			continue
		}
		found = true
		if f.yes {
			if seen[0], err = t.End(ctx, c, commit); err != nil {
				return &codeError{code: exitOf(err), err: err}
			}
		}
		r.Transactions = append(r.Transactions, seen...)
	}
	if f.id != "" && !found {
		return usageError(fmt.Errorf("the checkpoint refers to no transaction of %s", f.id))
	}
	if err := a.printAs(r, func(w *tabwriter.Writer) { r.write(w, time.Now()) }); err != nil {
		return err
	}
	if !f.yes && found {
		verb := map[bool]string{true: "commits", false: "aborts"}[commit]
		return usageError(fmt.Errorf("nothing is done yet: --yes %s the open ones", verb))
	}
	return nil
}

// mayEnd refuses what a running or a newer process decides, and what is decided.
func (a *app) mayEnd(ctx context.Context, w *txnWork, commit bool) error {
	m := w.opened.Meta
	if w.opened.Committed {
		return errors.New("the checkpoint's marker says that all of it is committed and proven: there is nothing to end")
	}
	processes, _ := web.Processes(ctx, web.RuntimeDirs(a.settings.RuntimeDir))
	for i := range processes {
		for _, s := range processes[i].Pipelines {
			if s.Name == m.Pipeline && s.Status != nil && s.Status.Phase != pipeline.Ended {
				return fmt.Errorf("pipeline %s runs on this machine, and ends its transactions itself: stop it first", m.Pipeline)
			}
		}
	}
	if w.survey == nil || !commit {
		return nil
	}
	if w.survey.Job != m.Job {
		return fmt.Errorf("job %s has taken the place of the checkpoint's job %s, and has decided about its transactions: look at its newest checkpoint instead (etl checkpoint list)", w.survey.Job, m.Job)
	}
	for i := range w.survey.Checkpoints {
		switch c := &w.survey.Checkpoints[i]; {
		case c.Number == m.Number && c.Orphan:
			return errors.New("a newer process went on from an older checkpoint and has written these results itself: committing them would publish them twice")
		case c.Number > m.Number && c.Complete && !c.Orphan:
			return fmt.Errorf("checkpoint %d is newer, and what it refers to comes after this one: name that one instead", c.Number)
		}
	}
	return nil
}
