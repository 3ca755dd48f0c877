package consumer

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

const crowd = 100_000

// inUse returns the bytes of heap and stacks in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestACrowdOfFunctions queues 100,000 functions: each must be called in its
// turn, in the window that its place in the queue says, and cost 64 bytes.
func TestACrowdOfFunctions(t *testing.T) {
	bubble(t, "20000/s", Options{}, func(t *testing.T, _ context.Context, _ *FixedSource, l *Limiter) {
		l.TryTake(20000).N()
		start := time.Now()
		served, wrong := 0, 0
		f := func(p Permit, err error) {
			// Calls come one after the other, so the count is this call's place.
			if err != nil || p.Start().Sub(start) != time.Duration(1+served/20000)*time.Second {
				wrong++
			}
			served++
		}
		before := inUse()
		for range crowd {
			l.TakeFunc(1, Forever, f)
		}
		each := float64(inUse()-before) / crowd
		t.Logf("%.0f bytes for each waiting function", each)
		if each > 72 {
			t.Errorf("a waiter costs %.0f bytes, want about 64", each)
		}
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		if served != crowd || wrong != 0 {
			t.Errorf("%d of %d were served, %d of them in another window than their place says", served, crowd, wrong)
		}
	})
}
