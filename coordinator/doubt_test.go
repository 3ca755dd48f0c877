package coordinator

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// TestSilenceBeforeFirstProofIsDoubted: etcd went away right after a listing,
// before anything was proved, came back from a backup and went on past the
// revisions that were known. Nothing looked backwards; only the silence tells.
func TestSilenceBeforeFirstProofIsDoubted(t *testing.T) {
	s := &Session{keys: layout, ctx: t.Context(), o: settings{Options: Options{Logger: slog.New(slog.DiscardHandler)}, Clock: clock.New()}}
	p := newMembership(s, "p", &recorder{})
	p.id = "a"
	const listed = int64(10 * time.Second)
	p.listLocked(mark{revision: 7, cluster: 1, sent: clock.Instant{Mono: listed, Wall: listed}}, nil)
	p.policy = &quota.Policy{Timing: quota.Timing{Freshness: time.Second}}

	if p.doubtLocked(clock.Instant{Mono: listed + int64(time.Second), Wall: listed + int64(time.Second)}) {
		t.Error("doubted within the freshness of the listing")
	}
	suspended := clock.Instant{Mono: listed + int64(time.Second), Wall: listed + int64(time.Second) + 1}
	if !p.doubtLocked(suspended) || !p.tracker.Doubted() {
		t.Error("not doubted after a silence longer than the freshness")
	}
	p.tracker.Answer(view.Probe{}, 7, 1)
	if _, ok := p.tracker.Proof(); ok {
		t.Error("a proof counts that nobody has checked")
	}
}

// TestALostReportIsAGap: a store that was put back has the same view, but not the
// newest report that this instance wrote. So it begins its history anew.
func TestALostReportIsAGap(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "100/s")
	r, _ := f.subscribe(f.join(Options{Name: "a", TTL: time.Minute}), "p")
	p := f.only(r)
	await.Until(t, "a report is written", p.locked(func() bool { return p.reports.Newest() > 0 }))
	resets := func() int { return strings.Count(r.told().log, "reset") }
	p.locked(func() bool { p.tracker.Doubt(p.s.o.Clock.Now()); return true })()
	await.Until(t, "a check finds all that was reported", p.locked(func() bool { return !p.tracker.Doubted() }))
	if n := resets(); n != 1 {
		t.Fatalf("%d beginnings of the history, and nothing was lost", n)
	}
	p.locked(func() bool {
		p.reports.Reset(1<<40, nil)
		p.tracker.Doubt(p.s.o.Clock.Now())
		return true
	})()
	await.Until(t, "a report of a revision that is yet to come is missed", func() bool { return resets() > 1 })
}

// locked is a condition under the membership's lock.
func (p *membership) locked(is func() bool) func() bool {
	return func() bool { p.mu.Lock(); defer p.mu.Unlock(); return is() }
}

// TestTheSameStoreSettlesADoubt: nothing happened to etcd, so a silence costs no
// history, however much there was to tell again.
func TestTheSameStoreSettlesADoubt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "100/s")
	r, _ := f.subscribe(f.join(Options{Name: "a", TTL: time.Minute}), "p")
	await.Until(t, "the view is proved", r.is(proved))
	p := f.only(r)
	for i := range 5 {
		last := f.set("p", fmt.Sprintf("%d/s", i+1))
		p.locked(func() bool { p.tracker.Doubt(p.s.o.Clock.Now()); return true })()
		await.Until(t, "the doubt is settled, and the newest policy known", p.locked(func() bool {
			return !p.tracker.Doubted() && p.tracker.Position() >= last.Revision
		}))
	}
	if log := r.told().log; strings.Count(log, "reset") != 1 || strings.Count(log, "policy") != 5 {
		t.Errorf("was told %q: want one beginning, and every policy once", log)
	}
}

// TestADoubtAfterAGapIsNoGap: this instance's key is written along with a listing,
// so that a doubt can be settled from then on, also before anything is reported.
func TestADoubtAfterAGapIsNoGap(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "100/s")
	r, _ := f.subscribe(f.join(Options{Name: "a", TTL: time.Minute}), "p")
	p := f.only(r)
	await.Until(t, "the view is proved", r.is(proved))
	before := p.value
	for n := 2; n <= 3; n++ {
		p.locked(func() bool { p.gapLocked("the test says so"); return true })()
		await.Until(t, "the history begins anew, and is doubted at once", p.locked(func() bool {
			if p.relist || strings.Count(r.told().log, "reset") != n {
				return false
			}
			p.tracker.Doubt(p.s.o.Clock.Now())
			return true
		}))
		await.Until(t, "the doubt is settled", p.locked(func() bool { return !p.tracker.Doubted() }))
		if log := r.told().log; strings.Count(log, "reset") != n {
			t.Fatalf("the doubt was a gap: %q", log)
		}
	}
	if p.value != before {
		t.Errorf("its key was changed from %+v to %+v", before, p.value)
	}
}

// TestAStoreThatWasPutBackAndHasGoneOn: etcd is restored from a backup that has
// everything that this instance wrote, and goes on past every revision that was
// known. The present keys look like the view. Either the history begins again, or
// every policy of the restored store is told: the view was a state of that store
// too, unless the watch told of a policy that the restore lost.
func TestAStoreThatWasPutBackAndHasGoneOn(t *testing.T) {
	for name, told := range map[string]bool{"a told policy is lost": true, "nothing that was told is lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restoreAndGoOn(t, told)
		})
	}
}

func restoreAndGoOn(t *testing.T, toldOfLost bool) {
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	cluster, client := etcdtest.New(t, etcdtest.Options{Dir: dir, Processes: false})
	f := setupOn(t, client)
	f.set("p", "100/s")
	r, _ := f.subscribe(f.join(Options{Name: "a", TTL: time.Minute}), "p")
	p := f.only(r)
	await.Until(t, "a report is written", p.locked(func() bool { return p.reports.Newest() > 0 }))
	restart := func(between func() error) {
		t.Helper()
		cluster.Stop(0)
		if err := between(); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Restart(0); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "etcd answers", func() bool { _, err := client.Get(t.Context(), "others"); return err == nil })
	}
	restart(func() error { return os.CopyFS(backup, os.DirFS(dir)) })
	write := func() int64 {
		r, err := client.Put(t.Context(), "others", "write too")
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Revision
	}
	for range 10 {
		write()
	}
	if toldOfLost {
		f.set("p", "70/s")
		f.set("p", "100/s")
	}
	lost := write()
	await.Until(t, "that is known", p.locked(func() bool { return !p.tracker.Doubted() && p.tracker.Position() >= lost }))
	before := r.told()
	if n := strings.Count(before.log, "reset"); n != 1 {
		t.Fatalf("%d beginnings of the history, and nothing was lost", n)
	}

	p.mu.Lock() // nothing is taken from etcd meanwhile
	known := p.tracker.Position()
	restart(func() error {
		if err := os.RemoveAll(filepath.Join(dir, "m0")); err != nil {
			return err
		}
		return os.CopyFS(filepath.Join(dir, "m0"), os.DirFS(filepath.Join(backup, "m0")))
	})
	f.set("p", "50/s")
	for write() <= known {
	}
	f.set("p", "100/s")
	p.tracker.Doubt(p.s.o.Clock.Now()) // the silence was long enough
	p.mu.Unlock()
	anew := func() bool { return strings.Count(r.told().log, "reset") > 1 }
	if toldOfLost {
		await.Until(t, "the history begins anew", anew)
		return
	}
	await.Until(t, "the history begins anew, or both policies are told", func() bool {
		return anew() || slices.Equal(r.told().totals[len(before.totals):], []int64{50, 100})
	})
}
