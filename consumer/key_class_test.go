package consumer

import (
	"testing"
	"time"
)

// A key of a limiter's class has its calls in that class: critical ones get what is kept for
// them, and are counted, also when they come back.
func TestCallsOfAKeyHaveAClass(t *testing.T) {
	p := keyedPolicy()
	p.Limits[0].Permits, p.Keys.Limits[0].Permits, p.Critical = 20, 20, 50
	keyed(t, p, func(t *testing.T, l *Limiter, _ *FixedSource) {
		if n := l.Key("a").TryTake(20).N(); n != 10 {
			t.Errorf("%d permits without a class, want 10", n)
		}
		critical := l.Class(Critical).Key("b")
		tried := critical.TryTake(4)
		waited, err := critical.Take(t.Context(), 6, time.Millisecond)
		if tried.N() != 4 || err != nil {
			t.Errorf("critical calls got %d permits of 4, and %v", tried.N(), err)
		}
		if by := l.Status().IssuedBy; by[Critical] != 10 || by[Default] != 10 {
			t.Errorf("issued %v, want 10 and 10", by)
		}
		if !tried.Release() || !waited.Release() {
			t.Error("the permits do not come back")
		}
		if by := l.Status().IssuedBy; by[Critical] != 0 || by[Default] != 10 {
			t.Errorf("issued %v after they came back, want none and 10", by)
		}
	})
}
