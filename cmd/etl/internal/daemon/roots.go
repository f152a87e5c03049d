package daemon

import "slices"

// Roots are the folders below which callers of the API may name paths where the settings
// name none: those where the pipelines keep checkpoints and savepoints, and the daemon
// its state.
func (d *Daemon) Roots() []string {
	var all []string
	if dir := d.opts.Settings.StateDir; dir != "" {
		all = append(all, dir)
	}
	for _, u := range d.all() {
		u.mu.Lock()
		def := u.def
		u.mu.Unlock()
		if def.plan == nil {
			continue
		}
		cp := &def.plan.Spec.Checkpoint
		for _, place := range []string{cp.Storage, cp.Savepoints.Dir} {
			if place != "" && !slices.Contains(all, place) {
				all = append(all, place)
			}
		}
	}
	return all
}
