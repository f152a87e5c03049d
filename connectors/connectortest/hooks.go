package connectortest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// The slots of the suite's rows, for expressions in a configuration: set Expr.Slot to
// one of them.
const (
	SlotKey       = iota // text that tells the row from any other: PARTITION-OFFSET
	SlotPartition        // int
	SlotOffset           // int
	SlotGroup            // the partition as text
	slots
)

// Network are the hooks of a target that a sink reaches over a network. Proxy has them
// for targets that answer requests one after the other on each connection.
type Network struct {
	// Down makes the target unreachable, also for connections that are open, or
	// reachable again.
	Down func(down bool)
	// Requests is how many requests the target has been sent so far.
	Requests func() int
	// LoseReply makes the target execute the n-th request from now on, where 1 is the
	// next, and lose the reply; 0 calls that off.
	LoseReply func(n int)
	// Throttle makes the target put off the next n requests in the way that it has for
	// that, such as 429. Declare "throttled" where it has none.
	Throttle func(n int)
}

// Updating is a target of an updating stream. Its rows replace each other by SlotGroup.
type Updating struct {
	// Mode is how the sink takes the stream: connectors.Upserts or AllChanges.
	Mode connectors.ChangeMode
	New  func() (connectors.Sink, error)
	// Read returns the values that are there now.
	Read Reader
}

// The checks that a sink can declare not to have, with the reason.
const (
	WithoutCrashPoints = "crash points" // it names no durable steps
	WithoutThrottle    = "throttled"    // the target has no way to put a request off
	WithoutPoison      = "poison"       // the target takes any row
	WithoutLostReplies = "lost replies" // there is no reply to lose
)

// checkHooks says what a sink has neither a hook nor a declaration for.
func (s *Sink) checkHooks() error {
	known := []string{WithoutCrashPoints, WithoutThrottle, WithoutPoison, WithoutLostReplies}
	for name, reason := range s.Without {
		if !slices.Contains(known, name) || reason == "" {
			return fmt.Errorf("unknown entry %q of Without, or no reason for it (%q): there are %s", name, reason, strings.Join(known, ", "))
		}
	}
	if s.Network == nil {
		return nil
	}
	var missing []string
	lacks := func(hook, check string, there bool) {
		if !there && (check == "" || s.Without[check] == "") {
			missing = append(missing, hook)
		}
	}
	lacks("Network.Down", "", s.Network.Down != nil)
	lacks("Network.LoseReply", WithoutLostReplies, s.Network.LoseReply != nil && s.Network.Requests != nil)
	lacks("Network.Throttle", WithoutThrottle, s.Network.Throttle != nil)
	lacks("Poison", WithoutPoison, s.Poison != nil)
	if missing != nil {
		return errors.New("a sink over a network needs the hooks " + strings.Join(missing, ", ") + ", or declares in Without why not")
	}
	return nil
}
