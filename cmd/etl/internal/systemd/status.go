package systemd

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// Summary is a line about all pipelines, such as
// "3 pipelines, 2 running, 1 failed, checkpoint 812 4 s ago".
func Summary(pipelines []api.Pipeline, now time.Time) string {
	count := map[api.State]int{}
	var newest *api.Checkpoint
	unwell := 0
	for i := range pipelines {
		p := &pipelines[i]
		count[p.State]++
		if !p.Health.OK {
			unwell++
		}
		if p.Checkpoint != nil && (newest == nil || p.Checkpoint.Time.After(newest.Time)) {
			newest = p.Checkpoint
		}
	}
	parts := []string{fmt.Sprintf("%d pipelines", len(pipelines))}
	if len(pipelines) == 1 {
		parts[0] = "1 pipeline"
	}
	for _, s := range []api.State{api.Running, api.Starting, api.Restarting, api.Stopping, api.Paused, api.Stopped, api.Finished, api.Failed, api.Invalid} {
		if count[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	if unwell > 0 {
		parts = append(parts, fmt.Sprintf("%d not well", unwell))
	}
	if newest != nil {
		parts = append(parts, fmt.Sprintf("checkpoint %d %s ago", newest.Number, ago(now.Sub(newest.Time))))
	}
	return strings.Join(parts, ", ")
}

// ago is a time that has passed, in its largest unit.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
}
