package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// Action is what a start does with the state of one operator.
type Action string

// The actions.
const (
	Kept    Action = "kept"    // the operator goes on with it
	Empty   Action = "empty"   // the checkpoint has none: the operator begins without
	Dropped Action = "dropped" // the file has no operator for it
	Refused Action = "refused" // it does not fit the operator of the file
)

// Match is an operator with state, in a checkpoint or in the file, and what becomes of
// its state. They are matched by uid.
type Match struct {
	UID    string `json:"uid"`
	Name   string `json:"name,omitempty"` // in the file; empty where it is not there
	Kind   string `json:"kind"`
	Action Action `json:"action"`
	// Was and Is are the definitions in the checkpoint and in the file where they differ,
	// and Differs what differs.
	Was     string   `json:"was,omitempty"`
	Is      string   `json:"is,omitempty"`
	Differs []string `json:"differs,omitempty"`
	// Reason is why it is refused, with what to do.
	Reason string `json:"reason,omitempty"`
}

// match compares the state of a checkpoint with the file, in the order of the file;
// what the file has no operator for comes last.
func (p *Plan) match(m *checkpoint.Metadata) []Match {
	if m == nil {
		return nil
	}
	var out []Match
	seen := map[string]bool{}
	add := func(uid, name, kind string, must bool, fits func(*checkpoint.Operator, *Match)) {
		seen[uid] = true
		x := Match{UID: uid, Name: name, Kind: kind, Action: Kept}
		op := findOperator(m, uid)
		switch {
		case op == nil && !must:
			return
		case op == nil:
			x.Action = Empty
		case op.Kind != kind:
			x.Action, x.Was, x.Is = Refused, op.Kind, kind
			x.Reason = fmt.Sprintf("%s is a %s in the checkpoint and a %s in the file: its state does not fit; give the new one another name or uid, "+
				"and drop the old state with --allow-non-restored-state", uid, op.Kind, kind)
		case fits != nil:
			fits(op, &x)
		}
		out = append(out, x)
	}
	for i := range p.Spec.Sources {
		s := &p.Spec.Sources[i]
		add(s.UID, s.Name, "source "+s.Kind, true, nil)
	}
	for _, c := range p.keyedSteps() {
		n := c.keyed
		add(n.spec.UID, n.spec.Name, n.spec.Kind, true, func(op *checkpoint.Operator, x *Match) { n.fits(op, p.Spec.Checkpoint.State.Backend, x) })
	}
	for i := range p.Spec.Sinks {
		s := &p.Spec.Sinks[i]
		add(s.UID, s.Name, "sink "+s.Kind, false, nil)
	}
	known := len(out)
	for i := range m.Operators {
		if op := &m.Operators[i]; !seen[op.UID] {
			out = append(out, Match{UID: op.UID, Kind: op.Kind, Action: Dropped})
		}
	}
	slices.SortFunc(out[known:], func(a, b Match) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// fits compares the state of a keyed step with its definition.
func (n *keyedNode) fits(op *checkpoint.Operator, backend string, x *Match) {
	refuse := func(reason string) {
		x.Action, x.Reason = Refused, strings.TrimPrefix(x.Reason+"; "+reason, "; ")
	}
	noted, err := keyedStates(op)
	if err != nil {
		refuse(err.Error())
		return
	}
	for _, k := range noted {
		if k.Definition == "" || n.definition == "" || k.Definition == n.definition {
			continue
		}
		x.Was, x.Is, x.Differs = k.Definition, n.definition, differences(k.Definition, n.definition)
		refuse(fmt.Sprintf("the state of step %s was made by another definition, and means something else now:\n"+
			"    in the checkpoint: %s\n    in the file:       %s\n    what differs:      %s\n"+
			"  put the definition back, or give the new step another name or uid, and drop the old state with --allow-non-restored-state",
			op.UID, x.Was, x.Is, strings.Join(x.Differs, "; ")))
		break
	}
	for i := range op.KeyGroups {
		if op.KeyGroups[i].Format != "" && backend != spec.DiskState {
			refuse(fmt.Sprintf("the state of step %s is in files of the backend disk, which %s does not read: "+
				"go on with checkpoint.state.backend: disk; a savepoint, and with checkpoint.incremental: false the next checkpoint, is one that every backend reads", op.UID, backend))
			break
		}
	}
}

// misfits says why a checkpoint does not fit the file, all reasons at once; nil where it
// does. newJob says that it is another job that goes on from it.
func (o *Options) misfits(m *checkpoint.Metadata, matches []Match, newJob bool) error {
	if m == nil {
		return nil
	}
	var faults []string
	if newJob && m.Drained && !o.AllowDrained {
		faults = append(faults, fmt.Sprintf("checkpoint %d was taken after event time had run out, at the end of the input or by a stop with --drain: "+
			"go on from it with --allow-drained, or from an earlier one with -s PATH", m.Number))
	}
	if most := o.Plan.Spec.MaxParallelism; m.MaxParallelism != 0 && m.MaxParallelism != most {
		faults = append(faults, fmt.Sprintf("max_parallelism is %d in the checkpoint and %d in the file: it can never change; set it back", m.MaxParallelism, most))
	}
	var gone []string
	for i := range matches {
		switch x := &matches[i]; x.Action {
		case Refused:
			faults = append(faults, x.Reason)
		case Dropped:
			gone = append(gone, fmt.Sprintf("%s (%s)", x.UID, x.Kind))
		default:
		}
	}
	if len(gone) > 0 && !o.AllowNonRestoredState {
		faults = append(faults, fmt.Sprintf("the checkpoint holds state that the file has nothing for: %s; "+
			"put it back, or drop the state with --allow-non-restored-state", strings.Join(gone, ", ")))
	}
	switch len(faults) {
	case 0:
		return nil
	case 1:
		return connectors.Permanent(errors.New(faults[0]))
	}
	return connectors.Permanent(fmt.Errorf("checkpoint %d does not fit the file, for %d reasons:\n- %s", m.Number, len(faults), strings.Join(faults, "\n- ")))
}

// differences tells in words what of a definition is another in the file.
func differences(was, is string) []string {
	a, b := words(was), words(is)
	// The longest run of words that both have in common, by the usual table.
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out, gone, added []string
	flush := func() {
		old, now := strings.Join(gone, " "), strings.Join(added, " ")
		switch {
		case old != "" && now != "":
			out = append(out, fmt.Sprintf("%s was %s", now, old))
		case old != "":
			out = append(out, old+" is gone")
		case now != "":
			out = append(out, now+" is new")
		}
		gone, added = nil, nil
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			flush()
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			gone, i = append(gone, a[i]), i+1
		default:
			added, j = append(added, b[j]), j+1
		}
	}
	flush()
	return out
}

// words splits a definition at spaces outside of quotes and brackets.
func words(s string) []string {
	var out []string
	depth, from := 0, 0
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == ' ' && depth <= 0:
			if from < i {
				out = append(out, s[from:i])
			}
			from = i + 1
		}
	}
	if from < len(s) {
		out = append(out, s[from:])
	}
	return out
}
