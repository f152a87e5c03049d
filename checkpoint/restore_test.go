package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/local"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// chk is the name of a file of checkpoint n on storage.
func (p *process) chk(n uint64, name string) string {
	return fmt.Sprintf("orders/%s/chk-%d/%s", p.job.ID(), n, name)
}

// stateName is the name of the state file of checkpoint n.
func stateName(t *testing.T, f storage.FS, p *process, n uint64) string {
	t.Helper()
	for _, name := range names(t, f, "orders/"+p.job.ID()+"/shared") {
		if strings.Contains(name, fmt.Sprintf("/%d-%d-", p.g, n)) {
			return name
		}
	}
	t.Fatalf("checkpoint %d has no state file", n)
	return ""
}

// files are the two kinds of file that a checkpoint needs.
func checkpointFiles(t *testing.T, f storage.FS, p *process, n uint64) map[string]string {
	return map[string]string{"metadata": p.chk(n, "_metadata"), "state": stateName(t, f, p, n)}
}

func TestEveryDamageIsFoundAndTheOneBeforeIsUsed(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(3)
	for kind, name := range checkpointFiles(t, f, p, 3) {
		info, err := f.Stat(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		other, err := storage.ReadFile(t.Context(), f, checkpointFiles(t, f, p, 2)[kind], 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		damages := append(checkpointtest.All(int(info.Size)), checkpointtest.Swap(other))
		for at := range int(info.Size) {
			damages = append(damages, checkpointtest.Flip(at), checkpointtest.Truncate(at))
		}
		whole, err := storage.ReadFile(t.Context(), f, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range damages {
			if err := d.Do(t.Context(), f, name); err != nil {
				t.Fatal(err)
			}
			sv, err := s.Survey(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Choose(t.Context(), sv, checkpoint.Request{})
			if err != nil || r.Meta == nil || r.Meta.Number != 2 || len(r.Skipped) != 1 || r.NextNumber != 4 {
				t.Fatalf("%s %s: restored %+v, %v", kind, d.Name, r, err)
			}
			var damage *checkpoint.DamageError
			if err := r.Skipped[0].Err; !errors.As(err, &damage) || damage.File != name || r.Skipped[0].Number != 3 {
				t.Fatalf("%s %s: skipped because of %v", kind, d.Name, err)
			}
			if _, err := s.Choose(t.Context(), sv, checkpoint.Request{From: p.path(3)}); err == nil {
				t.Fatalf("%s %s: the damaged one was restored by its path", kind, d.Name)
			}
			if err := f.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if err := storage.WriteFile(t.Context(), f, name, whole); err != nil {
				t.Fatal(err)
			}
		}
	}
	start(t, s, "").wantRestored(1, 3)
}

func TestAnOlderCheckpointIsTakenOnlyWhereNothingIsPublishedTwice(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(3)
	if err := checkpointtest.Zero().Do(t.Context(), f, p.chk(3, "_metadata")); err != nil {
		t.Fatal(err)
	}
	witness := id(1, 3)
	var asked []checkpoint.ID
	req := checkpoint.Request{Behind: func(ctx context.Context, r checkpoint.ID) (string, error) {
		asked = append(asked, r)
		sv, err := s.Survey(ctx)
		if err != nil || !sv.Owners.Behind(r, witness) {
			return "", err
		}
		return fmt.Sprintf("sink out has published up to %d", witness.Number), nil
	}}
	err := refused(t, s, req)
	if !errors.Is(err, checkpoint.ErrBehind) {
		t.Fatalf("got %v", err)
	}
	wantSays(t, err, "checkpoint 3 cannot be read", "checkpoint 2 before it", "published up to 3", "--accept-duplicates", "checksum")
	witness = id(1, 2)
	q, err := begin(t.Context(), s, req)
	if err != nil {
		t.Fatal(err)
	}
	q.t = t
	q.wantRestored(1, 2)
	witness, req.AcceptDuplicates = id(1, 3), true
	if q, err = begin(t.Context(), s, req); err != nil || q.r.Meta.Number != 2 {
		t.Fatalf("with duplicates accepted: %v", err)
	}
	if len(asked) != 3 || asked[0] != id(1, 2) {
		t.Errorf("it asked about %v", asked)
	}
}

func TestAFaultOfTheStorageIsNoDamage(t *testing.T) {
	f := storagetest.Faulty(mem.New(), 1)
	s := newStore(t, f, checkpoint.StoreOptions{})
	p := start(t, s, "").take(2)
	for _, glob := range []string{"_metadata", "1-2-*", "owner-1.json"} {
		f.Set(storagetest.Rule{Op: storagetest.OpOpen, Glob: glob, Nth: 1})
		if q, err := begin(t.Context(), s, checkpoint.Request{}); err == nil {
			t.Errorf("%s cannot be reached, and it restored %+v", glob, q.r)
		}
	}
	_ = p
}

func TestWhereNothingCanBeReadTheStartIsRefused(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(2)
	for n := uint64(1); n <= 2; n++ {
		if err := checkpointtest.Drop().Do(t.Context(), f, stateName(t, f, p, n)); err != nil {
			t.Fatal(err)
		}
	}
	err := refused(t, s, checkpoint.Request{})
	if !errors.Is(err, checkpoint.ErrNoRestore) {
		t.Fatalf("got %v", err)
	}
	wantSays(t, err, "chk-2", "missing", "-s PATH", "--from none")
}

func TestACommittedCheckpointWithoutMetadataIsNotPassedOver(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(2)
	if err := f.Remove(t.Context(), p.chk(2, "_metadata")); err != nil {
		t.Fatal(err)
	}
	err := refused(t, s, checkpoint.Request{Behind: func(context.Context, checkpoint.ID) (string, error) { return "published", nil }})
	wantSays(t, err, "checkpoint 2", "missing")
}

func TestAnIncompleteCheckpointDoesNotCount(t *testing.T) {
	_, s := memory(t)
	p := start(t, s, "").take(1)
	if _, err := p.job.Claim(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := p.metadata(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	q := start(t, s, "").wantRestored(1, 1)
	if q.r.NextNumber != 3 {
		t.Errorf("it begins with %d, which is claimed", q.r.NextNumber)
	}
}

// What is restored before the current job has a checkpoint of its own.
func TestANewJobThatCrashesAtOnceGoesOnFromWhatItRestored(t *testing.T) {
	for _, c := range []struct {
		name string
		from func(p *process) string
		n    uint64
	}{
		{"a path", func(p *process) string { return p.path(2) }, 2},
		{"nothing", func(*process) string { return checkpoint.FromNone }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, s := memory(t)
			first := start(t, s, "").take(3)
			user := start(t, s, c.from(first)).wantRestored(1, c.n)
			again := start(t, s, "").wantRestored(1, c.n)
			third := start(t, s, "").wantRestored(1, c.n)
			if again.job.ID() != user.job.ID() || third.job.ID() != user.job.ID() || again.r.NextNumber != c.n+1 {
				t.Fatalf("the restart is %+v", again.r)
			}
			if !again.r.NewJob || !third.r.NewJob {
				t.Error("the job's first checkpoint is not going to be written")
			}
			third.take(1)
			if last := start(t, s, "").wantRestored(third.g, c.n+1); last.r.NewJob {
				t.Error("the job begins anew")
			}
		})
	}
}

func TestLifeOfAJob(t *testing.T) {
	for _, c := range []struct {
		how  checkpoint.How
		want error
		says []string
	}{
		{checkpoint.Finished, checkpoint.ErrFinished, []string{"read to the end", "-s mem://", "chk-2", "--from none"}},
		{checkpoint.Cancelled, checkpoint.ErrCancelled, []string{"cancelled", "-s mem://", "chk-2", "--from none"}},
		{checkpoint.Stopped, nil, nil},
	} {
		t.Run(string(c.how), func(t *testing.T) {
			f, s := memory(t)
			p := start(t, s, "").take(2)
			if err := p.job.End(t.Context(), checkpoint.Ended{How: c.how, Path: p.path(2)}); err != nil {
				t.Fatal(err)
			}
			if err := p.job.End(t.Context(), checkpoint.Ended{How: c.how, Path: p.path(2)}); err != nil {
				t.Fatalf("the same again: %v", err)
			}
			before := len(names(t, f, ""))
			if c.want != nil {
				err := refused(t, s, checkpoint.Request{})
				if !errors.Is(err, c.want) {
					t.Fatalf("got %v", err)
				}
				wantSays(t, err, c.says...)
				if after := len(names(t, f, "")); after != before {
					t.Error("a refused start wrote something")
				}
			} else {
				next := start(t, s, "").wantRestored(1, 2)
				if !next.r.NewJob || next.job.ID() == p.job.ID() || next.r.NextNumber != 3 {
					t.Fatalf("the next run is %+v", next.r)
				}
				// It crashes before its first checkpoint.
				start(t, s, "").wantRestored(1, 2)
			}
			named := start(t, s, p.path(2)).wantRestored(1, 2)
			if !named.r.NewJob {
				t.Error("it goes on with a job that has ended")
			}
		})
	}
}

func TestAnEndThatALaterOwnerWentOnAfterIsVoid(t *testing.T) {
	_, s := memory(t)
	old := start(t, s, "").take(1)
	// The end is written while another start has read that there is none.
	sv, err := s.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := old.job.End(t.Context(), checkpoint.Ended{How: checkpoint.Cancelled}); err != nil {
		t.Fatal(err)
	}
	g, err := s.TakeNext(t.Context(), sv)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Choose(t.Context(), sv, checkpoint.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WriteOwner(t.Context(), g, r.Owner()); err != nil {
		t.Fatal(err)
	}
	third := start(t, s, "").wantRestored(1, 1)
	if third.job.ID() != old.job.ID() {
		t.Fatal("the job did not go on")
	}
	third.take(1)
	if err := third.job.End(t.Context(), checkpoint.Ended{How: checkpoint.Finished}); err != nil {
		t.Fatalf("the void record is in the way: %v", err)
	}
	if err := refused(t, s, checkpoint.Request{}); !errors.Is(err, checkpoint.ErrFinished) {
		t.Fatalf("got %v", err)
	}
}

func TestAStoppedJobsLostSavepointFallsBackToItsCheckpoint(t *testing.T) {
	_, s := memory(t)
	p := start(t, s, "").take(2)
	if err := p.job.End(t.Context(), checkpoint.Ended{How: checkpoint.Stopped, Path: "mem://gone/savepoint-1"}); err != nil {
		t.Fatal(err)
	}
	published := ""
	req := checkpoint.Request{Behind: func(context.Context, checkpoint.ID) (string, error) { return published, nil }}
	q, err := begin(t.Context(), s, req)
	if err != nil || !q.r.NewJob || q.r.Meta.Number != 2 || len(q.r.Skipped) != 1 {
		t.Fatalf("got %+v, %v", q, err)
	}
}

func TestACheckpointInAnotherOnesFolderIsDamage(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(2)
	data, err := storage.ReadFile(t.Context(), f, p.chk(1, "_metadata"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"orders/" + p.job.ID() + "/chk-7", "orders/" + someJob + "/chk-1", "copies/chk-2"} {
		for name, data := range map[string][]byte{"_metadata": data, "_committed": nil} {
			if err := storage.WriteFile(t.Context(), f, dir+"/"+name, data); err != nil {
				t.Fatal(err)
			}
		}
		wantSays(t, refused(t, s, checkpoint.Request{From: f.URL() + "/" + dir}), "checkpoint 1 of job "+p.job.ID())
	}
}

func TestEveryFormOfAPathIsUnderstood(t *testing.T) {
	dir := t.TempDir()
	f, err := local.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, f, checkpoint.StoreOptions{})
	p := start(t, s, "").take(1)
	chk := filepath.Join(dir, "orders", p.job.ID(), "chk-1")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	rel, err := filepath.Rel(wd, chk)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{chk, chk + "/", chk + "/_metadata", "file://" + chk, "file://" + chk + "/_metadata", rel, rel + "/_metadata",
		filepath.Join(link, "orders", p.job.ID(), "chk-1"), p.path(1)} {
		t.Run(from, func(t *testing.T) {
			if q := start(t, s, from).wantRestored(1, 1); q.r.Foreign {
				t.Error("it is taken for another pipeline's")
			}
		})
	}
	for from, says := range map[string]string{
		filepath.Dir(chk):        "chk-1",
		dir + "/nothing":         "no checkpoint",
		chk + "/_metadata/x":     "no checkpoint",
		"gopher://bucket/chk-1":  `no scheme "gopher", only `,
		"file://" + "host/chk-1": "file:///host",
	} {
		t.Run(from, func(t *testing.T) { wantSays(t, refused(t, s, checkpoint.Request{From: from}), says, from) })
	}
}

func TestAnotherPipelinesCheckpointNeedsItsProof(t *testing.T) {
	f := mem.New()
	theirs := newStore(t, f, checkpoint.StoreOptions{})
	p := start(t, theirs, "").take(1)
	n, err := p.complete(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := checkpoint.NewStore(f, "copy", checkpoint.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantSays(t, refused(t, ours, checkpoint.Request{From: p.path(n)}), "pipeline orders", "_committed", "savepoint")
	q := start(t, ours, p.path(1)).wantRestored(1, 1)
	if !q.r.Foreign || len(q.r.Meta.Committables) != 0 || !q.r.NewJob || q.r.NextNumber != 2 {
		t.Fatalf("the start is %+v", q.r)
	}
	if o := q.r.Owner(); !o.Foreign || o.RestoredJob != p.job.ID() {
		t.Errorf("the record is %+v", o)
	}
	// It crashes at once; its own generation 1 is another one than theirs.
	again := start(t, ours, "").wantRestored(1, 1)
	if !again.r.Foreign || again.job.ID() != q.job.ID() {
		t.Errorf("the restart is %+v", again.r)
	}
}

func TestACopiedFolderWorksWhereItLies(t *testing.T) {
	dir := t.TempDir()
	f, err := local.New(dir + "/a")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, newStore(t, f, checkpoint.StoreOptions{}), "").take(1)
	if err := os.CopyFS(dir+"/b", os.DirFS(dir+"/a/orders")); err != nil {
		t.Fatal(err)
	}
	g, err := local.New(dir + "/c")
	if err != nil {
		t.Fatal(err)
	}
	q := start(t, newStore(t, g, checkpoint.StoreOptions{}), dir+"/b/"+p.job.ID()+"/chk-1").wantRestored(1, 1)
	if !q.r.Foreign {
		t.Error("its generation is taken for one of this storage")
	}
}

func TestWhatTheFirstCheckpointOfANewJobCopiesNeedsNothingOfTheOld(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(2)
	q := start(t, s, p.path(2))
	if _, err := q.job.Claim(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	ops, err := q.job.Copy(t.Context(), 3, q.r)
	if err != nil {
		t.Fatal(err)
	}
	m, err := q.metadata(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	m.Kind, m.Operators, m.Committables = checkpoint.Initial, ops, nil
	if err := q.job.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := f.RemoveAll(t.Context(), "orders/"+p.job.ID()); err != nil {
		t.Fatal(err)
	}
	r := start(t, s, "")
	file := r.r.Meta.Operators[0].Subtasks[0].Files[0]
	if got := r.read(file); got != "state of 2 by 1" {
		t.Errorf("its state is %q", got)
	}
	if got := string(r.r.Meta.Operators[0].Subtasks[0].State); got != fmt.Sprintf(`{"file":%q}`, file.Path) {
		t.Errorf("the state names %s, the file is %s", got, file.Path)
	}
}

func TestGarbageInThePipelinesFolderIsPassedOver(t *testing.T) {
	f, s := memory(t)
	for _, name := range []string{"owner-x", "owner-007", "owner-0", "owner-", "owner--1", "owner-1.json.tmp", "owner-99999999999999999999", "notes.txt",
		"not-a-job/chk-1/_metadata", "owner-5/file"} {
		if err := storage.WriteFile(t.Context(), f, "orders/"+name, []byte("garbage")); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, s, "").take(2)
	if p.g != 1 {
		t.Errorf("it took generation %d", p.g)
	}
	for _, name := range []string{"chk-x/_metadata", "chk-03/_metadata", "chk-0/_metadata", "shared/notes", "shared/1-1-xyz", "chk-2/notes"} {
		if err := storage.WriteFile(t.Context(), f, "orders/"+p.job.ID()+"/"+name, []byte("garbage")); err != nil {
			t.Fatal(err)
		}
	}
	start(t, s, "").wantRestored(1, 2)
}

func TestADamagedRecordStopsAStartThatDependsOnIt(t *testing.T) {
	for _, record := range []string{"owner-2.json", "JOB/ended.json"} {
		t.Run(record, func(t *testing.T) {
			f, s := memory(t)
			p := start(t, s, "").take(1)
			start(t, s, "")
			if err := p.store.WriteOwner(t.Context(), 2, p.r.Owner()); err == nil {
				t.Fatal("a record was replaced")
			}
			name := "orders/" + strings.Replace(record, "JOB", p.job.ID(), 1)
			if strings.HasPrefix(record, "JOB") {
				if err := storage.WriteFile(t.Context(), f, name, []byte("half a rec")); err != nil {
					t.Fatal(err)
				}
			} else if err := checkpointtest.Flip(20).Do(t.Context(), f, name); err != nil {
				t.Fatal(err)
			}
			wantSays(t, refused(t, s, checkpoint.Request{}), name, "-s PATH")
			start(t, s, p.path(1)).wantRestored(1, 1)
		})
	}
}

func TestAStartWithoutTheOwnersRecordsIsRefusedWhereThereAreJobs(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "").take(2)
	for _, name := range names(t, f, "orders") {
		if strings.HasPrefix(name, "orders/owner-") && strings.HasSuffix(name, ".json") {
			if err := f.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	sv, err := s.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), sv, checkpoint.Request{}); err == nil || !strings.Contains(err.Error(), p.job.ID()) {
		t.Errorf("a start by itself: %v", err)
	}
	for _, from := range []string{checkpoint.FromNone, p.path(2)} {
		if err := s.Check(t.Context(), sv, checkpoint.Request{From: from}); err != nil {
			t.Errorf("a start from %s: %v", from, err)
		}
	}
}
