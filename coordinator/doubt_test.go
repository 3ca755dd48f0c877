package coordinator

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// TestSilenceBeforeFirstProofIsDoubted: etcd went away right after a listing,
// before anything was proved, came back from a backup and went on past the
// revisions that were known. Nothing looked backwards; only the silence tells.
func TestSilenceBeforeFirstProofIsDoubted(t *testing.T) {
	s := &Session{keys: keys{DefaultPrefix}, ctx: t.Context(), o: Options{Clock: clock.New(), Logger: slog.New(slog.DiscardHandler)}}
	p := newPlace(s, "p", &recorder{})
	p.id = "a"
	const listed = int64(10 * time.Second)
	p.listLocked(clock.Instant{Mono: listed, Wall: listed}, 7, 1, nil)
	p.policy = &quota.Policy{Freshness: time.Second}

	p.doubtLocked(clock.Instant{Mono: listed + int64(time.Second), Wall: listed + int64(time.Second)})
	if p.tracker.Doubted() {
		t.Error("doubted within the freshness of the listing")
	}
	suspended := clock.Instant{Mono: listed + int64(time.Second), Wall: listed + int64(time.Second) + 1}
	p.doubtLocked(suspended)
	if !p.tracker.Doubted() {
		t.Error("not doubted after a silence longer than the freshness")
	}
	p.tracker.Answer(view.Probe{}, 7, 1)
	if _, ok := p.tracker.Proof(); ok {
		t.Error("a proof counts that nobody has checked")
	}
}

// TestALostReportIsAGap: a store that was put back has the same view, but not the
// newest report that this instance wrote. Its claims by demand follow from that
// report, so it begins its history anew.
func TestALostReportIsAGap(t *testing.T) {
	f := setup(t)
	f.set("p", "100/s")
	r, _ := f.subscribe(f.join(Options{Name: "a"}), "p")
	eventually(t, "the view is proved", r.is(proved))
	p := f.only(r)

	check := func(newest int64) {
		eventually(t, "no other check is under way", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			free := !p.checking
			p.checking = true
			return free
		})
		p.mu.Lock()
		p.published.Reset()
		p.published.Committed(p.published.Sent(7), newest, 7)
		p.tracker.Doubt()
		p.mu.Unlock()
		p.check(t.Context())
	}
	resets := func() int { return strings.Count(r.told().log, "reset") }
	eventually(t, "a report is written", func() bool {
		got, err := f.client.Get(t.Context(), p.s.keys.report("p", r.told().self))
		return err == nil && len(got.Kvs) == 1
	})
	eventually(t, "a check finds all that was reported", func() bool {
		check(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.tracker.Doubted()
	})
	if n := resets(); n != 1 {
		t.Fatalf("%d beginnings of the history, and nothing was lost", n)
	}
	eventually(t, "a report of a revision that is yet to come is missed", func() bool {
		check(1 << 40)
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := resets(); !p.tracker.Doubted() && n == 1 {
			t.Fatal("the view is taken for the store's")
		}
		return resets() > 1
	})
}
