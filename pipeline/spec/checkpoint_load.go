package spec

import (
	"path/filepath"
	"strings"
	"time"
)

// localOff is how a file says that there is no local recovery.
const localOff = "off"

// checkpoint reads the block of that name.
func (l *loader) checkpoint(root, n *node) {
	c := &l.p.Checkpoint
	*c = defaultCheckpoint()
	at := root
	if e := root.entry("checkpoint"); e != nil {
		at = e.name
	}
	sound := true
	if n != nil && !n.bad {
		sound = l.config(at, n.withConsent("claim"), c, "checkpoint")
		if c.LocalRecovery == localOff {
			c.LocalRecovery = ""
		}
		c.LostCommitWritten = n.get("on_lost_commit") != nil
		if err := c.placesClash(l.p.Name); sound && err != nil {
			l.place(at, n, err, CodeValue, "")
			sound = false
		}
	}
	if c.Storage == "" && n.get("storage") == nil && (n == nil || n.kind == mapNode || n.kind == nullNode) {
		l.warn(at, CodeNoStorage, "checkpoints live in memory only, so that a new start of the program begins anew", "add checkpoint: {storage: \"file:///path\"}")
	}
	if sound {
		l.checkpointWarnings(c, n)
	}
}

// withConsent is the block with a yes or no of one key, which YAML 1.2 calls texts, as
// the truth value that it stands for.
func (n *node) withConsent(key string) *node {
	e := n.entry(key)
	if e == nil || e.value.kind != textNode || e.value.text != "yes" && e.value.text != "no" {
		return n
	}
	block, value := *n, *e.value
	value.kind, value.text = boolNode, "false"
	if e.value.text == "yes" {
		value.text = "true"
	}
	block.entries = append([]entry(nil), n.entries...)
	for i := range block.entries {
		if block.entries[i].key == key {
			block.entries[i].value = &value
		}
	}
	return &block
}

// checkpointWarnings warns of settings that work, and not as well as they look.
func (l *loader) checkpointWarnings(c *Checkpoint, n *node) {
	for _, address := range []struct{ key, path string }{{"storage", c.Storage}, {"savepoints", c.Savepoints.Dir}, {"local_recovery", c.LocalRecovery}} {
		if address.path == "" || strings.Contains(address.path, "://") || filepath.IsAbs(address.path) {
			continue
		}
		then := "started in another one, the pipeline begins anew"
		if address.key != "storage" {
			then = "started in another one, the program finds nothing there"
		}
		l.warn(n.get(address.key), CodeRelative, "the path begins at the folder that the program is started in: "+then, "write the path from the root, such as /var/lib/etl")
	}
	if c.Retained == 1 {
		l.warn(n.get("retained"), CodeRetainOne, "with one checkpoint kept there is none to fall back to when it is damaged", "leave it out: 3 are kept by default")
	}
	if c.MinPause >= c.Interval && c.MinPause > 0 {
		l.warn(n.get("min_pause"), CodePace, "min_pause is not below interval, which has no effect then: checkpoints come "+
			c.MinPause.String()+" after each other's end", "make interval the time that you want from one checkpoint to the next, and min_pause what must be left of it")
	}
	if c.Timeout < c.Interval && n.get("timeout") != nil && c.Timeout < 10*time.Second {
		l.warn(n.get("timeout"), CodePace, "a checkpoint that takes longer than "+c.Timeout.String()+" fails, and a slow store or sink takes that now and then",
			"10m is the default; a long timeout costs nothing")
	}
	if c.TolerableFailures == 0 && remote(c.Storage) {
		l.warn(n.get("tolerable_failures"), CodePace, "one failed checkpoint restarts the pipeline, and requests to a store across the network fail now and then",
			"leave it out: 3 in a row are borne by default")
	}
	if c.LocalRecovery != "" && c.Storage != "" && !remote(c.Storage) {
		l.warn(n.get("local_recovery"), CodePlaces, "storage is a local path already: the copies save nothing where both are on one host", "remove it, unless storage is a mounted network disk")
	}
}

// remote reports whether an address leads across the network.
func remote(address string) bool {
	scheme, _, url := strings.Cut(address, "://")
	return url && scheme != "file" && scheme != "mem"
}
