package consumer

import (
	"context"
	"runtime"
	"sync"
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

// TestACrowdOfGoroutines parks 100,000 goroutines in Acquire, a tenth of which
// give up before they are served.
func TestACrowdOfGoroutines(t *testing.T) {
	bubble(t, "20000/s", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		l.TryTake(20000).N()
		start := time.Now()
		impatient, cancel := context.WithCancel(ctx)
		before := inUse()
		var wg sync.WaitGroup
		var mu sync.Mutex
		byWindow := map[time.Duration]int{}
		for i := range crowd {
			c := ctx
			if i%10 == 9 {
				c = impatient
			}
			wg.Go(func() {
				if err := l.Acquire(c, Forever); err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				byWindow[time.Since(start)]++
			})
		}
		synctest.Wait()
		t.Logf("%.0f bytes for each parked goroutine, its stack included", float64(inUse()-before)/crowd)
		if n := l.Status().Waiting; n != crowd {
			t.Errorf("%d wait, want %d", n, crowd)
		}
		cancel()
		wg.Wait()
		for s, want := range map[int]int{1: 20000, 2: 20000, 3: 20000, 4: 20000, 5: 10000} {
			if n := byWindow[time.Duration(s)*time.Second]; n != want {
				t.Errorf("%d were served in window %d, want %d", n, s, want)
			}
		}
	})
}
