package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
	"github.com/sluice-etl/sluice/pipeline"
)

func (a *app) statusCommand() *cobra.Command {
	var check, all bool
	c := &cobra.Command{
		Use:   "status [PIPELINE|FILE]",
		Short: "Says in words how a pipeline is: what is wrong, and what to do",
		Long: `Says in words how a pipeline is: what it is at and since when, what is wrong with it and what to do, what flows, where its sources
are and how far behind, its last checkpoints with sizes and times and why some failed, which step holds up the others, what its sinks have
published, and the last records that failed. Without a name it says how each pipeline is, and what is wrong.

The exit code is 0 where it can be said. With --check it tells how the pipelines are: 0 they are well, 1 one is not, 3 one needs a person.`,
		Example: `  etl status
  etl status orders
  etl status --check || mail -s "pipelines" ops@example.com < /dev/null`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.statusOfAll(c.Context(), check)
			}
			return a.statusOf(c.Context(), args[0], check, all)
		},
	}
	c.Flags().BoolVar(&check, "check", false, "tell by the exit code whether all is well")
	c.Flags().BoolVar(&all, "all", false, "show every partition, not only those that are furthest behind")
	return a.steers(c)
}

// overview is what is told of one pipeline. What could not be asked is nil.
type overview struct {
	Pipeline    *api.Pipeline      `json:"pipeline"`
	Flow        *pipeline.Flow     `json:"flow,omitempty"`
	Checkpoints *api.Checkpoints   `json:"checkpoints,omitempty"`
	Failures    []pipeline.Failure `json:"failures"`
}

// overviewOf asks for all that is known of a pipeline.
func overviewOf(ctx context.Context, client *web.Client, name string) (*overview, error) {
	o := &overview{Failures: []pipeline.Failure{}}
	var err error
	if o.Pipeline, err = client.Pipeline(ctx, name); err != nil {
		return nil, answerError(err)
	}
	// Of one that has not run, or does not run, there may be nothing more.
	if flow, err := client.Flow(ctx, name); err == nil {
		o.Flow = flow
	}
	if checkpoints, err := client.Checkpoints(ctx, name); err == nil {
		o.Checkpoints = checkpoints
	}
	if failures, err := client.Failures(ctx, name); err == nil && failures != nil {
		o.Failures = failures
	}
	return o, nil
}

func (a *app) statusOf(ctx context.Context, named string, check, all bool) error {
	t, err := a.find(ctx, named)
	if err != nil {
		return err
	}
	o, err := overviewOf(ctx, t.client, t.name)
	if err != nil {
		return err
	}
	if a.json {
		err = a.encode(o)
	} else {
		err = a.printLines(o.lines(time.Now(), all, a.paint()))
	}
	if err != nil || !check {
		return err
	}
	return checked([]api.Pipeline{*o.Pipeline})
}

func (a *app) statusOfAll(ctx context.Context, check bool) error {
	all, err := a.allPipelines(ctx)
	if err != nil {
		return err
	}
	if a.json {
		err = a.encode(all)
	} else {
		now, paint := time.Now(), a.paint()
		var lines []string
		for i := range all {
			lines = append(lines, headline(&all[i], now, paint))
			lines = append(lines, problemLines(&all[i], now, paint)...)
		}
		if len(all) == 0 {
			lines = []string{"there are no pipelines"}
		}
		err = a.printLines(lines)
	}
	if err != nil || !check {
		return err
	}
	return checked(all)
}

// checked is the exit code for how pipelines are, as an error that has been shown.
func checked(all []api.Pipeline) error {
	code := exitFine
	for i := range all {
		switch p := &all[i]; {
		case p.State == api.Failed || p.State == api.Invalid:
			code = exitPerson
		case !p.Health.OK:
			code = max(code, exitFailed)
		}
	}
	if code == exitFine {
		return nil
	}
	return &codeError{code: code, err: errors.New("not all is well"), shown: true}
}

