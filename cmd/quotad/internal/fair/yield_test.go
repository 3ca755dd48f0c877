package fair

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A client that leaves its turn without permits is served as if it had never had it. The other
// one had a permit before.
func TestAYieldedTurnCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		one, two := Client{"user", "one"}, Client{"user", "two"}
		if err := turns.Enter(t.Context(), two, 1, 0); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 8)
		enter := func(of Client, yields bool) {
			go func() {
				if err := turns.Enter(t.Context(), of, 1, time.Hour); err != nil {
					t.Error(err)
				}
				if yields {
					turns.Yield(of, 1)
					return
				}
				order <- of.Process
				turns.Leave()
			}()
			synctest.Wait()
		}
		for range 3 {
			enter(one, true)
		}
		for range 3 {
			enter(one, false)
		}
		for range 3 {
			enter(two, false)
		}
		turns.Leave()
		synctest.Wait()
		var got []string
		for range len(order) {
			got = append(got, <-order)
		}
		if want := "[one one two one two two]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
		if turns.Busy() {
			t.Error("the turn was not given back")
		}
	})
}
