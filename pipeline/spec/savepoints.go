package spec

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Savepoints is where savepoints go.
type Savepoints struct {
	Dir   string        // an address as for storage; empty for none
	Every time.Duration // between those taken by themselves; 0 for none
	Keep  int           // of those, how many stay
}

// defaultKeep is how many savepoints taken by themselves stay.
const defaultKeep = 3

// PeriodicDir is where the savepoints of a pipeline go that nobody asked for, of a folder
// for savepoints: only they are ever removed.
func PeriodicDir(dir, pipeline string) string {
	if strings.Contains(dir, "://") {
		return strings.TrimRight(dir, "/") + "/periodic/" + pipeline
	}
	return filepath.Join(dir, "periodic", pipeline)
}

var savepointKeys = []string{"dir", "every", "keep"}

// UnmarshalConfig reads an address or {dir, every, keep}.
func (s *Savepoints) UnmarshalConfig(v any) error {
	switch v := v.(type) {
	case string:
		if v == "" {
			return errors.New("an address is wanted, as for storage")
		}
		s.Dir = v
		return nil
	case map[string]any:
		return s.unmarshalMap(v)
	}
	return fmt.Errorf("an address as for storage, or {dir: ADDRESS} is wanted, not %v", v)
}

func (s *Savepoints) unmarshalMap(m map[string]any) error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	for key := range m {
		if !slices.Contains(savepointKeys, key) {
			fault(key, "is no key of savepoints", keySuggestion(key, savepointKeys, "savepoints"))
		}
	}
	if dir, ok := m["dir"].(string); ok && dir != "" {
		s.Dir = dir
	} else {
		fault("dir", "is needed: an address, as for storage", "write dir: s3://bucket/savepoints")
	}
	if every, given := m["every"]; given {
		text, _ := every.(string)
		d, err := connectors.ParseDuration(text)
		if err != nil || d < time.Minute {
			fault("every", "must be a time of at least 1m", "write a time such as 24h or 7d")
		}
		s.Every, s.Keep = d, defaultKeep
	}
	if keep, given := m["keep"]; given {
		n, ok := keep.(int64)
		if !ok || n < 1 || n > 1000 {
			fault("keep", "must be a number from 1 to 1000", "3 is the default")
		}
		if s.Every == 0 {
			fault("keep", "has no effect without every: savepoints that somebody asked for are never removed", "remove it, or add every")
		}
		s.Keep = int(n)
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

// dump is the form that the file uses.
func (s *Savepoints) dump() any {
	if s.Every == 0 {
		return s.Dir
	}
	var o ordered
	o.add("dir", s.Dir)
	o.add("every", spanText(s.Every))
	o.add("keep", int64(s.Keep))
	return o
}

// TakesSavepoints says why a pipeline cannot have savepoints in dir, nil where it can.
func (c *Checkpoint) TakesSavepoints(pipeline, dir string) error {
	other := *c
	other.Savepoints.Dir = dir
	return other.placesClash(pipeline)
}

// placesClash refuses places of which one lies in what belongs to the pipeline in another
// one, where files are removed that nothing refers to.
func (c *Checkpoint) placesClash(pipeline string) error {
	type place struct{ key, name, at, help string }
	places := []place{
		{"storage", "storage", cleanAddress(c.Storage), ""},
		{"savepoints", "savepoints", cleanAddress(c.Savepoints.Dir), "give savepoints a folder of their own"},
		{"state.dir", "state.dir", cleanAddress(c.State.Dir), "give it a folder of its own"},
		{"local_recovery", "local_recovery", cleanAddress(c.LocalRecovery), "give it a folder of its own"},
	}
	var faults []error
	for i, a := range places {
		for _, b := range places[:i] {
			switch {
			case a.at == "" || b.at == "" || a.key == "savepoints" && a.at == b.at:
			case a.at == b.at || within(a.at, own(b.at, pipeline)) || within(b.at, own(a.at, pipeline)):
				faults = append(faults, &connectors.FieldError{Key: a.key, Msg: "clashes with " + b.name + ": one removes what the other has there", Help: a.help})
			}
		}
	}
	if strings.Contains(c.LocalRecovery, "://") {
		faults = append(faults, &connectors.FieldError{Key: "local_recovery", Msg: "is a folder on a local disk, not a URL", Help: "write a path such as /var/lib/etl/local"})
	}
	return errors.Join(faults...)
}

// own is the folder of a pipeline in a place.
func own(place, pipeline string) string { return strings.TrimSuffix(place, "/") + "/" + pipeline }

// cleanAddress is an address in a form that can be compared: a local one as a path.
func cleanAddress(address string) string {
	if address == "" {
		return ""
	}
	address = strings.TrimPrefix(strings.TrimPrefix(address, "file://localhost"), "file://")
	if scheme, rest, url := strings.Cut(address, "://"); url {
		return scheme + "://" + path.Clean(rest)
	}
	if abs, err := filepath.Abs(address); err == nil {
		return abs
	}
	return filepath.Clean(address)
}

func within(inner, outer string) bool {
	return inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
}
