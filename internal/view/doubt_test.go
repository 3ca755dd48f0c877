package view

import (
	"testing"

	"github.com/quotient-limiter/quotient/internal/clock"
)

const fresh = 100

// witnessed has listed at revision 10, where its own key was written too, and has
// been told of revisions 12, 13 and 15. Its position is 16, and its newest proof
// was asked for at 50.
func witnessed(t *testing.T) *Tracker {
	t.Helper()
	tr := started(t)
	tr.Wrote(10)
	tr.Events([]Key{instance(12, "b"), policy(13, "50"), instance(13, "c")})
	tr.Events([]Key{gone(instance(0, "b"), 15)})
	tr.Progress(16)
	tr.Answer(tr.Sent(at(50)), 16, cluster)
	if p, ok := tr.Proof(); !ok || p != at(50) {
		t.Fatalf("proof %v, %v", p, ok)
	}
	return tr
}

func TestASilenceIsTakenByBothClocks(t *testing.T) {
	for _, c := range []struct {
		now  clock.Instant
		want bool
	}{
		{at(50), false}, {at(150), false}, {at(151), true},
		{clock.Instant{Mono: 60, Wall: 151}, true}, // suspended
		{clock.Instant{Mono: 151, Wall: 60}, true}, // set back
	} {
		tr := witnessed(t)
		if got := tr.Silence(c.now, fresh); got != c.want || tr.Doubted() != c.want {
			t.Errorf("at %+v: %v, doubted %v; want %v", c.now, got, tr.Doubted(), c.want)
		}
	}
	// Before the first proof the listing's question counts.
	if tr := started(t); tr.Silence(at(100), fresh) || !tr.Silence(at(101), fresh) {
		t.Error("the silence since the listing was not seen, or too early")
	}
}

// step is one thing that comes from etcd in a doubt, and what is expected.
type step struct {
	do   func(tr *Tracker) (gap bool)
	want string // "gap", "doubt", "settled", or "proved" by a new proof
}

func events(keys ...Key) func(*Tracker) bool {
	return func(tr *Tracker) bool { _, gap := tr.Events(keys); return gap }
}

func progress(revision int64) func(*Tracker) bool {
	return func(tr *Tracker) bool { return tr.Progress(revision) }
}

// checked is the answer of a check that is sent when the doubt arises.
func checked(revision, kept int64) func(*Tracker) bool {
	return func(tr *Tracker) bool {
		_, gap := tr.Check(tr.Sent(at(200)), revision, cluster, kept, nil)
		return gap
	}
}

// proved is the answer of a probe.
func proved(sent, revision int64) func(*Tracker) bool {
	return func(tr *Tracker) bool { return tr.Answer(tr.Sent(at(sent)), revision, cluster) }
}

