package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// definition is a name and where it is given.
type definition struct {
	at   *node
	what string
}

// from is what a step or a sink reads, before it is resolved.
type from struct {
	node   *node // nil where the file says nothing
	at     *node
	key    string // that names what is read
	name   string
	what   string
	sink   bool
	inputs bool // the step's configuration names what it reads
	index  int
	broken bool // the block has a fault that hides what it is
}

// define gives a name to a source, step or sink.
func (l *loader) define(name string, at *node, what string) {
	if !l.name(at, name, what) {
		l.incomplete = true
		return
	}
	if l.nodes == nil {
		l.nodes = map[string]*definition{}
	}
	first, taken := l.nodes[name]
	if !taken {
		l.nodes[name] = &definition{at, what}
		return
	}
	l.incomplete = true
	l.report(Diagnostic{
		Severity: Error, Code: CodeNameTaken, Pos: at.file.at(at.span.start), End: at.file.at(at.span.end),
		Msg: fmt.Sprintf("the name %s is taken", name), Help: "sources, steps and sinks need names that differ",
		Notes: []Note{{first.at.file.at(first.at.span.start), "it is given here to " + first.what}},
	})
}

// graph resolves what reads what, and checks the whole.
func (l *loader) graph() {
	g := &graph{l: l, p: l.p, read: map[Ref]bool{}, letters: map[string]bool{}}
	g.uids()
	g.deadLetters()
	before := len(l.p.diags)
	for i := range l.froms {
		g.resolve(&l.froms[i])
	}
	if l.errorsSince(before) || g.broken || l.incomplete {
		return
	}
	g.cycles()
	if !l.errorsSince(before) {
		g.unread()
	}
}

// graph is the state of the checks.
type graph struct {
	l       *loader
	p       *Pipeline
	read    map[Ref]bool
	letters map[string]bool // sinks that get dead letters
	broken  bool            // a block is missing from the picture
}

// uids checks that identities differ from each other.
func (g *graph) uids() {
	seen := map[string][]string{}
	check := func(uid, name string, path []string) {
		if first, taken := seen[uid]; taken {
			if own := g.p.root.at(below(path, "uid")); own != nil {
				g.l.report(Diagnostic{
					Severity: Error, Code: CodeNameTaken, Pos: own.file.at(own.span.start), End: own.file.at(own.span.end),
					Msg: fmt.Sprintf("the uid %s is taken", uid), Help: "identities in checkpoints have to differ",
					Notes: []Note{{g.p.Position(first...), "it is taken here"}},
				})
			} else if old := g.p.root.at(below(first, "uid")); old != nil {
				g.l.fault(old, CodeNameTaken, fmt.Sprintf("the uid %s is the name of another block", uid), "identities in checkpoints have to differ")
			}
			return
		}
		seen[uid] = path
	}
	for _, s := range g.p.Sources {
		check(s.UID, s.Name, s.Path)
	}
	for _, t := range g.p.Transforms {
		check(t.UID, t.Name, t.Path)
	}
	for _, s := range g.p.Sinks {
		check(s.UID, s.Name, s.Path)
	}
}