// lines are all that is told of the pipeline.
func (o *overview) lines(now time.Time, all bool, paint painter) []string {
	p := o.Pipeline
	out := append([]string{headline(p, now, paint)}, problemLines(p, now, paint)...)
	out = append(out, factLines(p, now)...)
	if o.Checkpoints != nil {
		out = append(out, section("checkpoints", checkpointLines(o.Checkpoints, now, paint), paint)...)
	}
	if o.Flow != nil {
		out = append(out, section("sources", splitLines(o.Flow.Splits, now, all, paint), paint)...)
		out = append(out, section("steps", stepLines(o.Flow, paint), paint)...)
		out = append(out, section("sinks", sinkLines(o.Flow.Sinks, now, paint), paint)...)
	}
	return append(out, section("records that failed", failureLines(o.Failures, now, paint), paint)...)
}

// section is lines below a title, nothing where there are none.
func section(title string, lines []string, paint painter) []string {
	if len(lines) == 0 {
		return nil
	}
	return append([]string{"", paint(bold, title)}, lines...)
}

// said is what each state means to who reads it, %s being the pipeline's name.
var said = map[api.State]string{
	api.Invalid:    "invalid: its file has faults, and nothing of it runs",
	api.Starting:   "starting: nothing flows yet",
	api.Running:    "running",
	api.Restarting: "failed, and starts again by itself",
	api.Stopping:   "stopping: a last checkpoint is being taken",
	api.Paused:     "paused; etl resume %s goes on with it",
	api.Stopped:    "stopped; etl start %s begins its next job",
	api.Finished:   "finished: its input was read to the end",
	api.Failed:     "failed, and needs a person",
}

// headline is what a pipeline is at, and whether that is well.
func headline(p *api.Pipeline, now time.Time, paint painter) string {
	text := said[p.State]
	if text == "" {
		text = string(p.State)
	}
	if p.State == api.Stopped && p.Status != nil && p.Status.Outcome == pipeline.Cancelled {
		text = "cancelled; etl start %s --from PATH goes on from what it left, --from none begins anew"
	}
	if strings.Contains(text, "%s") {
		text = fmt.Sprintf(text, p.Name)
	}
	color := stateCell(p.State).color
	if p.State == api.Running {
		if p.Health.OK {
			text += ", and well"
		} else {
			text, color = text+", but not well", red
		}
	}
	return fmt.Sprintf("%s: %s %s", paint(bold, p.Name), paint(color, text), paint(faint, "(since "+agoText(p.Since, now)+")"))
}

// problemLines are what is wrong, why, and what to do.
func problemLines(p *api.Pipeline, now time.Time, paint painter) []string {
	var out []string
	told := false
	for _, one := range p.Health.Problems {
		mark := "✗"
		if one.Level != "error" {
			mark = "!"
		}
		told = told || p.Failure != "" && strings.Contains(one.Text, p.Failure)
		text := one.Kind
		if one.Step != "" {
			text += " " + one.Step
		}
		out = append(out, "  "+paint(levelColor(one.Level), mark+" "+text+": ")+inline(one.Text)+paint(faint, sinceText(one.Since, now)))
		if one.Help != "" {
			out = append(out, "      → "+inline(one.Help))
		}
	}
	if p.Failure != "" && !told {
		out = append(out, "  "+paint(red, "✗ why: ")+inline(p.Failure))
		if p.Help != "" {
			out = append(out, "      → "+inline(p.Help))
		}
	}
	if p.Pending != "" && !slices.ContainsFunc(p.Health.Problems, func(one api.Problem) bool { return one.Kind == "reload" }) {
		out = append(out, "  "+paint(yellow, "! change that is not taken over: ")+inline(p.Pending))
	}
	return out
}

func sinceText(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " (for " + agoText(t, now) + ")"
}

// inline keeps a text of several lines below its first.
func inline(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n        ")
}