func TestADoubtIsSettledByWhatTheStoreTellsAgain(t *testing.T) {
	told := []Key{instance(12, "b"), policy(13, "50"), instance(13, "c"), gone(instance(0, "b"), 15)}
	for name, steps := range map[string][]step{
		"the same store": {
			{checked(20, 10), "doubt"}, {events(told[0]), "doubt"}, {proved(210, 20), "doubt"},
			{events(told[1:]...), "settled"}, {progress(17), "settled"}, {progress(20), "proved"},
		},
		"the same store, with more to tell": {
			{checked(20, 10), "doubt"}, {events(append(told, instance(20, "d"))...), "settled"}, {proved(210, 20), "proved"},
		},
		"what is told before the check must be told again": {
			{events(instance(17, "d")), "doubt"}, {progress(20), "doubt"}, {checked(20, 10), "doubt"}, {proved(210, 20), "doubt"},
			{events(told...), "doubt"}, {progress(16), "doubt"}, {events(instance(17, "d")), "settled"}, {progress(20), "proved"},
		},
		"what is told before the check is not told again": {
			{events(instance(17, "d")), "doubt"}, {checked(20, 10), "doubt"}, {events(append(told, instance(18, "d"))...), "gap"},
		},
		"what was seen comes once more": {
			{checked(20, 10), "doubt"}, {events(instance(9, "z"), told[0]), "doubt"}, {events(told[0]), "doubt"},
			{events(told[:3]...), "doubt"}, {proved(210, 16), "doubt"}, {events(told[3]), "settled"}, {progress(16), "proved"},
		},
		"its own write is gone":                {{checked(20, 0), "gap"}},
		"its own write is an older one":        {{checked(20, 9), "gap"}},
		"the store went back":                  {{checked(15, 10), "gap"}},
		"a probe finds the store gone back":    {{proved(210, 15), "gap"}},
		"another policy at that revision":      {{checked(20, 10), "doubt"}, {events(told[0], policy(13, "60"), instance(13, "c")), "gap"}},
		"less at that revision":                {{checked(20, 10), "doubt"}, {events(told[0], policy(13, "50")), "gap"}},
		"another revision":                     {{checked(20, 10), "doubt"}, {events(instance(11, "b")), "gap"}},
		"one more revision":                    {{checked(20, 10), "doubt"}, {events(told[0], policy(13, "50"), instance(13, "c"), instance(14, "e")), "gap"}},
		"one more where the watch had nothing": {{checked(20, 10), "doubt"}, {events(append(told, instance(16, "e"))...), "settled"}},
		"put, not deleted":                     {{checked(20, 10), "doubt"}, {events(told[0], told[1], told[2], instance(15, "b")), "gap"}},
		"nothing of it":                        {{checked(20, 10), "doubt"}, {progress(12), "gap"}},
		"one is missing":                       {{checked(20, 10), "doubt"}, {events(told[:3]...), "doubt"}, {progress(15), "gap"}},
		"one is missing before a new one":      {{checked(20, 10), "doubt"}, {events(told[0], told[1], told[2], instance(17, "d")), "gap"}},
	} {
		tr := witnessed(t)
		late := tr.Sent(at(140)) // on its way when the doubt arises
		if !tr.Silence(at(200), fresh) || tr.Position() != 16 {
			t.Fatalf("%s: doubted %v, position %d; want the watch to go on", name, tr.Doubted(), tr.Position())
		}
		tr.Answer(late, 16, cluster)
		if _, gap := tr.Check(late, 16, cluster, 10, nil); gap || !tr.Unchecked() {
			t.Errorf("%s: a check from before the doubt says something", name)
		}
		for i, s := range steps {
			got := "doubt"
			if s.do(tr) {
				got = "gap"
			} else if p, ok := tr.Proof(); ok && p == at(210) {
				got = "proved"
			} else if ok {
				got = "settled" // the proof is still the one before
			}
			if got != s.want {
				t.Errorf("%s, step %d: %s, want %s", name, i+1, got, s.want)
			}
		}
	}
}

func TestAnOwnWriteStandsForWhatCameBefore(t *testing.T) {
	tr := witnessed(t)
	tr.Wrote(14)
	tr.Silence(at(200), fresh)
	tr.Wrote(16) // in a doubt it may be another store's
	if reopen, gap := tr.Check(tr.Sent(at(200)), 20, cluster, 14, nil); !reopen || gap {
		t.Error("the own write is there, and that is a gap")
	}
	if tr.Position() != 14 {
		t.Fatalf("the watch begins at %d, want the own write", tr.Position())
	}
	if _, gap := tr.Events([]Key{gone(instance(0, "b"), 15)}); gap {
		t.Error("the same event is a gap")
	}
	tr.Progress(16)
	if tr.Doubted() {
		t.Error("still in doubt")
	}
	// One that is ahead of the watch leaves nothing to tell again.
	tr.Wrote(18)
	tr.Silence(at(400), fresh)
	if reopen, _ := tr.Check(tr.Sent(at(400)), 20, cluster, 18, nil); !reopen || tr.Doubted() || tr.Position() != 16 {
		t.Errorf("reopen %v, doubted %v, position %d", reopen, tr.Doubted(), tr.Position())
	}
}

