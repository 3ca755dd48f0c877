package consumer

import (
	"runtime"
	"testing"

	"github.com/quotient-limiter/quotient/quota"
)

// TestThoseWhoWaitedGoFirst has the only processor busy with calls of
// TryAcquire, as a program does that works through a batch. Whoever of them sees
// a window first serves those who wait, and must let them run before it goes on.
// The operating system may interfere at any moment, so most windows count.
func TestThoseWhoWaitedGoFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l, err := Open(t.Context(), Fixed(quota.Policy{
		Limits: []quota.Limit{{Permits: 2, Window: quota.MinWindow}},
	}), "p", Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	const windows = 10
	first := 0
	for range windows {
		l.TryTake(2).N()
		served := make(chan struct{})
		w := l.TakeFunc(1, Forever, func(Permit, error) { close(served) })
		for !l.TryAcquire() {
		}
		select {
		case <-served:
			first++
		default:
			<-served
		}
		w.Stop()
	}
	if first <= windows/2 {
		t.Errorf("in %d of %d windows the caller went on before the one who waited", windows-first, windows)
	}
}
