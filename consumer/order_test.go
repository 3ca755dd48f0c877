package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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

// TestACrowdOfFunctionsIsServedInOrder queues 100,000 functions, each of which
// knows its place, and stops every seventh: who is left moves up, and is served
// in order, in the window that its new place says.
func TestACrowdOfFunctionsIsServedInOrder(t *testing.T) {
	bubble(t, "20000/s", Options{}, func(t *testing.T, _ context.Context, _ *FixedSource, l *Limiter) {
		l.TryTake(20000).N()
		start := time.Now()
		next, served, wrong := 0, 0, 0
		waiters := make([]Waiter, crowd)
		for i := range crowd {
			waiters[i] = l.TakeFunc(1, Forever, func(p Permit, err error) {
				if next%7 == 3 { // it was stopped
					next++
				}
				if err != nil || i != next || p.Start().Sub(start) != time.Duration(1+served/20000)*time.Second {
					wrong++
				}
				next, served = i+1, served+1
			})
		}
		stopped := 0
		for i := 3; i < crowd; i += 7 {
			if waiters[i].Stop() {
				stopped++
			}
		}
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		if stopped != (crowd+3)/7 || served != crowd-stopped || wrong != 0 {
			t.Errorf("%d stopped, %d served, %d of them out of their turn", stopped, served, wrong)
		}
	})
}

// TestACrowdOfGoroutinesIsServedInOrder parks five batches of 500 goroutines, one after the other. A tenth of each
// gives up, and who is left is served in the window of its batch, and in no other. The race detector never returns
// what it took for goroutines that were beside each other, and later tests fill it: with 100,000 here it took 11 GB,
// and takes 0.9 GB now. TestACrowdOfFunctionsIsServedInOrder has a queue of 100,000.
func TestACrowdOfGoroutinesIsServedInOrder(t *testing.T) {
	const batches, stay, leave = 5, 450, 50
	bubble(t, "450/s", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		l.TryTake(stay).N()
		start := time.Now()
		impatient, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		var mu sync.Mutex
		served, left := map[int]int{}, map[int]int{} // in the right window, and who gave up at once; by batch
		for b := range batches {
			for i := range stay + leave {
				ctx := ctx
				if i%10 == 9 {
					ctx = impatient
				}
				wg.Go(func() {
					p, err := l.Take(ctx, 1, Forever)
					mu.Lock()
					defer mu.Unlock()
					window := time.Duration(1+b) * time.Second
					switch waited := time.Since(start); {
					case err == nil && p.Start().Sub(start) == window && waited == window:
						served[b]++
					case errors.Is(err, context.Canceled) && waited == 0:
						left[b]++
					}
				})
			}
			synctest.Wait() // all of the batch wait before the next comes
		}
		if n := l.Status().Waiting; n != batches*(stay+leave) {
			t.Errorf("%d wait, want %d", n, batches*(stay+leave))
		}
		cancel()
		wg.Wait()
		for b := range batches {
			if served[b] != stay || left[b] != leave {
				t.Errorf("of batch %d, %d of %d were served in the window of their place, and %d of %d gave up", b, served[b], stay, left[b], leave)
			}
		}
	})
}

// A function that waits costs a waiter of 64 bytes in the heap, and nothing else.
func TestMemoryOfWaitingFunctions(t *testing.T) {
	bubble(t, "20000/s", Options{}, func(t *testing.T, _ context.Context, _ *FixedSource, l *Limiter) {
		l.TryTake(20000).N()
		served := 0
		f := func(Permit, error) { served++ }
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
		if served != crowd {
			t.Errorf("%d of %d were served", served, crowd)
		}
	})
}

func TestTakeFuncIsCalledOnceInOrder(t *testing.T) {
	bubble(t, "3/s", Options{}, func(t *testing.T, _ context.Context, _ *FixedSource, l *Limiter) {
		var mu sync.Mutex // held while asking: a call on the asking goroutine would deadlock
		var log []string
		start := time.Now()
		ask := func(name string, n int64, maxWait time.Duration) Waiter {
			mu.Lock()
			defer mu.Unlock()
			return l.TakeFunc(n, maxWait, func(p Permit, err error) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprintf("%s %v %v..%v", name, errors.Is(err, ErrLimited), p.Start().Sub(start), p.Until().Sub(start)))
				if err != nil {
					log[len(log)-1] = name + " " + fmt.Sprint(errors.Is(err, ErrLimited))
				}
			})
		}
		now := ask("now", 2, 0)
		ask("refused", 2, 500*time.Millisecond)
		big := ask("big", 2, Forever)
		stopped := ask("stopped", 1, Forever)
		last := ask("last", 2, Forever)
		if !stopped.Stop() || stopped.Stop() {
			t.Error("Stop must be true once")
		}
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		want := []string{"now false 0s..1s", "refused true", "big false 1s..2s", "last false 2s..3s"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, w := range []Waiter{now, big, last, {}} {
			if w.Stop() {
				t.Error("Stop is true for a function that has run")
			}
		}
	})
}
