package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// When something counts as a problem.
const (
	lagWindow       = time.Minute      // in which lag has to grow
	leastLag        = 1000             // records that lag has to have grown by
	stuckAfter      = 30 * time.Second // without a record read while there are some
	idleAfter       = time.Minute      // without a record, while other splits have some
	slowBarrier     = 10 * time.Second // on its way through the tasks
	lateIntervals   = 3                // without a completed checkpoint
	retentionSoon   = time.Hour
	retentionUrgent = 10 * time.Minute
	commitSlow      = time.Minute
	restartWindow   = 10 * time.Minute
	mostRestarts    = 3 // in it
	mostBusy        = 0.5
)

// finder collects the problems of one look at a running pipeline.
type finder struct {
	now     time.Time
	spec    *spec.Pipeline
	control *pipeline.Control
	status  pipeline.Status
	flow    pipeline.Flow
	stats   checkpoint.Stats
	desc    *pipeline.Description
	found   []api.Problem
}

func (f *finder) add(kind, level, step, text, help string) {
	f.found = append(f.found, api.Problem{Kind: kind, Level: level, Step: step, Text: text, Help: help, Since: f.now})
}

// outages tell of systems that cannot be reached.
func (f *finder) outages() {
	for _, o := range f.control.Outages() {
		level, kind, help := levelError, "broker", "check that it runs and can be reached from here; the pipeline goes on by itself once it answers"
		text := fmt.Sprintf("%s cannot be reached since %s: %s", o.What, clock(o.Since), o.Error)
		if o.Starting {
			text = fmt.Sprintf("it waits to start since %s: %s: %s", clock(o.Since), o.What, o.Error)
		}
		if o.Part {
			level = levelWarning
		}
		if k, h := cause(o.Error); k != "" {
			kind, help = k, h
		}
		f.add(kind, level, "", text, help)
	}
}

func clock(t time.Time) string { return t.Format(time.TimeOnly) }

// renew is what to do about credentials that do not count any more.
const renew = "renew the credentials that its file or the environment names, and see that they may do this"

// denials are what systems say to who may not do something, in lower case.
var denials = []string{
	"expiredtoken", "token has expired", "credentials have expired", "expired credentials", "invalidaccesskeyid", "signaturedoesnotmatch",
	"invalidtoken", "accessdenied", "access denied", "access key id you provided does not exist", "sasl authentication", "sasl_authentication",
	"authentication failed", "password authentication", "not authorized", "unauthorized", "authorization failed", "status 401", "status 403", "statuscode: 401", "statuscode: 403", "certificate has expired",
	"expired certificate", "permission denied for", "kerberos", "ticket expired", "login failed",
}

// deniesAccess reports whether an error is about credentials or rights.
func deniesAccess(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(denials, func(d string) bool { return strings.Contains(text, d) })
}

// fills are what stores without room say, in lower case.
var fills = []string{"no space left", "quota", "storagefull", "xminiostoragefull", "insufficientstorage", "insufficient storage", "disk full", "status 507", "statuscode: 507", "dsquotaexceeded"}

// makeRoom is what to do about a store that is full.
const makeRoom = "make room there or raise its quota; the pipeline goes on by itself once there is some"

// isFull reports whether an error is about a store without room.
func isFull(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(fills, func(s string) bool { return strings.Contains(text, s) })
}

// fileFaults are what an operating system says of a file or folder that cannot be used, in lower case.
var fileFaults = []string{"read-only file system", "permission denied", "no such file or directory", "not a directory"}

// cause is the kind of an error of a system that is tried again, and what to do about
// it; empty for one that its text does not tell.
func cause(text string) (kind, help string) {
	switch low := strings.ToLower(text); {
	case deniesAccess(text):
		return "credentials", renew
	case isFull(text):
		return "storage", makeRoom
	case slices.ContainsFunc(fileFaults, func(s string) bool { return strings.Contains(low, s) }):
		return "storage", "see that the folder is there and that the daemon may write to it; the pipeline goes on by itself once it may"
	}
	return "", ""
}

