package daemon

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// ReloadCounts count the results of taking a pipeline's file over, since the daemon began.
type ReloadCounts struct {
	Switched   uint64 // changed, and running
	Refused    uint64 // not taken over, the old definition runs on
	RolledBack uint64 // did not come to run, the old definition runs again
	Invalid    uint64 // the file has faults
}

// The results of a pipeline's reload, as api.Reload says them.
const (
	unchanged  = "unchanged"
	added      = "added"
	removed    = "removed"
	switched   = "switched"
	waits      = "changed: it counts from the next start on"
	refusedAs  = "refused: "
	rolledBack = "rolled back: "
	faulty     = "invalid: "
)

// Reload implements api.Service. It waits until each changed pipeline is switched, or ctx
// ends; the work goes on after that.
func (d *Daemon) Reload(ctx context.Context, actor string) (*api.Reload, error) {
	changes, err := d.scan(true)
	if err != nil {
		d.Tell(api.Event{Kind: "reload_failed", Level: levelError, Text: err.Error(), Actor: actor})
		return nil, err
	}
	return d.apply(ctx, changes, actor)
}

// change is what a scan of the folder found for one pipeline.
type change struct {
	unit *unit
	def  *definition // nil where its file is gone
	new  bool
}

// scan reads the folder and gives each file its unit. What is gone is told only where
// gone says so: an editor may have moved a file away for a moment.
func (d *Daemon) scan(gone bool) ([]change, error) {
	d.scanning.Lock()
	defer d.scanning.Unlock()
	paths, err := definitionFiles(d.folder)
	if err != nil {
		return nil, err
	}
	known := d.byFile()
	defs := make([]*definition, 0, len(paths))
	for _, path := range paths {
		if u := known[path]; u != nil {
			if def := u.written().origin(); def.fresh() {
				defs = append(defs, def)
				continue
			}
		}
		def := readDefinition(path)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue // it went while it was read
		}
		defs = append(defs, def)
	}
	d.budget.Expect(len(defs))
	return d.assign(defs, known, gone), nil
}

// byFile are the units by the file that says what they are now.
func (d *Daemon) byFile() map[string]*unit {
	out := map[string]*unit{}
	for _, u := range d.all() {
		out[u.written().file] = u
	}
	return out
}

// written is what the file says now.
func (u *unit) written() *definition {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.file
}

// assign finds the unit of each definition: the one of its name, or of its file where
// that has faults. Of several files with one name the one counts that did before.
func (d *Daemon) assign(defs []*definition, known map[string]*unit, gone bool) []change {
	claimed := claims(defs, known)
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[*unit]bool{}
	var out []change
	for _, def := range defs {
		name, claim := def.name, def
		if other := claimed[name]; name != "" && other != def {
			def, name = def.clashing(other), ""
		}
		if u := known[def.file]; u != nil && !def.valid() && !seen[u] && (claimed[u.name] == nil || claimed[u.name] == claim) {
			name = u.name // it stays what it was
		}
		if name == "" {
			name = d.freeName(def.file, seen, claimed)
		}
		u := d.units[name]
		if u != nil && seen[u] {
			name = d.freeName(def.file, seen, claimed)
			u = d.units[name]
		}
		c := change{unit: u, def: def, new: u == nil}
		if u == nil {
			c.unit = newUnit(d, name, def)
			c.unit.namesake = d.leaving[name]
			d.units[name] = c.unit
		}
		seen[c.unit] = true
		out = append(out, c)
	}
	for _, name := range slices.Sorted(maps.Keys(d.units)) {
		if u := d.units[name]; !seen[u] && gone {
			delete(d.units, name)
			d.leaving[name] = u.removed
			out = append(out, change{unit: u})
		}
	}
	return out
}

// claims are the definitions that get the names of pipelines. A file with faults keeps
// the name of what it had running: another file does not get it by that.
func claims(defs []*definition, known map[string]*unit) map[string]*definition {
	claimed := map[string]*definition{}
	for _, def := range defs {
		if u := known[def.file]; u != nil && (def.name == u.name || !def.valid() && u.runnable()) {
			claimed[u.name] = def
		}
	}
	for _, def := range defs {
		if claimed[def.name] == nil && def.name != "" {
			claimed[def.name] = def
		}
	}
	return claimed
}

// runnable reports whether the unit has a definition without faults, whatever its file says now.
func (u *unit) runnable() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.def.valid()
}

// freeName is what a file is called that does not tell a name that it can have. The
// caller holds the lock.
func (d *Daemon) freeName(path string, seen map[*unit]bool, claimed map[string]*definition) string {
	name := label(path)
	taken := func(u *unit) bool { return u != nil && (seen[u] || u.written().file != path) }
	for claimed[name] != nil || taken(d.units[name]) {
		name += "-file"
	}
	return name
}

