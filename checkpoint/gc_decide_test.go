package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// gcNow is the time of the decisions; everything is two days old unless a test says otherwise.
var (
	gcNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	gcOld = gcNow.Add(-48 * time.Hour)
)

func job(c string) string { return strings.Repeat(c, 32) }

func gcFile(name string, at time.Time) storage.Info {
	return storage.Info{Name: name, Size: 10, Modified: at}
}

// gcChk is a checkpoint of generation 1 that refers to shared files.
func gcChk(job string, n uint64, refs ...string) chkFiles {
	m := &Metadata{Job: job, Generation: 1, Number: n, Kind: Periodic}
	op := Operator{UID: "op"}
	for _, r := range refs {
		op.KeyGroups = append(op.KeyGroups, KeyGroups{File: connectors.StateFile{Path: "../shared/" + r}})
	}
	m.Operators = []Operator{op}
	dir := job + "/" + chkName(n) + "/"
	return chkFiles{
		Found: Found{Job: job, Number: n, Claimed: true, Complete: true, Committed: true, Meta: m},
		files: []storage.Info{gcFile(dir+"_metadata", gcOld), gcFile(dir+"claim", gcOld)},
	}
}

func gcClaim(job string, n uint64, at time.Time) chkFiles {
	return chkFiles{Found: Found{Job: job, Number: n, Claimed: true}, files: []storage.Info{gcFile(job+"/"+chkName(n)+"/claim", at)}}
}

// gcWorld has an old job a and the current one b, of generation 2 after a's 1.
func gcWorld() *inventory {
	a, b := job("a"), job("b")
	shared := func(j string, names ...string) (out []storage.Info) {
		for _, n := range names {
			out = append(out, gcFile(j+"/shared/"+n, gcOld))
		}
		return out
	}
	inv := &inventory{highest: 2, current: b, owners: Lineage{
		1: {Generation: 1, Job: a, ChosenBy: ByItself},
		2: {Generation: 2, Job: b, ChosenBy: ByUser, RestoredJob: a, Restored: &ID{Generation: 1, Number: 2}},
	}}
	inv.jobs = []jobFiles{
		{id: a, checkpoints: []chkFiles{gcChk(a, 1, "1-1-aa"), gcChk(a, 2, "1-1-aa", "1-2-aa")}, shared: shared(a, "1-1-aa", "1-2-aa")},
		{id: b, checkpoints: []chkFiles{gcClaim(b, 3, gcOld), gcChk(b, 4, "2-4-aa"), gcChk(b, 5, "2-4-aa", "2-5-aa")},
			shared: shared(b, "2-3-aa", "2-3-bb", "2-4-aa", "2-5-aa", "2-5-bb", "2-6-aa", "3-1-aa")},
	}
	for i := range inv.jobs[1].checkpoints {
		if m := inv.jobs[1].checkpoints[i].Meta; m != nil {
			m.Generation = 2
		}
	}
	return inv
}

// short makes job ids readable.
func short(s string) string {
	return strings.NewReplacer(job("a"), "A", job("b"), "B", job("c"), "C").Replace(s)
}

