package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// A call that does not wait is refused just before a window's edge, and its goroutine runs again behind it, as on a
// busy machine. There are permits by then. So the call has them, and nobody is told that the limit is used up.

func TestNoRefusalWhereAPermitIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := opened(t, "p", "10/s")
		l.TryTake(10)
		g, v := l.ask(nil, 3, 0)
		time.Sleep(time.Second)
		if g, err := l.unlessLate(g, v, 3); v != queue.Limited || err != nil || g.Start != time.Now().UnixNano() {
			t.Errorf("%v, then %+v, %v", v, g, err)
		}
		if s := l.Status(); s.Issued != 13 || s.Refused != 0 {
			t.Errorf("%d are issued, %d refused", s.Issued, s.Refused)
		}
		l.TryTake(7)
		g, v = l.ask(nil, 3, 0)
		time.Sleep(time.Second)
		l.TryTake(8)
		if _, err := l.unlessLate(g, v, 3); err == nil {
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
		key.TryTake(3)
		call := newKeyCall(t.Context(), key, 1, 0)
		try := l.core.tryKey(key, 1, reserve, &call.permit)
		time.Sleep(time.Second)
		if done := call.proceed(call.tried(&try)); try.found != keyLacks || !done || call.err != nil || call.permit.N() != 1 {
			t.Errorf("%v, then %v, %v, %d permits", try.found, done, call.err, call.permit.N())
		}
		if s := l.Status(); s.Issued != 4 || s.KeysRefused != 0 {
			t.Errorf("%d are issued, %d refused", s.Issued, s.KeysRefused)
		}
	})
}
