package pipeline

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// probeStorage finds out, at a start, whether the checkpoint storage can tell two
// processes apart.
func (r *runner) probeStorage(ctx context.Context) error {
	if r.generation != 0 {
		return nil // a restart in the process
	}
	var can storage.Capabilities
	err := r.persist(ctx, "try the checkpoint storage "+r.fs.URL(), func() (err error) {
		can, err = storage.Probe(ctx, r.fs)
		if unusable(err) {
			return connectors.Permanent(fmt.Errorf("checkpoint.storage %s cannot be used: %w", r.fs.URL(), err))
		}
		return err
	})
	if err != nil || can.Exclusive {
		return err
	}
	r.log.Warn("THE CHECKPOINT STORAGE CANNOT TELL TWO PROCESSES APART: start this pipeline only once at a time, and wait until the old process has ended before a new one is started; "+
		"two at once publish results twice and spoil each other's checkpoints", "storage", r.fs.URL(), "reason", can.Reason)
	return nil
}

// warnOfHosts says, where another host ran the pipeline last, that its folder must be
// the same for both: each would see its own files otherwise, and none the other's.
func (r *runner) warnOfHosts(survey *checkpoint.Survey) {
	if r.generation != 0 || !strings.HasPrefix(r.fs.URL(), "file://") {
		return
	}
	last, ok := survey.Owners[survey.Highest]
	for g := survey.Highest; !ok && g > 0; g-- {
		last, ok = survey.Owners[g]
	}
	here, err := os.Hostname()
	if err != nil || !ok || last.Host == "" || last.Host == here {
		return
	}
	r.log.Warn("another host ran this pipeline last: file:// storage must be one folder that all hosts share, such as a network disk, or a host goes on from checkpoints of its own and publishes results again",
		"storage", r.fs.URL(), "last_host", last.Host, "this_host", here)
}
