//go:build e2e && linux

package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	// A witness sleeps and writes so often.
	wakes, writes = 10 * time.Millisecond, 100 * time.Millisecond
	// stands and writesLate are how much later it wakes, or has written, where the machine stood still.
	stands, writesLate = 300 * time.Millisecond, time.Second
)

// witness tells whether this machine stood still while a scenario was played: it sleeps, and writes to the disk that the
// members of etcd have, and has no part in the fleet. What it had to wait for, the fleet had to wait for too.
type witness struct {
	mu    sync.Mutex
	still []stillness
}

// stillness is a time in which the machine did not do what was due.
type stillness struct {
	span
	what string
}

func newWitness(t *testing.T) *witness {
	w := new(witness)
	file, err := os.Create(filepath.Join(t.TempDir(), "witness"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		w.watch(ctx, wakes, stands, "it did not wake", func() error { time.Sleep(wakes); return nil })
	})
	watching.Go(func() {
		w.watch(ctx, writes, writesLate, "a write did not reach the disk", func() error {
			time.Sleep(writes)
			if _, err := file.WriteAt([]byte("x"), 0); err != nil {
				return err
			}
			return file.Sync()
		})
	})
	t.Cleanup(func() {
		cancel()
		watching.Wait()
		_ = file.Close()
	})
	return w
}

// watch does something again and again until ctx ends, and notes when that takes so much longer than usual.
func (w *witness) watch(ctx context.Context, usual, late time.Duration, what string, do func() error) {
	for ctx.Err() == nil {
		began := time.Now()
		if err := do(); err != nil {
			what += ": " + err.Error()
		}
		if took := time.Since(began); took >= usual+late {
			w.mu.Lock()
			w.still = append(w.still, stillness{span{began.UnixNano(), began.Add(took).UnixNano()}, fmt.Sprintf("%s for %v", what, took.Round(10*time.Millisecond))})
			w.mu.Unlock()
		}
	}
}

// told returns what the witness has noted of a time; nothing if the machine did all that was due.
func (w *witness) told(s span) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, still := range w.still {
		if still.from < s.to && s.from < still.to {
			all = append(all, fmt.Sprintf("at %s %s", time.Unix(0, still.from).UTC().Format("15:04:05.000"), still.what))
		}
	}
	return all
}

// The witness tells of what took too long, in the time that is asked about, and of nothing else.
func TestTheWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, began := new(witness), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		naps := 0
		w.watch(ctx, wakes, stands, "it did not wake", func() error {
			if naps++; naps == 100 { // a second after it began
				time.Sleep(500 * time.Millisecond)
			}
			time.Sleep(wakes)
			return nil
		})
		in := func(from, to time.Duration) int {
			return len(w.told(span{began.Add(from).UnixNano(), began.Add(to).UnixNano()}))
		}
		if in(0, 10*time.Second) != 1 || in(0, 900*time.Millisecond) != 0 || in(1200*time.Millisecond, 2*time.Second) != 1 || in(2*time.Second, 10*time.Second) != 0 {
			t.Errorf("it tells of %v", w.still)
		}
	})
}