// checkpoints tell of those that fail or do not come.
func (f *finder) checkpoints() {
	interval := f.spec.Checkpoint.Interval
	if n := f.stats.FailedInARow; n > 0 {
		level := levelWarning
		if n >= 2 {
			level = levelError
		}
		reason := lastFailure(&f.stats)
		kind, help := "checkpoint", "its reason says what; the pipeline goes on, and restarts after as many as checkpoint.tolerable_failures says"
		switch {
		case isFull(reason):
			help = "make room in " + orUnknown(f.spec.Checkpoint.Storage, reason) + " or raise its quota"
		case deniesAccess(reason):
			kind, help = "credentials", renew
		}
		f.add(kind, level, "", fmt.Sprintf("%s failed: %s", inARow(n), reason), help)
		return
	}
	since := f.status.Since
	if f.status.Restored != nil && f.status.Restored.Time.After(since) {
		since = f.status.Restored.Time
	}
	if last := f.stats.Last; last != nil {
		since = later(since, last.Triggered.Add(last.Duration))
	}
	if waits := f.now.Sub(since); waits > lateIntervals*interval+slowBarrier {
		f.add("checkpoint", levelError, "", fmt.Sprintf("no checkpoint has completed for %s, and one is due every %s", about(waits), interval),
			"see how far the newest one is: which task has not acknowledged, and why")
	}
}

func inARow(n int) string {
	if n == 1 {
		return "the newest checkpoint"
	}
	return fmt.Sprintf("%d checkpoints in a row have", n)
}

func orUnknown(storage, reason string) string {
	if storage == "" || strings.Contains(reason, storage) {
		return "what it names"
	}
	return storage
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// about is a time in words, without small parts.
func about(d time.Duration) string {
	switch {
	case d > 2*time.Hour:
		return fmt.Sprintf("%.0fh", d.Hours())
	case d > 2*time.Minute:
		return fmt.Sprintf("%.0fm", d.Minutes())
	}
	return d.Round(time.Second).String()
}

// lastFailure is why the newest failed checkpoint failed.
func lastFailure(s *checkpoint.Stats) string {
	for i := range s.History {
		if s.History[i].Status == checkpoint.Failed {
			return s.History[i].Failure
		}
	}
	return "its reason is not known any more"
}

// alignment tells of barriers that are slow to get through, and of what holds them up.
func (f *finder) alignment() {
	if len(f.stats.History) == 0 {
		return
	}
	h := &f.stats.History[0]
	slow := time.Duration(0)
	for i := range h.Tasks {
		slow = max(slow, h.Tasks[i].StartDelay+h.Tasks[i].Alignment)
	}
	if h.Status == checkpoint.InProgress && h.Acked < len(h.Tasks) {
		slow = max(slow, h.Duration)
	}
	if slow < slowBarrier {
		return
	}
	text := fmt.Sprintf("the barrier of checkpoint %d takes %s to get through", h.ID.Number, about(slow))
	step, why := f.bottleneck()
	if why == "" {
		why = "; tasks that have not acknowledged it are shown with the checkpoint"
	}
	f.add("alignment", levelWarning, step, text+why, "make what holds it up faster: give its target more, raise parallelism, or send it less")
}

// bottleneck is what is busy while that before it waits for it, in words; empty for none.
func (f *finder) bottleneck() (operator, why string) {
	busy, waits := map[string]float64{}, 0.0
	for i := range f.flow.Tasks {
		t := &f.flow.Tasks[i]
		busy[t.Chain] = max(busy[t.Chain], t.Busy)
		waits = max(waits, t.Backpressured)
	}
	worst := ""
	for chain, share := range busy {
		if share > mostBusy && (worst == "" || share > busy[worst]) {
			worst = chain
		}
	}
	if worst == "" || len(busy) > 1 && waits < mostBusy {
		return "", ""
	}
	name, role := worst, "step"
	for i := range f.desc.Operators {
		o := &f.desc.Operators[i]
		if o.Chain == worst && o.Role == "sink" {
			name, role = o.Name, "sink"
		} else if o.Name == worst && role != "sink" {
			role = o.Role
		}
	}
	return name, fmt.Sprintf("; it waits for the %s %s, which is busy %.0f%% of the time and holds up what is before it", role, name, 100*busy[worst])
}

// sinks tell of commits that do not work.
func (f *finder) sinks() {
	for i := range f.flow.Sinks {
		s := &f.flow.Sinks[i]
		late := s.OldestPending != nil && f.now.Sub(*s.OldestPending) > max(commitSlow, 2*f.spec.Checkpoint.Interval)
		if s.LastError == "" && !late {
			continue
		}
		level, kind, help := levelWarning, "commit", "see that its target can be reached and takes what is written; nothing is lost, the commit is tried again"
		text := fmt.Sprintf("sink %s: what is prepared is not published yet", s.Sink)
		if s.OldestPending != nil {
			waits := f.now.Sub(*s.OldestPending)
			text = fmt.Sprintf("sink %s: what was prepared is not published for %s", s.Sink, about(waits))
			if waits > commitSlow {
				level = levelError
			}
		}
		if s.LastError != "" {
			text += ": " + s.LastError
		}
		if deniesAccess(s.LastError) {
			kind, help = "credentials", renew
		}
		f.add(kind, level, s.Sink, text, help)
	}
}
