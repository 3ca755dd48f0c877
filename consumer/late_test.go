package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// A call is refused just before a window's edge, and its goroutine runs again behind it, as on a busy machine.
// There are permits by then. So the call has them, and nobody is told that the limit is used up.

func TestNoRefusalWhereAPermitIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := opened(t, "p", "10/s")
		l.TryTake(10)
		g, v := l.ask(nil, 3, 0)
		time.Sleep(time.Second)
		if g, err := l.answer(g, v, 3); v != queue.Limited || err != nil || g.Start != time.Now().UnixNano() {
			t.Errorf("%v, then %+v, %v", v, g, err)
		}
		if s := l.Status(); s.Issued != 13 || s.Refused != 0 {
			t.Errorf("%d are issued, %d refused", s.Issued, s.Refused)
		}
		l.TryTake(7)
		g, v = l.ask(nil, 3, 0)
		time.Sleep(time.Second)
		l.TryTake(8)
		if _, err := l.answer(g, v, 3); err == nil {
			t.Error("3 of 2 are issued")
		}
		if s := l.Status(); s.Issued != 28 || s.Refused != 3 {
			t.Errorf("%d are issued, %d refused", s.Issued, s.Refused)
		}
	})
}

func TestNoRefusalWhereAKeyHasAPermit(t *testing.T) {
	keyed(t, keyedPolicy(), func(t *testing.T, l *Limiter, _ *FixedSource) {
		key := l.Key("a")
		for what, c := range map[string]struct {
			wait time.Duration
			goOn func(c *keyCall, try *keyTry) (done bool)
		}{
			"it does not wait": {0, func(c *keyCall, try *keyTry) bool { return c.proceed(c.tried(try)) }},
			"it has waited in vain": {time.Millisecond, func(c *keyCall, try *keyTry) bool {
				c.state, c.place = try.state, inLine
				c.ownWaiter().Outcome = &lineOutcomes[queue.Limited]
				return c.resume()
			}},
		} {
			key.TryTake(3)
			before := l.Status()
			call := newKeyCall(t.Context(), key, 1, c.wait)
			try := l.core.tryKey(key, 1, reserve, &call.permit)
			time.Sleep(time.Second)
			if done := c.goOn(&call, &try); try.found != keyLacks || !done || call.err != nil || call.permit.N() != 1 {
				t.Errorf("%s: %v, then %v, %v, %d permits", what, try.found, done, call.err, call.permit.N())
			}
			if s := l.Status(); s.Issued != before.Issued+1 || s.KeysRefused != before.KeysRefused {
				t.Errorf("%s: %d are issued, %d refused; before %d, %d", what, s.Issued, s.KeysRefused, before.Issued, before.KeysRefused)
			}
		}
	})
}
