package checkpoint_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
)

func id(g, n uint64) checkpoint.ID { return checkpoint.ID{Generation: g, Number: n} }

// line is an owner that went on from a checkpoint by itself, chosen one that a user named.
func line(g, n uint64) checkpoint.Owner {
	r := id(g, n)
	return checkpoint.Owner{Restored: &r, ChosenBy: checkpoint.ByItself}
}

func chosen(g, n uint64) checkpoint.Owner {
	o := line(g, n)
	o.ChosenBy = checkpoint.ByUser
	return o
}

// of and from name the jobs of an owner.
func of(job string, o checkpoint.Owner) checkpoint.Owner { o.Job = job; return o }

func from(job string, o checkpoint.Owner) checkpoint.Owner { o.RestoredJob = job; return o }

var (
	anew       = checkpoint.Owner{ChosenBy: checkpoint.ByItself}
	anewByUser = checkpoint.Owner{ChosenBy: checkpoint.ByUser}
)

// The histories that the tables are about.
var (
	// 1 took 1 to 5; 2 went on from 5 and took 6 to 8; 3 from 8.
	straight = checkpoint.Lineage{1: anew, 2: line(1, 5), 3: line(2, 8)}
	// As above, but 3 had to go back to 1's checkpoint 4.
	back = checkpoint.Lineage{1: anew, 2: line(1, 5), 3: line(1, 4)}
	// 2 took nothing, and 3 started from the same checkpoint.
	idle = checkpoint.Lineage{1: anew, 2: line(1, 5), 3: line(1, 5)}
	// A user went back to 3, and the line goes on from there.
	userBack = checkpoint.Lineage{1: anew, 2: line(1, 5), 3: chosen(1, 3), 4: line(3, 9)}
	// A user started anew.
	fromNone = checkpoint.Lineage{1: anew, 2: line(1, 5), 3: anewByUser, 4: line(3, 2)}
	// A user went back and then forth again.
	forth = checkpoint.Lineage{1: anew, 2: chosen(1, 3), 3: chosen(1, 5)}
	// The record of 2 is lost.
	gap = checkpoint.Lineage{1: anew, 3: line(2, 8)}
	// A savepoint of another pipeline, whose generation means nothing here.
	foreign = checkpoint.Lineage{1: anew, 2: func() checkpoint.Owner { o := chosen(1, 5); o.Foreign = true; return o }()}
	// 2 was started by a user who named 1's checkpoint 3, and fell asleep before it wrote
	// that down: 3 had gone on from 5 by then.
	late = checkpoint.Lineage{1: of("a", anew), 2: of("b", chosen(1, 3)), 3: of("a", line(1, 5))}
	// As above, but it was awake, and died before its job's first checkpoint.
	inherited = checkpoint.Lineage{1: of("a", anew), 2: of("b", chosen(1, 3)), 3: of("b", line(1, 3))}
	// Its job was stopped, and the next one came from it by itself.
	descended = checkpoint.Lineage{1: of("a", anew), 2: of("b", chosen(1, 3)), 3: of("c", from("b", line(2, 4)))}
	// Records that cannot be.
	looped = checkpoint.Lineage{1: line(2, 5), 2: line(2, 5), 3: line(1, 7)}
)