// all are the units by name.
func (d *Daemon) all() []*unit {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*unit, 0, len(d.units))
	for _, name := range slices.Sorted(maps.Keys(d.units)) {
		out = append(out, d.units[name])
	}
	return out
}

// apply takes over what a scan found, all pipelines at once, and notes the results.
func (d *Daemon) apply(ctx context.Context, changes []change, actor string) (*api.Reload, error) {
	report := &api.Reload{Time: time.Now(), OK: true, Pipelines: map[string]string{}}
	var mu sync.Mutex
	note := func(name, result string) {
		mu.Lock()
		defer mu.Unlock()
		report.Pipelines[name] = result
		report.OK = report.OK && !isBad(result)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range changes {
		if result := c.unit.unchanged(&c); result != "" {
			note(c.unit.name, result)
			continue
		}
		wg.Add(1)
		d.spawnOr(func() {
			defer wg.Done()
			note(c.unit.name, c.unit.takeOver(context.WithoutCancel(ctx), &c, actor))
		})
	}
	d.spawnOr(func() {
		wg.Wait()
		d.mu.Lock()
		d.lastReload = report
		d.mu.Unlock()
		close(done)
	})
	select {
	case <-done:
		return report, nil
	case <-ctx.Done():
		return nil, errors.New("the reload goes on: its result is shown once each pipeline is switched")
	}
}

// unchanged is the result where there is nothing to do.
func (u *unit) unchanged(c *change) string {
	if c.def == nil || c.new {
		return ""
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !c.def.same(u.file) || u.pending != "" && time.Now().After(u.next) && !u.next.IsZero() {
		return ""
	}
	switch {
	case !c.def.valid():
		return faulty + c.def.failure()
	case u.pending != "":
		return refusedAs + u.pending
	}
	return unchanged
}

// takeOver takes a change over in the unit's turn, and returns its result.
func (u *unit) takeOver(ctx context.Context, c *change, actor string) string {
	if err := u.take(ctx); err != nil {
		return refusedAs + err.Error()
	}
	defer u.giveBack()
	if c.new {
		u.awaitNamesake()
	}
	if u.d.isEnding() {
		return refusedAs + "the daemon is ending"
	}
	switch {
	case c.def == nil:
		return u.remove(ctx, actor)
	case !c.def.valid():
		return u.faulty(c.def)
	case c.new:
		return u.add(actor)
	default:
		return u.change(ctx, c.def, actor)
	}
}

// add starts a pipeline that is new here, unless somebody has stopped or paused it.
func (u *unit) add(actor string) string {
	if !u.recall() {
		u.tell("definition", levelInfo, "found, and left as it was", actor)
		return added
	}
	u.tell("started", levelInfo, "found in "+u.def.file+", started", actor)
	u.launchForGood(u.def, pipeline.Options{})
	return added
}

// awaitNamesake waits until the unit is gone that had the name before: its file went and
// came back, and it may still be at its last checkpoint.
func (u *unit) awaitNamesake() {
	if u.namesake == nil {
		return
	}
	select {
	case <-u.namesake:
	case <-u.d.ending:
	}
}

// remove ends a pipeline whose file is gone. Its job goes on when the file is back.
func (u *unit) remove(ctx context.Context, actor string) string {
	defer close(u.removed)
	u.mu.Lock()
	u.gone = true
	r := u.run
	u.mu.Unlock()
	text := "its file is gone"
	if r != nil {
		if t := r.leave(ctx); t.Warning == "" {
			text += "; ended with checkpoint " + t.Path
		} else {
			text += "; ended without a last checkpoint"
		}
	}
	u.past.Lock()
	err := u.past.remove()
	u.past.Unlock()
	if err := errors.Join(err, u.d.store.save(u.name, nil)); err != nil {
		u.d.log.Warn("the state of a pipeline that is gone could not be removed", pipelineKey, u.name, "err", err)
	}
	u.tell("definition", levelInfo, text, actor)
	return removed
}

// faulty notes a file that cannot run. What runs is not touched.
func (u *unit) faulty(def *definition) string {
	u.mu.Lock()
	u.file = def
	if u.run == nil && !u.def.valid() {
		u.def = def
	}
	u.mu.Unlock()
	u.setPending("the file has faults and is not taken over: "+def.failure(), false)
	u.d.count(func(c *ReloadCounts) { c.Invalid++ })
	u.tell("definition", levelError, "the file has faults: "+def.failure(), "")
	return faulty + def.failure()
}

func (d *Daemon) count(f func(*ReloadCounts)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.reloads)
}

// Reloads are the results of reloads since the daemon began.
func (d *Daemon) Reloads() ReloadCounts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reloads
}
