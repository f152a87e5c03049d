package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// watchedSplit is what is remembered of a split from one look to the next.
type watchedSplit struct {
	position int64
	moved    time.Time // when the position was seen to change, or the split first
}

// lagAt is the lag at one look.
type lagAt struct {
	at      time.Time
	records int64
}

// splitWatch follows the splits of a pipeline's sources.
type splitWatch struct {
	splits map[string]*watchedSplit // by source and split
	lags   []lagAt                  // of the last lagWindow, oldest first
}

func splitKey(s *pipeline.SplitFlow) string { return s.Source + "\x00" + s.Split }

// lag is over all splits, -1 where nothing is known.
func lag(flow *pipeline.Flow) (records int64, seconds float64) {
	records, seconds = -1, -1
	for i := range flow.Splits {
		s := &flow.Splits[i]
		if s.Behind >= 0 {
			records = max(records, 0) + s.Behind
		}
		seconds = max(seconds, s.BehindSeconds)
	}
	return records, seconds
}

// see takes over where the splits are.
func (w *splitWatch) see(flow *pipeline.Flow, now time.Time) {
	if w.splits == nil {
		w.splits = map[string]*watchedSplit{}
	}
	for i := range flow.Splits {
		s := &flow.Splits[i]
		at := w.splits[splitKey(s)]
		if at == nil {
			w.splits[splitKey(s)] = &watchedSplit{position: s.Position, moved: now}
		} else if at.position != s.Position {
			at.position, at.moved = s.Position, now
		}
	}
	records, _ := lag(flow)
	if records < 0 {
		w.lags = nil
		return
	}
	w.lags = append(w.lags, lagAt{now, records})
	for len(w.lags) > 1 && now.Sub(w.lags[0].at) > lagWindow {
		w.lags = w.lags[1:]
	}
}

// splits tell of lag that grows, splits that stand still and records that are about to be removed.
func (f *finder) splits(w *splitWatch) {
	w.see(&f.flow, f.now)
	f.lagGrows(w)
	newest := map[string]time.Time{} // by source
	for i := range f.flow.Splits {
		s := &f.flow.Splits[i]
		newest[s.Source] = later(newest[s.Source], w.splits[splitKey(s)].moved)
	}
	var idle, stuck, late []*pipeline.SplitFlow
	for i := range f.flow.Splits {
		s := &f.flow.Splits[i]
		still := f.now.Sub(w.splits[splitKey(s)].moved)
		others := f.now.Sub(newest[s.Source]) < stuckAfter
		switch {
		case s.Behind > 0 && !s.Paused && still > stuckAfter:
			stuck = append(stuck, s)
		case s.Behind <= 0 && others && still > idleAfter && len(f.flow.Splits) > 1:
			idle = append(idle, s)
		}
		// What is read soon after it came is in no danger, however short retention is.
		if s.RetentionSeconds >= 0 && s.RetentionSeconds < min(retentionSoon.Seconds(), s.BehindSeconds) {
			late = append(late, s)
		}
	}
	eachSource(stuck, f.stuck)
	eachSource(idle, f.idle)
	eachSource(late, f.overtaken)
}

// eachSource tells of the splits of each source by themselves.
func eachSource(splits []*pipeline.SplitFlow, tell func([]*pipeline.SplitFlow)) {
	for len(splits) > 0 {
		source := splits[0].Source
		n := slices.IndexFunc(splits, func(s *pipeline.SplitFlow) bool { return s.Source != source })
		if n < 0 {
			n = len(splits)
		}
		tell(splits[:n])
		splits = splits[n:]
	}
}

// lagGrows tells of reading that is slower than what comes.
func (f *finder) lagGrows(w *splitWatch) {
	if len(w.lags) < 2 {
		return
	}
	first, last := w.lags[0], w.lags[len(w.lags)-1]
	if last.at.Sub(first.at) < lagWindow/2 || last.records-first.records < leastLag {
		return
	}
	for i := 1; i < len(w.lags); i++ {
		if w.lags[i].records < w.lags[i-1].records {
			return // it comes and goes
		}
	}
	step, why := f.bottleneck()
	f.add("lag", levelWarning, step,
		fmt.Sprintf("it reads slower than records come: %d are not read, %d more than %s ago", last.records, last.records-first.records, about(last.at.Sub(first.at)))+why,
		"raise parallelism or memory, or make what holds it up faster")
}

// names are the first splits in words, and how many more there are.
func names(splits []*pipeline.SplitFlow) string {
	var first []string
	for _, s := range splits[:min(len(splits), 3)] {
		first = append(first, s.Split)
	}
	text := strings.Join(first, ", ")
	if more := len(splits) - 3; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (f *finder) stuck(splits []*pipeline.SplitFlow) {
	step, why := f.bottleneck()
	if step == "" {
		step = splits[0].Source
	}
	f.add("lag", levelError, step,
		fmt.Sprintf("%s of source %s: there are records, and for more than %s none was read", names(splits), splits[0].Source, about(stuckAfter))+why,
		"see that the leader of the partition answers, and that the sinks take what is written")
}

func (f *finder) idle(splits []*pipeline.SplitFlow) {
	help := "find out why nothing is written there; with watermark: {idle: TIME} it does not hold up event time"
	if splits[0].Idle {
		help = "find out why nothing is written there; it does not hold up event time"
	}
	f.add("idle", levelWarning, splits[0].Source,
		fmt.Sprintf("%s of source %s: no records for more than %s, while others have some", names(splits), splits[0].Source, about(idleAfter)), help)
}

func (f *finder) overtaken(splits []*pipeline.SplitFlow) {
	least := splits[0].RetentionSeconds
	for _, s := range splits {
		least = min(least, s.RetentionSeconds)
	}
	level := levelWarning
	if least < retentionUrgent.Seconds() {
		level = levelError
	}
	f.add("retention", level, splits[0].Source,
		fmt.Sprintf("%s of source %s: the next record is removed by the topic's retention in about %s", names(splits), splits[0].Source, about(time.Duration(least)*time.Second)),
		"raise retention.ms of the topic until the pipeline has caught up; records that are removed unread are lost to it")
}

// keepSince gives problems that were there before the time since when.
func keepSince(found, before []api.Problem) []api.Problem {
	for i := range found {
		for j := range before {
			if p := &before[j]; p.Kind == found[i].Kind && p.Step == found[i].Step && p.Level == found[i].Level {
				found[i].Since = p.Since
			}
		}
	}
	return found
}
