package consumer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
)

// A key tells the use of each of its limits, and asking puts no key into use.
func TestAKeyTellsItsLimits(t *testing.T) {
	p := keyedPolicy()
	p.Keys.Limits = []quota.Limit{{Permits: 3, Window: time.Second}, {Permits: 9, Window: time.Minute}}
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		key, now := l.Key("a"), time.Now()
		use := func(i int, used int64) LimitUse {
			of, share := p.Keys.Limits[i], p.Keys.Limits[i].Permits
			w := quota.WindowAt(of.Window, now.UnixNano())
			return LimitUse{Limit: of, Share: share, Used: used, Left: share - used, Start: time.Unix(0, w.Start()), End: time.Unix(0, w.End())}
		}
		key.TryTake(2)
		want := []LimitUse{use(0, 2), use(1, 2)}
		if diff := cmp.Diff(want, l.Key("a").Limits()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := l.Key("").Limits(); got != nil {
			t.Errorf("a name that no key can have: %v", got)
		}
		held, err := l.Key("b").Take(t.Context(), 3, 0)
		if err != nil || held.Settle(5) != nil {
			t.Fatal(err)
		}
		if got := l.Key("b").Limits(); len(got) != 2 || got[0].Left != 0 || got[1].Left != 0 {
			t.Errorf("a key with a debt: %+v", got)
		}
		probe := l.Key("new")
		if n := l.Status().KeysInUse; probe.Limits()[0].Left != 3 || probe.delay(1) != 0 || l.Status().KeysInUse != n {
			t.Error("asking puts a key into use, or one that is not in use has too little")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if l := opened(t, "plain", "5/s"); l.Key("a").Limits() != nil || l.Key("a").delay(1) != Forever {
			t.Error("a provider without limits by key has some")
		}
	})
}

// A limit by key that was removed binds for a while, and shows as it was until then.
func TestAKeyTellsARemovedLimit(t *testing.T) {
	p := keyedPolicy()
	p.Keys.Limits = []quota.Limit{{Permits: 3, Window: time.Second}, {Permits: 2, Window: time.Minute}}
	keyed(t, p, func(t *testing.T, l *Limiter, source *FixedSource) {
		want := p.Keys.Limits
		p.Keys.Limits = want[:1]
		key := l.Key("a")
		if n := taken(key.TryAcquire); n != 2 || source.Set(p) != nil {
			t.Fatal(n)
		}
		got := key.Limits()
		if len(got) != 2 || got[0].Limit != want[0] || got[1].Limit != want[1] {
			t.Errorf("the limits are %v, want %v", got, want)
		}
		limited, _ := errors.AsType[LimitError](key.Acquire(t.Context(), 0))
		if limited.Total != 2 || limited.Window.Length != time.Minute {
			t.Errorf("refused by a limit of %d per %v, want 2 a minute", limited.Total, limited.Window.Length)
		}
		if end := time.Unix(0, limited.Window.End()); !limited.RetryAt.Equal(end) || limited.Reason != ReasonSpent ||
			!strings.Contains(limited.Error(), "not enough left of 2/1m, a limit that was removed and still binds; next at ") {
			t.Errorf("%v, want another try at %v", limited, end)
		}
		time.Sleep(2 * time.Minute)
		if got := key.Limits(); len(got) != 1 || got[0].Limit != want[0] {
			t.Errorf("two minutes later the limits are %v", got)
		}
	})
}

// A key foresees the wait for its own permits, and that for the provider's.
func TestAKeyForeseesItsDelay(t *testing.T) {
	p := keyedPolicy()
	p.Limits = []quota.Limit{{Permits: 6, Window: 2 * time.Second}}
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		key := l.Key("a")
		want := func(n int64, d time.Duration) {
			t.Helper()
			if got := key.delay(n); got != d {
				t.Errorf("%d permits in %v, want %v", n, got, d)
			}
		}
		want(0, 0)
		want(3, 0)
		want(4, Forever)
		if n := taken(key.TryAcquire); n != 3 {
			t.Fatalf("%d permits", n)
		}
		want(1, time.Second)
		l.TryTake(3)
		want(1, 2*time.Second) // the provider's window
		if d := l.Key("\n").delay(1); d != Forever {
			t.Errorf("a name that no key can have: %v", d)
		}
	})
}

// TakeAll takes from keys, all or nothing, and each takes of its provider too.
func TestTakeAllOfKeys(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		other := opened(t, "other", "10/s")
		a, b := l.Key("a"), l.Key("b")
		permits, err := TakeAll(t.Context(), 0, map[Taker]int64{a: 2, b: 1, l: 1, other: 4})
		if err != nil || permits[a].N() != 2 || permits[b].N() != 1 || permits[l].N() != 1 || permits[other].N() != 4 {
			t.Fatalf("%v, %v", permits, err)
		}
		if n := l.Status().Issued; n != 4 {
			t.Errorf("the provider has issued %d, want 4", n)
		}
		var limited LimitError
		_, err = TakeAll(t.Context(), 0, map[Taker]int64{a: 2, b: 1, other: 1})
		if !errors.As(err, &limited) || limited.Key != "a" {
			t.Errorf("refused with %v", err)
		}
		if l.Status().Issued != 4 || b.Limits()[0].Used != 1 || other.Status().Issued != 4 {
			t.Error("what was taken is lost")
		}
		began := time.Now()
		if _, err := TakeAll(t.Context(), time.Minute, map[Taker]int64{a: 2, b: 1, other: 1}); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want a second", err, time.Since(began))
		}
		for text, wants := range map[string]map[Taker]int64{
			"nil limiter":    {Key{}: 1},
			`twice with key`: {l.Key("c"): 1, l.Class(Critical).Key("c"): 1},
		} {
			if _, err := TakeAll(t.Context(), 0, wants); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}