func (g *graph) sink(name string) *Sink {
	i := slices.IndexFunc(g.p.Sinks, func(s Sink) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &g.p.Sinks[i]
}

// deadLetters checks the sinks that on_error names.
func (g *graph) deadLetters() {
	names := keysOf(g.p.Sinks, func(s Sink) string { return s.Name })
	for _, n := range g.l.letters {
		if g.sink(n.text) != nil {
			g.letters[n.text] = true
			continue
		}
		if len(names) > 0 {
			g.l.fault(n, CodeUndefined, fmt.Sprintf("there is no sink %q for dead letters", n.text), suggest(n.text, names))
		}
	}
	for i := range g.p.Sinks {
		s := &g.p.Sinks[i]
		// The pipeline's rule would send a dead letter that its sink refuses to that sink again.
		if g.letters[s.Name] && g.p.root.at(below(s.Path, "on_error")) == nil && s.OnError.Action == DeadLetter {
			s.OnError = OnError{Action: Fail}
		}
	}
	g.readBack()
	for i := range g.p.Sinks {
		start := &g.p.Sinks[i]
		seen := map[string]bool{}
		for s := start; s != nil && s.OnError.Action == DeadLetter && !seen[s.Name]; {
			seen[s.Name] = true
			if s = g.sink(s.OnError.Sink); s == start {
				g.l.fault(g.p.root.at(below(s.Path, "on_error")), CodeCycle, fmt.Sprintf("dead letters of sink %s come back to it", s.Name), "write on_error: fail here, or name another sink")
			}
		}
	}
}

// readBack refuses sinks whose configuration says that dead letters in them cannot be
// found again.
func (g *graph) readBack() {
	for i := range g.p.Sinks {
		s := &g.p.Sinks[i]
		if !g.letters[s.Name] || s.Config == nil || s.Spec.Letters == nil {
			continue
		}
		var fault *connectors.FieldError
		if _, err := s.Spec.Letters(s.Config); errors.As(err, &fault) {
			g.p.Fault(s.ConfigPath(), fault)
		}
	}
}

// outputs lists the branches of a source or step that can be read, and whether
// one of them has to be chosen.
func (g *graph) outputs(name string) (branches []string, choose, found, broken bool) {
	for _, s := range g.p.Sources {
		if s.Name == name {
			return nil, false, true, false
		}
	}
	for _, t := range g.p.Transforms {
		if t.Name == name {
			if len(t.Branches) > 0 {
				return t.Branches, true, true, t.Config == nil
			}
			return t.Spec.Side, false, true, t.Config == nil
		}
	}
	return nil, false, false, false
}

func (g *graph) resolve(f *from) {
	g.broken = g.broken || f.broken
	var refs []Ref
	switch {
	case f.inputs && f.broken:
	case f.inputs:
		refs = g.ownInputs(f)
	case f.node == nil:
		refs = g.byDefault(f)
	case f.node.bad:
		g.broken = true
	case f.node.kind == listNode && len(f.node.items) > 0:
		for _, item := range f.node.items {
			refs = g.ref(f, item, refs)
		}
	case f.node.scalar() && f.node.kind != nullNode:
		refs = g.ref(f, f.node, nil)
	default:
		g.l.fault(f.node, CodeType, "from must name a source or step, not "+f.node.words(), "write from: NAME, or from: [A, B]")
	}
	for _, r := range refs {
		g.read[r] = true
	}
	if f.sink {
		g.p.Sinks[f.index].From = refs
	} else {
		g.p.Transforms[f.index].From = refs
	}
}

// byDefault is the item before a step, the last step before a sink.
func (g *graph) byDefault(f *from) []Ref {
	if f.sink && g.letters[f.name] {
		return nil
	}
	before := f.index - 1
	if f.sink {
		before = len(g.p.Transforms) - 1
	}
	if before >= 0 {
		t := g.p.Transforms[before]
		if len(t.Branches) > 0 {
			g.l.fault(f.at, CodeBranch, fmt.Sprintf("%s must say which branch it reads of %s", f.what, g.described(before)), g.branchHelp(t))
			return nil
		}
		return []Ref{{Node: t.Name}}
	}
	switch {
	case len(g.p.Sources) == 0 || g.l.incomplete:
		return nil
	case len(g.p.Sources) == 1:
		return []Ref{{Node: g.p.Sources[0].Name}}
	}
	names := keysOf(g.p.Sources, func(s Source) string { return s.Name })
	g.l.fault(f.at, CodeFrom, fmt.Sprintf("%s must say which of the sources it reads", f.what), "add from: "+strings.Join(names, " or from: "))
	return nil
}

// described names a step as its user knows it.
func (g *graph) described(i int) string {
	t := g.p.Transforms[i]
	if t.Named {
		return "step " + t.Name
	}
	return "the " + t.Kind + " before it"
}

func (g *graph) branchHelp(t Transform) string {
	if !t.Named {
		return fmt.Sprintf("give the %s a name, and add from: NAME.%s", t.Kind, t.Branches[0])
	}
	var all []string
	for _, b := range t.Branches {
		all = append(all, t.Name+"."+b)
	}
	return oneOfRefs("from", all)
}

func oneOfRefs(key string, all []string) string {
	slices.Sort(all)
	all = slices.Compact(all)
	return fmt.Sprintf("write %s: ", key) + strings.Join(all[:min(len(all), 10)], fmt.Sprintf(", or %s: ", key))
}

// ownInputs are what a step's configuration says that it reads.
func (g *graph) ownInputs(f *from) []Ref {
	t := &g.p.Transforms[f.index]
	written := References(t.Config)
	var refs []Ref
	for _, in := range t.Spec.Inputs(t.Config) {
		var n *node
		if i := slices.IndexFunc(written, func(r Reference) bool { return r.Ref == in }); i >= 0 {
			path := written[i].Path
			f.key = path[len(path)-1]
			n = g.p.root.at(below(t.ConfigPath(), path...))
			written = slices.Delete(written, i, i+1)
		}
		if n == nil {
			at, _, _ := g.p.walk(t.ConfigPath())
			g.l.fault(at, CodeMissing, f.what+" does not say all that it reads", "name a source or step for each of its inputs")
			continue
		}
		// One stream may be joined with itself.
		refs = append(refs, g.ref(f, n, nil)...)
	}
	return refs
}

// ref reads one name of a from.
func (g *graph) ref(f *from, n *node, refs []Ref) []Ref {
	if n.bad {
		g.broken = true
		return refs
	}
	if !n.scalar() || n.kind == nullNode {
		g.l.fault(n, CodeType, f.key+" must name a source or step, not "+n.words(), fmt.Sprintf("write %s: NAME", f.key))
		return refs
	}
	name, branch, chosen := strings.Cut(n.text, ".")
	r := Ref{name, branch}
	branches, choose, found, broken := g.outputs(name)
	switch {
	case !found:
		g.undefined(n, name)
		return refs
	case slices.Contains(refs, r):
		g.l.fault(n, CodeFrom, fmt.Sprintf("%s reads %s twice", f.what, r), "remove one of the two")
		return refs
	case broken:
		g.broken = true
	case chosen && !slices.Contains(branches, branch):
		help := fmt.Sprintf("%s has no branches: write %s: %s", name, f.key, name)
		if len(branches) > 0 {
			help = suggest(branch, branches)
		}
		g.l.fault(n, CodeBranch, fmt.Sprintf("%s has no branch %q", name, branch), help)
		return refs
	case !chosen && choose:
		var all []string
		for _, b := range branches {
			all = append(all, name+"."+b)
		}
		g.l.fault(n, CodeBranch, fmt.Sprintf("%s has branches, and one of them has to be chosen", name), oneOfRefs(f.key, all))
		return refs
	}
	return append(refs, r)
}

// undefined reports a name that nothing defines.
func (g *graph) undefined(n *node, name string) {
	if g.sink(name) != nil {
		g.l.fault(n, CodeUndefined, fmt.Sprintf("%s is a sink, and nothing can be read from one", name), "name a source or a step")
		return
	}
	names := keysOf(g.p.Sources, func(s Source) string { return s.Name })
	for _, t := range g.p.Transforms {
		if t.Named {
			names = append(names, t.Name)
		}
	}
	help := suggest(name, names)
	for _, t := range g.p.Transforms {
		if !t.Named && (t.Kind == name || t.Name == name) && connectors.Nearest(name, names) == "" {
			help = fmt.Sprintf("the %s has no name: add one to it", t.Kind)
		}
	}
	g.l.fault(n, CodeUndefined, fmt.Sprintf("there is no source or step %q", name), help)
}

// cycles reports each circle of steps once.
func (g *graph) cycles() {
	index := map[string]int{}
	for i, t := range g.p.Transforms {
		index[t.Name] = i
	}
	state := make([]int, len(g.p.Transforms)) // 0 new, 1 on the path, 2 done
	var path []int
	var visit func(i int)
	visit = func(i int) {
		state[i] = 1
		path = append(path, i)
		for _, r := range g.p.Transforms[i].From {
			j, ok := index[r.Node]
			switch {
			case !ok || state[j] == 2:
			case state[j] == 0:
				visit(j)
			default:
				g.cycle(path[slices.Index(path, j):])
			}
		}
		path = path[:len(path)-1]
		state[i] = 2
	}
	for i := range g.p.Transforms {
		if state[i] == 0 {
			visit(i)
		}
	}
}

// cycle reports one circle; loop goes against the way of the records.
func (g *graph) cycle(loop []int) {
	slices.Reverse(loop)
	first := slices.Index(loop, slices.Min(loop))
	var names []string
	for i := range loop {
		names = append(names, g.p.Transforms[loop[(first+i)%len(loop)]].Name)
	}
	names = append(names, names[0])
	t := g.p.Transforms[loop[first]]
	at := g.p.root.at(below(t.Path, "from"))
	if at == nil {
		at = g.readAt(t, names[1:])
	}
	g.l.fault(at, CodeCycle, "steps read each other in a circle: "+strings.Join(names, " → "), "let one of them read a source")
}

// readAt is where a step's configuration names one of the steps, or the step.
func (g *graph) readAt(t Transform, names []string) *node {
	if t.Spec.Inputs != nil {
		for _, r := range References(t.Config) {
			name, _, _ := strings.Cut(string(r.Ref), ".")
			if at := g.p.root.at(below(t.ConfigPath(), r.Path...)); at != nil && slices.Contains(names, name) {
				return at
			}
		}
	}
	return g.p.root.at(t.Path)
}

// unread reports what nothing reads.
func (g *graph) unread() {
	for _, s := range g.p.Sources {
		if !g.read[Ref{Node: s.Name}] {
			at, _, _ := g.p.walk(s.Path)
			what := "source " + s.Name
			if len(s.Path) == 1 {
				what = "the source"
			}
			g.l.fault(at, CodeUnread, "nothing reads "+what, fmt.Sprintf("add from: %s to a step or sink, or remove the source", s.Name))
		}
	}
	for i, t := range g.p.Transforms {
		if t.Branches == nil {
			if !g.read[Ref{Node: t.Name}] {
				at, _, _ := g.p.walk(t.ConfigPath())
				what := "step " + t.Name
				if !t.Named {
					what = fmt.Sprintf("step %d", i+1)
				}
				g.l.warn(at, CodeStepUnread, fmt.Sprintf("nothing reads %s, so its records go nowhere", what), "let a step or sink read it, or remove it")
			}
			continue
		}
		for _, b := range keysOf(t.Branches, func(b string) string { return b }) {
			if !g.read[Ref{t.Name, b}] {
				at, _, _ := g.p.walk(below(t.ConfigPath(), b))
				g.l.warn(at, CodeStepUnread, fmt.Sprintf("nothing reads branch %s of step %s, so its records go nowhere", b, t.Name), fmt.Sprintf("let a step or sink read it: from: %s.%s", t.Name, b))
			}
		}
	}
}
