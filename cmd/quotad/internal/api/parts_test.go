package api

import (
	"testing"
	"testing/synctest"
	"time"
)

// A process whose calls follow each other faster gets its part of a window at once, and what
// others have left of theirs when half the window is over.
func TestAQuickProcessLeavesTheOthersTheirPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 10, roomy)
		quick, slow := newProcess(t, s, "quick"), newProcess(t, s, "slow")
		const call = `{"provider":"p","max_wait":60}`
		slow.post("/v1/acquire", call)
		for range 2 {
			quick.post("/v1/acquire", `{"provider":"p"}`)
			time.Sleep(time.Second)
			synctest.Wait()
			for n := range 5 {
				if quick.post("/v1/acquire", call); time.Now().Nanosecond() != 0 {
					t.Fatalf("permit %d at %v", n+1, time.Now())
				}
			}
			time.Sleep(100 * time.Millisecond)
			slow.post("/v1/acquire", call)
			if quick.post("/v1/acquire", call); time.Now().Nanosecond() != 5e8 {
				t.Errorf("permit 6 at %v", time.Now())
			}
			for range 3 {
				quick.post("/v1/acquire", `{"provider":"p"}`)
			}
			if n := left(t, s, "p"); n != 0 {
				t.Errorf("%d permits are left", n)
			}
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(3 * time.Second) // the other is idle
		for range 10 {
			if quick.post("/v1/acquire", call); time.Now().Nanosecond() != 0 {
				t.Errorf("alone, a permit at %v", time.Now())
			}
		}
	})
}