// factLines are the figures of a pipeline, each after its name.
func factLines(p *api.Pipeline, now time.Time) []string {
	var out []string
	fact := func(name, text string) { out = append(out, fmt.Sprintf("  %-10s %s", name, text)) }
	if p.File != "" {
		fact("file", p.File)
	}
	if p.State == api.Invalid {
		return out
	}
	c := &p.Counts
	fact("read", fmt.Sprintf("%s/s, %s/s; %s since the start", rateText(p.ReadRate), sizeText(int64(p.ByteRate)), countText(c.Read)))
	fact("written", fmt.Sprintf("%s/s; %s since the start", rateText(p.WriteRate), countText(c.Written)))
	if c.Filtered+c.Skipped+c.Dead+c.Late > 0 {
		fact("left out", fmt.Sprintf("%s filtered, %s skipped, %s dead letters, %s late", countText(c.Filtered), countText(c.Skipped), countText(c.Dead), countText(c.Late)))
	}
	if works(p.State) {
		fact("lag", lagText(p))
	}
	if p.Guarantee != "" {
		fact("guarantee", p.Guarantee)
	}
	if p.Restarts > 0 {
		fact("restarts", strconv.Itoa(p.Restarts))
	}
	if s := p.Status; s != nil {
		if s.Job != "" {
			fact("job", fmt.Sprintf("%s, generation %d", s.Job, s.Generation))
		}
		if r := s.Restored; r != nil {
			fact("restored", fmt.Sprintf("checkpoint %d, %s old, took %s: %s", r.Number, agoText(r.Time, now), short(r.Took), r.Path))
		}
	}
	return out
}

// lagText is how far a pipeline is behind.
func lagText(p *api.Pipeline) string {
	if p.LagRecords < 0 {
		return "not known: no source tells what it has"
	}
	text := countText(p.LagRecords) + " records wait"
	if p.LagRecords == 0 {
		text = "none: all that there is has been read"
	}
	if p.LagSeconds >= 0 && p.LagRecords > 0 {
		text += ", the next one is " + secondsText(p.LagSeconds) + " old"
	}
	return text
}

// shownCheckpoints is how many of the last checkpoints are told.
const shownCheckpoints = 5

func checkpointLines(c *api.Checkpoints, now time.Time, paint painter) []string {
	var out []string
	if c.Interval > 0 {
		out = append(out, fmt.Sprintf("  every %s, given up after %s, %s; the newest %d are kept below %s", short(seconds(c.Interval)), short(seconds(c.Timeout)), c.Mode, c.Retained, c.Storage))
	}
	if c.FailedInARow > 0 {
		out = append(out, "  "+paint(red, fmt.Sprintf("the last %d failed one after the other", c.FailedInARow)))
	}
	if c.Completed > 0 {
		out = append(out, fmt.Sprintf("  %d taken, %d failed; they took %s (p50), %s (p99)", c.Completed, c.Failed, percentile(c.Duration, "p50"), percentile(c.Duration, "p99")))
	}
	history := append(append([]checkpoint.AttemptStats{}, c.History...), c.Earlier...)
	t := &grid{heading: []string{"NUMBER ", "STATUS", "KIND", "AGO ", "TOOK ", "SIZE ", "NEW ", "REASON"}}
	for i := range history[:min(len(history), shownCheckpoints)] {
		h := &history[i]
		status := cell{strings.ReplaceAll(string(h.Status), "_", " "), ""}
		if h.Status == checkpoint.Failed {
			status.color = red
		}
		reason, _, _ := strings.Cut(h.Failure, "\n")
		if h.Status == checkpoint.InProgress {
			reason = fmt.Sprintf("%d of %d tasks have acknowledged%s", h.Acked, len(h.Tasks), slowest(h))
		}
		t.add(plain(strconv.FormatUint(h.ID.Number, 10)), status, plain(string(h.Kind)), plain(agoText(h.Triggered, now)), plain(short(h.Duration)),
			plain(sizeText(h.Size)), plain(sizeText(h.NewSize)), plain(reason))
	}
	if len(t.rows) == 0 {
		return append(out, "  none yet")
	}
	return append(out, t.lines("  ", paint)...)
}

// slowest names a task that a checkpoint waits for.
func slowest(h *checkpoint.AttemptStats) string {
	for i := range h.Tasks {
		if !h.Tasks[i].Acked {
			return fmt.Sprintf("; it waits for subtask %d of %s", h.Tasks[i].Task.Subtask, h.Tasks[i].Task.Chain)
		}
	}
	return ""
}

func percentile(of map[string]float64, name string) string {
	s, ok := of[name]
	if !ok {
		return unknown
	}
	return short(seconds(s))
}
