package consumer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer/internal/tally"
	"github.com/quotient-limiter/quotient/quota"
)

// Status tells what each of the busiest keys got in a second and what it was refused, also of
// keys that are forgotten, and nothing when they rest. A report tells the same.
func TestStatusHasTheBusiestKeys(t *testing.T) {
	p := keyedPolicy()
	p.Limits[0].Permits, p.Keys.Limits[0].Permits, p.Keys.Most = 10000, 200, 150
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		l.Status()
		for second := range 10 {
			l.Key("hot").TryTake(200)
			for range 40 {
				l.Key("hot").TryAcquire() // refused
			}
			for n := range 99 {
				l.Key(fmt.Sprintf("rare %d %d", second, n)).TryTake(1)
			}
			if _, err := l.Key("warm").Take(t.Context(), 50, 0); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		l.Key("hot").Limits() // begins the window, so the last one is counted
		l.Key("warm").Limits()
		got := l.Status().BusiestKeys
		want := []Rate{{"hot", 200, 40}, {"warm", 50, 0}}
		if len(got) != keysShown || !slices.Equal(got[:2], want) || got[2].Issued > 0.2 || got[2].Refused != 0 {
			t.Errorf("%d keys: %v, want %v and others of at most 0.2/s", len(got), got, want)
		}
		report := l.core.Report(l.core.clock.Now())
		if n := len(report.BusiestKeys); n != keysShown || report.BusiestKeys[0].Name != "hot" || report.BusiestKeys[0].Refused != 40 {
			t.Errorf("%d keys in the report: %v", n, report.BusiestKeys)
		}
		time.Sleep(tally.Period)
		if got := l.Status().BusiestKeys; len(got) != 0 {
			t.Errorf("busy while nobody calls: %v", got)
		}
	})
}

// A report has room for few keys with long names.
func TestReportedKeysAreBounded(t *testing.T) {
	t.Parallel()
	var all []Rate
	for range keysShown {
		all = append(all, Rate{Name: strings.Repeat("<", 256), Issued: 1.0 / 3})
	}
	got := reported(all)
	if len(got) != 2 || got[0].Issued != 0.3 {
		t.Errorf("%d keys of 1,600 bytes of JSON: %v", len(got), got)
	}
	if got := reported(nil); got != nil {
		t.Errorf("%v", got)
	}
}

// A key that waits is counted when it is served.
func TestKeysThatWaitAreBusyToo(t *testing.T) {
	p := keyedPolicy()
	p.Limits = []quota.Limit{{Permits: 5, Window: time.Second}}
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		l.Status()
		l.TryTake(5)  // so the next waits for the provider
		for range 4 { // and then for the key
			if _, err := l.Key("a").Take(t.Context(), 3, Forever); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		l.Key("a").Limits()
		time.Sleep(5 * time.Second)
		if got := l.Status().BusiestKeys; len(got) != 1 || got[0].Name != "a" || got[0].Issued != 1.2 {
			t.Errorf("%v, want a with 12 in 10 s", got)
		}
	})
}

// What is laid into a front on which calls crowd is counted when calls have had it.
func TestCrowdedCallsAreBusy(t *testing.T) {
	p := keyedPolicy()
	p.Limits[0].Permits, p.Keys.Limits[0].Permits = 1000, 200
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		key := l.Key("a")
		for range 100 {
			key.TryAcquire()
			l.core.keys.known("a").crowded(l.core, l.core.gate.Segment())
		}
		time.Sleep(tally.Period)
		key.Limits() // the last ones are counted
		if got := l.Status().BusiestKeys; len(got) != 1 || got[0].Issued != 10 {
			t.Errorf("%v, want 100 in 10 s", got)
		}
	})
}

// What comes back is taken off, wherever it goes: into the front from which it was taken, into a later one, or to the key.
func TestWhatComesBackIsNotBusy(t *testing.T) {
	p := keyedPolicy()
	p.Limits[0].Permits, p.Keys.Limits[0].Permits = 1000, 200
	for name, between := range map[string]func(y Key){
		"into the same front": func(Key) {},
		"into a later one":    func(y Key) { y.Limits(); y.TryAcquire() }, // the first shuts it, the second opens one
		"to the key":          func(y Key) { y.Limits() },
	} {
		t.Run(name, func(t *testing.T) {
			keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
				y := l.Key("a")
				y.TryTake(20)
				some := y.TryTake(10) // of the front
				if between(y); some.N() != 10 || !some.Release() {
					t.Fatalf("%d permits, or they did not come back", some.N())
				}
				time.Sleep(tally.Period)
				y.Limits() // the last one is counted
				if got := l.Status().BusiestKeys; len(got) != 1 || got[0].Issued < 2 || got[0].Issued >= 2.2 {
					t.Errorf("%v, want about 20 in 10 s", got)
				}
			})
		})
	}
}
