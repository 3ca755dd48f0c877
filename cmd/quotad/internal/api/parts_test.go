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
		for range 9 {
			quick.post("/v1/acquire", `{"provider":"p"}`)
		}
		for range 2 {
			slow.post("/v1/acquire", `{"provider":"p"}`) // it lacks one
			time.Sleep(time.Second - time.Duration(time.Now().Nanosecond()))
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
		}
		time.Sleep(3500 * time.Millisecond) // the other is idle
		for range 10 {
			if quick.post("/v1/acquire", call); time.Now().Nanosecond() != 0 {
				t.Errorf("alone, a permit at %v", time.Now())
			}
		}
	})
}

// Nothing is kept for processes that lack nothing, however seldom they call.
func TestNothingIsKeptForWhoeverLacksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, roomy)
		quick := newProcess(t, s, "quick")
		seldom := []process{newProcess(t, s, "b"), newProcess(t, s, "c"), newProcess(t, s, "d")}
		for range 3 {
			for _, p := range seldom {
				p.post("/v1/acquire", `{"provider":"p","max_wait":60}`)
			}
			for range 90 { // one after the other
				quick.post("/v1/acquire", `{"provider":"p","max_wait":60}`)
				time.Sleep(10 * time.Millisecond)
			}
			if n := left(t, s, "p"); n != 7 {
				t.Errorf("%d of 100 permits are left after 93 calls of 10 ms", n)
			}
			time.Sleep(time.Second - time.Duration(time.Now().Nanosecond()))
		}
	})
}
