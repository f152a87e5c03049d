package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/pipeline"
)

// shownSplits is how many splits are told unless all are asked for, those that are
// furthest behind first.
const shownSplits = 10

func splitLines(splits []pipeline.SplitFlow, now time.Time, all bool, paint painter) []string {
	sorted := slices.Clone(splits)
	if !all {
		slices.SortStableFunc(sorted, func(x, y pipeline.SplitFlow) int { return cmp.Compare(y.Behind, x.Behind) })
	}
	left := 0
	if !all && len(sorted) > shownSplits {
		left = len(sorted) - shownSplits
		sorted = sorted[:shownSplits]
	}
	if len(sorted) == 0 {
		return nil
	}
	t := &grid{heading: []string{"SOURCE", "PARTITION", "POSITION ", "WAIT ", "BEHIND ", "WATERMARK ", "IS"}}
	for i := range sorted {
		s := &sorted[i]
		t.add(plain(s.Source), plain(s.Split), plain(strconv.FormatInt(s.Position, 10)), plain(countText(s.Behind)), plain(secondsText(s.BehindSeconds)),
			plain(watermarkText(s.Watermark, now)), splitIs(s))
	}
	out := t.lines("  ", paint)
	if left > 0 {
		out = append(out, fmt.Sprintf("  and %d more that are less behind: --all shows them", left))
	}
	return out
}

// splitIs is what a split is at in words.
func splitIs(s *pipeline.SplitFlow) cell {
	var words []string
	color := ""
	if s.RetentionSeconds >= 0 && s.RetentionSeconds < retentionSoon.Seconds() && s.Behind > 0 {
		words, color = append(words, "next record is removed in "+secondsText(s.RetentionSeconds)), red
	}
	if s.Idle {
		words = append(words, "idle")
	}
	if s.Paused {
		words = append(words, "held back by max_drift")
	}
	if s.CaughtUp {
		words = append(words, "caught up")
	}
	return cell{strings.Join(words, ", "), color}
}

// retentionSoon is when it is told that a topic is about to remove the next record.
const retentionSoon = 24 * time.Hour

// watermarkText is how far a watermark is behind the clock.
func watermarkText(ms *int64, now time.Time) string {
	if ms == nil {
		return unknown
	}
	return agoText(time.UnixMilli(*ms), now)
}

// chainLoad is how the subtasks of one chain spend their time, the busiest of each.
type chainLoad struct {
	chain               string
	subtasks            int
	busy, blocked, idle float64
	queued, queue       int64
}

// loads are the chains in the order in which records come to them.
func loads(f *pipeline.Flow) []chainLoad {
	var out []chainLoad
	at := map[string]int{}
	for _, t := range f.Tasks {
		i, ok := at[t.Chain]
		if !ok {
			i = len(out)
			at[t.Chain] = i
			out = append(out, chainLoad{chain: t.Chain, idle: 1})
		}
		l := &out[i]
		l.subtasks++
		l.busy, l.blocked, l.idle = max(l.busy, t.Busy), max(l.blocked, t.Backpressured), min(l.idle, t.Idle)
		l.queued, l.queue = l.queued+t.Queued, l.queue+t.Queue
	}
	return out
}

// holdsUp is the chain that the ones before it wait for: the last one that is busy
// while another one is held up. Empty where nothing is.
func holdsUp(all []chainLoad) string {
	held, name := false, ""
	for _, l := range all {
		if held && l.blocked < heldUp && l.busy >= heldUp {
			name = l.chain
		}
		held = held || l.blocked >= heldUp
	}
	return name
}

// heldUp is the share of its time from which on a task counts as held up, or as busy.
const heldUp = 0.5

func stepLines(f *pipeline.Flow, paint painter) []string {
	var out []string
	all := loads(f)
	slow := holdsUp(all)
	if slow != "" {
		out = append(out, "  "+paint(yellow, slow+" holds up those before it: it is busy while they wait for it"))
	}
	if lines := loadTable(all, slow).lines("  ", paint); len(all) > 0 {
		out = append(out, lines...)
	}
	for i := range f.Operators {
		o := &f.Operators[i]
		reasons := make([]string, 0, len(o.Errors))
		for _, key := range sortedKeys(o.Errors) {
			reasons = append(reasons, fmt.Sprintf("%s %s", countText(o.Errors[key]), key))
		}
		if len(reasons) > 0 {
			out = append(out, "  "+paint(yellow, "! "+o.Name+": ")+"records failed: "+strings.Join(reasons, ", "))
		}
	}
	return out
}

func loadTable(all []chainLoad, slow string) *grid {
	t := &grid{heading: []string{"STEP", "SUBTASKS ", "BUSY ", "HELD UP ", "WAITING ", "QUEUED "}}
	for _, l := range all {
		name := plain(l.chain)
		if l.chain == slow {
			name.color = yellow
		}
		queued := unknown
		if l.queue > 0 {
			queued = shareText(float64(l.queued) / float64(l.queue))
		}
		t.add(name, plain(strconv.Itoa(l.subtasks)), plain(shareText(l.busy)), plain(shareText(l.blocked)), plain(shareText(l.idle)), plain(queued))
	}
	return t
}

func sinkLines(sinks []pipeline.SinkFlow, now time.Time, paint painter) []string {
	if len(sinks) == 0 {
		return nil
	}
	t := &grid{heading: []string{"SINK", "GUARANTEE", "OPEN ", "OLDEST ", "COMMITS ", "RETRIES ", "LAST ", "ERROR"}}
	for i := range sinks {
		s := &sinks[i]
		oldest, last := unknown, unknown
		if s.OldestPending != nil {
			oldest = agoText(*s.OldestPending, now)
		}
		if s.LastCommit != nil {
			last = agoText(*s.LastCommit, now)
		}
		text, _, _ := strings.Cut(s.LastError, "\n")
		t.add(plain(s.Sink), plain(string(s.Guarantee)), plain(strconv.Itoa(s.Pending)), plain(oldest), plain(countText(s.Commits)), plain(countText(s.Retries)), plain(last), cell{text, red})
	}
	return t.lines("  ", paint)
}

// shownFailures is how many records that failed are told.
const shownFailures = 5

func failureLines(failures []pipeline.Failure, now time.Time, paint painter) []string {
	var out []string
	for i := range failures[:min(len(failures), shownFailures)] {
		f := &failures[i]
		out = append(out, fmt.Sprintf("  %s ago %s at %s (%s): %s %s", agoText(f.Time, now), recordName(f), f.Operator, f.Kind, inline(f.Reason), paint(faint, "→ "+outcomeText(f.Outcome))))
	}
	if n := len(failures) - shownFailures; n > 0 {
		out = append(out, fmt.Sprintf("  and %d before them: --json shows them", n))
	}
	return out
}

// recordName is where a record is from, as etl skip takes it.
func recordName(f *pipeline.Failure) string {
	if f.Topic == "" || f.Partition < 0 || f.Offset < 0 {
		return "a record"
	}
	return position{f.Topic, f.Partition, f.Offset}.String()
}

// outcomeText is what became of a record that failed.
func outcomeText(outcome string) string {
	switch outcome {
	case "fail":
		return "the pipeline stopped"
	case "skip":
		return "left out"
	case "dead_letter":
		return "sent to the dead letters"
	}
	return outcome
}