func TestWithoutAnOwnWriteADoubtIsAGap(t *testing.T) {
	tr := started(t)
	tr.Wrote(9) // before the listing: what came between is not known
	tr.Silence(at(200), fresh)
	if _, gap := tr.Check(tr.Sent(at(200)), 20, cluster, 9, nil); !gap {
		t.Error("nothing shows that it is the same store")
	}
	tr = witnessed(t)
	for r := range int64(maxTold + 1) {
		tr.Events([]Key{instance(100+r, "x")})
	}
	if len(tr.memory.all) > maxTold {
		t.Errorf("%d revisions are remembered", len(tr.memory.all))
	}
	tr.Silence(at(200), fresh)
	if _, gap := tr.Check(tr.Sent(at(200)), 10_000, cluster, 10, nil); !gap {
		t.Error("more was told than is remembered, and the doubt is settled")
	}
}

// TestADoubtThatLastsBeginsAnew: what a store told long ago says nothing of the
// store that answers now.
func TestADoubtThatLastsBeginsAnew(t *testing.T) {
	tr := witnessed(t)
	tr.Silence(at(200), fresh)
	tr.Check(tr.Sent(at(220)), 20, cluster, 10, nil)
	tr.Events([]Key{instance(12, "b")})
	if tr.Silence(at(320), fresh) {
		t.Error("the silence is taken from the check on")
	}
	if !tr.Silence(at(321), fresh) || !tr.Unchecked() {
		t.Error("want a doubt from its beginning")
	}
	if tr.Check(tr.Sent(at(330)), 20, cluster, 10, nil); tr.Position() != 10 {
		t.Errorf("position %d: want all to be told again", tr.Position())
	}
}

// TestAnAnswerThatTheWatchHasOvertaken: a read that was sent while the store was
// away is answered by what was put in its place, and the watch has told meanwhile
// what that store no longer has.
func TestAnAnswerThatTheWatchHasOvertaken(t *testing.T) {
	tr := started(t)
	slow := tr.Sent(at(60))
	tr.Events([]Key{instance(12, "b")})
	if tr.Answer(slow, 11, cluster) {
		t.Error("a slow answer is a gap")
	}
	if _, ok := tr.Proof(); ok {
		t.Error("it counts although the store may have gone back")
	}
	tr.Answer(tr.Sent(at(59)), 12, cluster) // sent before it
	if p, _ := tr.Proof(); p != at(59) {
		t.Errorf("proof %v, want 59", p)
	}
	slow = tr.Sent(at(70))
	tr.Events([]Key{instance(13, "b")})
	tr.Answer(slow, 12, cluster)
	next := tr.Sent(at(80))
	tr.Events([]Key{instance(15, "b")})
	tr.Answer(next, 14, cluster) // overtaken too, but it shows that the store goes on
	if p, _ := tr.Proof(); p != at(70) {
		t.Errorf("proof %v, want 70", p)
	}
}

// TestADoubtThatTakesTooLongIsAGap: the events could not be told again within the
// freshness, and then once more not. To go on like that might never end.
func TestADoubtThatTakesTooLongIsAGap(t *testing.T) {
	tr := witnessed(t)
	for i, want := range []bool{false, false, true} {
		now := int64(200 + 101*i)
		if !tr.Silence(at(now), fresh) {
			t.Fatalf("%d: no doubt", now)
		}
		if reopen, gap := tr.Check(tr.Sent(at(now)), 20, cluster, 10, nil); gap != want || reopen == want {
			t.Errorf("doubt %d: reopen %v, gap %v", i+1, reopen, gap)
		}
		tr.Events([]Key{instance(12, "b")}) // and not the others
	}
	// Who is not asked in time does not count: etcd may be away for long.
	tr = witnessed(t)
	for i := range int64(5) {
		tr.Silence(at(200+101*i), fresh)
	}
	if reopen, gap := tr.Check(tr.Sent(at(700)), 20, cluster, 10, nil); !reopen || gap {
		t.Errorf("reopen %v, gap %v", reopen, gap)
	}
}
