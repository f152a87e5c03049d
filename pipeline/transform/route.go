package transform

import (
	"context"
	"errors"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// elseBranch is the key that names the branch of what matches nothing.
const elseBranch = "else"

// RouteConfig is the block of a route.
type RouteConfig struct {
	Branches connectors.Assignments `key:"." doc:"Branch names, each with a condition; the first that is true takes the record. else names the branch of the rest, without which the rest is dropped and counted." required:"true"`
}

func init() {
	Register(Spec{
		Updates:   PassesUpdates,
		Name:      "route",
		Doc:       "Sends each record to the first branch whose condition is true.",
		NewConfig: func() any { return &RouteConfig{} },
		Branches:  routeBranches,
		Build:     buildRoute,
	})
}

func routeBranches(config any) []string {
	var names []string
	for _, b := range config.(*RouteConfig).Branches {
		if b.Name == elseBranch {
			names = append(names, b.Expr.Text)
		} else {
			names = append(names, b.Name)
		}
	}
	return names
}

type route struct {
	name     string
	branches []routeBranch
	rest     int // output of what matches nothing, -1 for none
}

type routeBranch struct {
	text       string
	cond       *expr.Program
	output     int
	tombstones bool
}

func buildRoute(config any, env *Env) Step {
	s := &route{name: env.Name, rest: -1}
	for i, b := range config.(*RouteConfig).Branches {
		env.Output(env.In)
		if b.Name == elseBranch {
			s.rest = i
			continue
		}
		p := env.Compile(b.Expr, expr.Bool, b.Name)
		if p != nil {
			s.branches = append(s.branches, routeBranch{b.Expr.Text, p, i, p.ReadsTombstone()})
		}
	}
	if len(env.Outputs()) == 0 {
		env.fault(nil, errors.New("there is no branch in it"))
	}
	if env.faulted {
		return nil
	}
	return s
}

func (s *route) Start(env RunEnv) Instance {
	r := &routeRun{route: s, env: env, taken: make([]bool, connectors.MaxBatch)}
	for _, b := range s.branches {
		r.failed = append(r.failed, newFailures(s.name, b.text))
	}
	return r
}

type routeRun struct {
	*route
	env    RunEnv
	failed []*failures
	tried  []uint16
	taken  []bool // by row; all false between calls
}

func (r *routeRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	for i := range r.branches {
		br := &r.branches[i]
		left := sel
		r.tried = append(r.tried[:0], sel...)
		tried := r.tried
		if !br.tombstones {
			tried = dropTombstones(b, tried)
		}
		hit := br.cond.Filter(r.env.Exprs, b, tried, r.failed[i].add)
		for _, row := range hit {
			r.taken[row] = true
		}
		for _, row := range r.failed[i].rows {
			r.taken[row] = true
		}
		n := 0
		for _, row := range left {
			if r.taken[row] {
				r.taken[row] = false
				continue
			}
			sel[n] = row
			n++
		}
		sel = sel[:n]
		if err := r.failed[i].report(ctx, &r.env, b); err != nil {
			return err
		}
		if len(hit) > 0 {
			if err := r.env.Emit(ctx, br.output, b, hit); err != nil {
				return err
			}
		}
		if len(sel) == 0 {
			return nil
		}
	}
	if r.rest < 0 {
		r.env.Dropped(len(sel))
		return nil
	}
	return r.env.Emit(ctx, r.rest, b, sel)
}