func TestProven(t *testing.T) {
	for _, c := range []struct {
		name    string
		l       checkpoint.Lineage
		witness checkpoint.ID
		id      checkpoint.ID
		want    bool
	}{
		{"its own number", straight, id(1, 5), id(1, 5), true},
		{"a later number of its generation", straight, id(1, 5), id(1, 4), true},
		{"an earlier number", straight, id(1, 4), id(1, 5), false},
		{"a generation that went on from it", straight, id(2, 6), id(1, 5), true},
		{"one that went on from something later", straight, id(2, 6), id(1, 3), true},
		{"two generations on", straight, id(3, 9), id(1, 5), true},
		{"an older generation proves nothing", straight, id(1, 5), id(2, 6), false},
		{"one that left it out", back, id(3, 5), id(1, 5), false},
		{"one that left its generation out", back, id(3, 5), id(2, 6), false},
		{"one that went through an idle generation", idle, id(3, 6), id(1, 5), true},
		{"a user went back before it", userBack, id(4, 10), id(2, 6), false},
		{"a user went back to just it", userBack, id(4, 10), id(1, 3), true},
		{"a user started anew", fromNone, id(4, 3), id(1, 1), false},
		{"a lost record proves nothing", gap, id(3, 9), id(1, 5), false},
		{"up to the lost record it is known", gap, id(3, 9), id(2, 8), true},
		{"a foreign generation proves nothing", foreign, id(2, 6), id(1, 5), false},
		{"an unknown generation", straight, id(9, 9), id(1, 1), false},
		{"impossible records end", looped, id(3, 9), id(1, 1), true},
		{"impossible records prove nothing further", looped, id(2, 9), id(1, 1), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.l.Proven(c.witness, c.id); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestBehind(t *testing.T) {
	for _, c := range []struct {
		name    string
		l       checkpoint.Lineage
		r       checkpoint.ID
		witness checkpoint.ID
		want    bool
	}{
		{"the witness itself", straight, id(1, 5), id(1, 5), false},
		{"newer than the witness", straight, id(1, 5), id(1, 4), false},
		{"a later number was published", straight, id(1, 4), id(1, 5), true},
		{"a later generation that went on from it published more", straight, id(1, 5), id(2, 6), true},
		{"a later generation only repeats its mark", straight, id(1, 5), id(2, 5), false},
		{"a later generation went on from something newer", straight, id(1, 4), id(2, 6), true},
		{"two generations on", straight, id(1, 5), id(3, 9), true},
		{"an older generation's witness is on its line", straight, id(3, 9), id(2, 8), false},
		{"another line published", back, id(2, 8), id(3, 5), true},
		{"a user has left the witness behind", userBack, id(3, 9), id(2, 8), false},
		{"a user went back before the witness of the same generation", userBack, id(1, 3), id(1, 5), false},
		{"what came after the user's choice counts", userBack, id(3, 9), id(4, 10), true},
		{"a user started anew", fromNone, id(3, 2), id(2, 8), false},
		{"a user went back and forth: the last choice counts", forth, id(1, 3), id(1, 5), true},
		{"what the first choice published is left behind by the second", forth, id(1, 5), id(2, 9), false},
		{"a start that wrote its choice down too late leaves nothing behind", late, id(1, 3), id(1, 5), true},
		{"a choice counts for the starts of its job", inherited, id(1, 3), id(1, 5), false},
		{"and for the jobs that come from it", descended, id(2, 4), id(1, 5), false},
		{"nobody knows how the witness came about", gap, id(1, 5), id(3, 9), true},
		{"a generation that nobody took here", straight, id(1, 5), id(9, 9), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.l.Behind(c.r, c.witness); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestOrphan(t *testing.T) {
	for _, c := range []struct {
		name string
		l    checkpoint.Lineage
		id   checkpoint.ID
		want bool
	}{
		{"the newest generation's own", straight, id(3, 9), false},
		{"what the newer one restored", straight, id(2, 8), false},
		{"something before it", straight, id(1, 2), false},
		{"numbered above what the newer one restored", straight, id(2, 9), true},
		{"above in an older generation", straight, id(1, 6), true},
		{"a generation that was left out", back, id(2, 6), true},
		{"what it had restored is not", back, id(1, 4), false},
		{"above what it went back to", back, id(1, 5), true},
		{"what an idle generation went on from", idle, id(1, 5), false},
		{"all before a user's fresh start", fromNone, id(1, 1), true},
		{"a start that wrote its choice down too late takes nothing away", late, id(1, 5), false},
		{"nobody came after", checkpoint.Lineage{}, id(1, 1), false},
		{"a foreign start leaves everything behind", foreign, id(1, 5), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.l.Orphan(c.id); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// What a start by itself may restore, none of it orphaned, is on one line.
func TestCheckpointsThatAreNoOrphansFormOneLine(t *testing.T) {
	for i, l := range []checkpoint.Lineage{straight, back, idle, userBack, fromNone, forth, gap, late, inherited, descended} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			for g := uint64(1); g <= 4; g++ {
				for n := uint64(1); n <= 10; n++ {
					h := slices.Max(slices.Collect(maps.Keys(l)))
					if g < h && !l.Orphan(id(g, n)) && !l.Proven(id(h, 100), id(g, n)) {
						t.Errorf("%d of generation %d is no orphan, but generation %d has not gone on from it", n, g, h)
					}
				}
			}
		})
	}
}
