package consumer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// In its first seconds an instance knows already that a key is used up by the provider's count. It says that, with
// the instant that belongs to it: the share that begins soon is of no use before.
func TestAJoinerSaysThatTheKeyIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &treasury{totals: map[string][]byte{}, at: map[string]int64{}}
		p := policyOf(t, "100/s")
		p.Keys.Limits = policyOf(t, "100/s,1000/h").Limits
		s, joins := &stub{clock: clock.New()}, &stub{clock: clock.New()}
		l := open(t, s.source(), Options{})
		s.tell(1, withDefaults(p), 1)
		b.play(5, []*stub{s}, func(int) { _, _ = l.Key("a").Take(t.Context(), 1, 0) })
		l.Key("a").Stated(1000, 0, time.Now().Add(17*time.Minute))
		b.play(2, []*stub{s}, func(int) { _, _ = l.Key("a").Take(t.Context(), 1, 0) })
		l = open(t, joins.source(), Options{})
		joins.tell(1, withDefaults(p), 2)
		for _, want := range []string{"after the settle time (3s)", "nothing more of 1000/h is left; next at 00:17:05.000 UTC"} {
			var limited LimitError
			_, err := l.Key("a").Take(t.Context(), 1, 0)
			if !errors.As(err, &limited) || !strings.HasSuffix(err.Error(), want) {
				t.Fatalf("%v\nwant ... %s", err, want)
			}
			if wait := time.Until(limited.RetryAt); (wait > time.Minute) != (limited.Reason == ReasonSpent) {
				t.Errorf("%s: to be retried in %v", limited.Reason, wait)
			}
			b.play(1, []*stub{joins}, nil) // it reads the key's total
		}
	})
}

// TestAStatedPause, of a key whose permits are taken from etcd: some are left there.
func TestAStatedPauseOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, sinks, limiters := longKeys(t, "20/s,1000/h", "a", "b")
		key := limiters[0].Key("k")
		key.TryTake(1)
		b.play(2, sinks, nil)
		key.Stated(0, 0, time.Now().Add(time.Minute))
		b.play(2, sinks, func(int) { key.TryTake(20) })
		_, err := key.Take(t.Context(), 1, 0)
		if want := "the provider wants nothing more of 1000/h for now, by an answer that named no limit, such as one with Retry-After; next at "; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant ... %s", err, want)
		}
	})
}

// Nothing was left of a key by the provider's count. Once its limit is raised, what the raise gives is had at once, by
// all instances together; and no call has to be refused by the provider for it.
func TestARaiseOfAKeyThatIsUsedUpIsHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, sinks, limiters := longKeys(t, "20/s,1000/h", "a", "b")
		issued := func() (n int) {
			b.play(30, sinks, func(int) {
				for _, l := range limiters {
					for range 10 {
						if l.Key("k").TryTake(1).N() == 1 {
							n++
						}
					}
				}
			})
			return n
		}
		issued()
		limiters[0].Key("k").Stated(1000, 0, time.Now().Add(50*time.Minute))
		issued()
		if n := issued(); n != 0 {
			t.Fatalf("%d issued of nothing", n)
		}
		raised := protocol.View{Revision: 2, Policy: policyByKey(t, "20/s,1100/h"), PolicyRevision: 2, Instances: []protocol.Instance{{ID: "a", Name: "a"}, {ID: "b", Name: "b"}}}
		for i, s := range sinks {
			s.sink.Reset(s.clock.Now(), raised.Instances[i].ID, raised)
		}
		if n := issued(); n != 100 {
			t.Errorf("%d issued of 100 that were added", n)
		}
	})
}
