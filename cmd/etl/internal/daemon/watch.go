package daemon

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

const (
	// settle is how long the folder has to be quiet before it is read: editors and
	// mounted config maps change several things one after the other.
	settle = 300 * time.Millisecond
	// settleMost bounds the wait for that.
	settleMost = 3 * time.Second
	// pollEvery is how often the folder is read anyway: not every file system tells.
	pollEvery = 30 * time.Second
	// missing is how long a file has to be gone before its pipeline is ended.
	missing = 2 * time.Second
)

// watchFolder takes over what changes in the folder until ctx ends.
func (d *Daemon) watchFolder(ctx context.Context) {
	events := make(chan fsnotify.Event)
	w, err := fsnotify.NewBufferedWatcher(256)
	if err == nil {
		defer func() { _ = w.Close() }()
		err = w.Add(d.folder)
		events = w.Events
	}
	if err != nil {
		d.log.Warn("the folder of pipelines cannot be watched, and is read again every while", "every", pollEvery, "err", err)
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-events:
			if !d.awaitQuiet(ctx, events) {
				return
			}
		case <-poll.C:
			if w != nil && err == nil {
				_ = w.Add(d.folder) // it may be another folder of that name by now
			}
		case <-ctx.Done():
			return
		}
		d.refresh(ctx)
	}
}

// awaitQuiet waits until nothing changes for a while; it is false when ctx ends.
func (d *Daemon) awaitQuiet(ctx context.Context, events <-chan fsnotify.Event) bool {
	most := time.NewTimer(settleMost)
	defer most.Stop()
	for {
		quiet := time.NewTimer(settle)
		select {
		case <-events:
			quiet.Stop()
		case <-quiet.C:
			return true
		case <-most.C:
			quiet.Stop()
			return true
		case <-ctx.Done():
			quiet.Stop()
			return false
		}
	}
}

// refresh takes over what has changed, without waiting for the switches. A file that is
// gone is looked for once more after a while.
func (d *Daemon) refresh(ctx context.Context) {
	changes, err := d.scan(false)
	if err != nil {
		d.log.Error("the folder of pipelines cannot be read; what runs goes on", "err", err)
		return
	}
	if len(changes) < len(d.all()) {
		if pause(ctx, missing) != nil {
			return
		}
		more, err := d.scan(true)
		if err != nil {
			d.log.Error("the folder of pipelines cannot be read; what runs goes on", "err", err)
			return
		}
		changes = mergeChanges(changes, more)
	}
	if !d.matters(changes) {
		return
	}
	d.spawn(func() {
		_, _ = d.apply(context.WithoutCancel(ctx), changes, "") // its results are noted
	})
}

// mergeChanges is the later of two scans; units that the earlier one made stay new.
func mergeChanges(earlier, later []change) []change {
	fresh := map[*unit]bool{}
	for _, c := range earlier {
		fresh[c.unit] = c.new
	}
	for i := range later {
		later[i].new = later[i].new || fresh[later[i].unit]
	}
	return later
}

// matters reports whether any of the changes is one.
func (d *Daemon) matters(changes []change) bool {
	for _, c := range changes {
		if c.unit.unchanged(&c) == "" {
			return true
		}
	}
	return false
}

// Daemon implements api.Service.
func (d *Daemon) Daemon(ctx context.Context) api.Daemon {
	ready, _ := d.Ready(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	out := processNow()
	out.Version, out.Started, out.Folder, out.Ready = d.opts.Version, d.began, d.folder, ready
	out.Listens = append([]string{}, d.listens...)
	out.Memory, out.LastReload = d.opts.Settings.Memory, d.lastReload
	return out
}