func TestWhatIsGarbage(t *testing.T) {
	young := gcNow.Add(-time.Hour)
	all := "attempt B/chk-3 1, files B/shared/2-3-* 2, files B/shared/2-5-* 1, job A 6"
	for _, c := range []struct {
		name   string
		change func(*inventory, *GCOptions)
		want   string // what, path and files of the items
		kept   string // a part of the reason of one that stays
	}{
		{"old jobs, dead attempts and loose files", func(*inventory, *GCOptions) {}, all, ""},
		{"nothing without a current job", func(inv *inventory, _ *GCOptions) { inv.jobs, inv.current = nil, "" }, "", ""},
		{"jobs that are to stay", func(_ *inventory, o *GCOptions) { o.KeepJobs = 1 },
			"attempt B/chk-3 1, files B/shared/2-3-* 2, files B/shared/2-5-* 1", "newest 1 jobs"},
		{"the younger old job stays", func(inv *inventory, o *GCOptions) {
			o.KeepJobs = 1
			inv.jobs = append(inv.jobs, jobFiles{id: job("c"), checkpoints: []chkFiles{gcChk(job("c"), 1)}})
			inv.jobs[2].checkpoints[0].files[0].Modified = gcOld.Add(time.Hour)
		}, all, "newest 1 jobs"},
		{"an old job that was written to lately", func(inv *inventory, _ *GCOptions) { inv.jobs[0].shared[0].Modified = young },
			"attempt B/chk-3 1, files B/shared/2-3-* 2, files B/shared/2-5-* 1", "within the last 24h0m0s"},
		{"an old job with a stranger's file", func(inv *inventory, _ *GCOptions) { inv.jobs[0].strange = []string{"notes.txt"} },
			"attempt B/chk-3 1, files B/shared/2-3-* 2, files B/shared/2-5-* 1", "notes.txt"},
		{"an old job with damaged metadata", func(inv *inventory, _ *GCOptions) {
			c := &inv.jobs[0].checkpoints[0]
			c.Meta, c.Err = nil, errors.New("flipped")
		}, "attempt B/chk-3 1, files B/shared/2-3-* 2, files B/shared/2-5-* 1", "checkpoint 1 cannot be read: flipped"},
		{"a process that starts may restore an old job", func(inv *inventory, _ *GCOptions) { inv.silent, inv.silentAt = true, young },
			"attempt B/chk-3 1, files B/shared/2-3-* 2, files B/shared/2-5-* 1", "is starting"},
		{"also without grace", func(inv *inventory, o *GCOptions) { inv.silent, inv.silentAt, o.Grace = true, gcNow, 0 },
			"attempt B/chk-3 1, files B/shared/2-3-* 2, files B/shared/2-5-* 1", "is starting"},
		{"one that never went on from there does not hold it for ever", func(inv *inventory, _ *GCOptions) { inv.silent, inv.silentAt = true, gcOld }, all, ""},
		{"what the current job began with, before it has a checkpoint", func(inv *inventory, _ *GCOptions) {
			inv.jobs[1].checkpoints, inv.jobs[1].shared = nil, nil
		}, "", "began with a checkpoint of it"},
		{"what the current job began with, while it has its first only", func(inv *inventory, _ *GCOptions) {
			b := &inv.jobs[1]
			b.checkpoints, b.shared = b.checkpoints[2:], nil
			b.checkpoints[0].Meta.Kind = Initial
		}, "", "began with a checkpoint of it"},
		{"another job's beginning does not count", func(inv *inventory, _ *GCOptions) {
			o := inv.owners[2]
			o.Job = job("c")
			inv.owners[2] = o
			inv.jobs[1].checkpoints, inv.jobs[1].shared = nil, nil
		}, "job A 6", ""},
		{"no loose files beside damaged metadata", func(inv *inventory, _ *GCOptions) {
			c := &inv.jobs[1].checkpoints[1]
			c.Meta, c.Err = nil, errors.New("flipped")
		}, "job A 6", "checkpoint 4 cannot be read"},
		{"no loose files while a checkpoint is taken", func(inv *inventory, _ *GCOptions) {
			inv.jobs[1].checkpoints = append(inv.jobs[1].checkpoints, gcClaim(job("b"), 6, gcNow))
		}, "attempt B/chk-3 1, job A 6", "is being taken"},
		{"what an ended job left behind", func(inv *inventory, _ *GCOptions) {
			inv.jobs[1].checkpoints = append(inv.jobs[1].checkpoints, gcClaim(job("b"), 6, gcOld))
			inv.jobs[1].ended = true
		}, all, ""},
		{"nothing of a job that has proven nothing", func(inv *inventory, _ *GCOptions) {
			for i := range inv.jobs[1].checkpoints {
				inv.jobs[1].checkpoints[i].Committed = false
			}
		}, "", "began with"},
		{"an orphan proves nothing and is needed all the same", func(inv *inventory, _ *GCOptions) {
			inv.jobs[1].checkpoints[2].Orphan = true
		}, "attempt B/chk-3 1, files B/shared/2-3-* 2, job A 6", ""},
		{"attempts of older generations are over", func(inv *inventory, _ *GCOptions) {
			inv.jobs[1].checkpoints[2].Meta.Generation = 3
		}, "attempt B/chk-3 1, files B/shared/2-3-* 2, files B/shared/2-5-* 1, files B/shared/2-6-* 1, files B/shared/3-1-* 1, job A 6", ""},
		{"the grace counts for each file", func(inv *inventory, _ *GCOptions) {
			inv.jobs[1].shared[0].Modified = young
			inv.jobs[1].checkpoints[0].files[0].Modified = young
		}, "files B/shared/2-3-* 1, files B/shared/2-5-* 1, job A 6", ""},
		{"what is left of a checkpoint whose removal broke off", func(inv *inventory, _ *GCOptions) {
			c := &inv.jobs[1].checkpoints[1]
			c.Meta, c.Complete = nil, false
		}, "attempt B/chk-3 1, attempt B/chk-4 2, files B/shared/2-3-* 2, files B/shared/2-5-* 1, job A 6", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			inv, opts := gcWorld(), GCOptions{Grace: 24 * time.Hour}
			c.change(inv, &opts)
			g := decideGarbage(inv, opts, gcNow)
			var got []string
			for _, it := range g.Items {
				got = append(got, fmt.Sprintf("%s %s %d", it.What, short(it.Path), it.Files))
			}
			slices.Sort(got)
			if strings.Join(got, ", ") != c.want {
				t.Errorf("garbage is\n%s, want\n%s", strings.Join(got, ", "), c.want)
			}
			kept := fmt.Sprint(g.Kept)
			if !strings.Contains(kept, c.kept) || c.kept == "" && len(g.Kept) > 0 {
				t.Errorf("kept are %s, want %q", kept, c.kept)
			}
		})
	}
}

func TestTheOldestGarbageGoesFirst(t *testing.T) {
	inv := gcWorld()
	inv.jobs[0].shared[0].Modified = gcOld.Add(time.Hour)
	inv.jobs[1].checkpoints[0].files[0].Modified = gcOld.Add(-time.Hour)
	g := decideGarbage(inv, GCOptions{}, gcNow)
	if first, last := short(g.Items[0].Path), short(g.Items[len(g.Items)-1].Path); first != "B/chk-3" || last != "A" {
		t.Errorf("%s goes first and %s last", first, last)
	}
}
