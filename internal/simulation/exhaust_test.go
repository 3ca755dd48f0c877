package simulation_test

import (
	"testing"

	"github.com/quotient-limiter/quotient/internal/simulation"
)

// TestEverySmallHistory tries all histories of the small world.
func TestEverySmallHistory(t *testing.T) {
	if simulation.Slow {
		t.Log("no other code runs in the whole search, which takes minutes under the race detector")
		return
	}
	var s simulation.Small
	s.Search()
	if s.Most > 0 {
		t.Errorf("over:\n%s", s.Story)
	}
	t.Logf("%d logs, %d lives of an instance in them, none over", s.Logs, s.Lives)
}

// TestSmallHistoriesCatch: the search finds what a safeguard is for.
func TestSmallHistoriesCatch(t *testing.T) {
	if simulation.Slow {
		t.Log("as above")
		return
	}
	for name, s := range map[string]simulation.Small{
		"Coalesce": {Together: true}, "TimingUnchecked": {Tight: true},
		"AnchorNow": {}, "JoinAtOnce": {}, "NoProof": {}, "Ceil": {},
	} {
		t.Run(name, func(t *testing.T) {
			if !s.Together && *insideFlag != name {
				if *patchedFlag && *insideFlag == "" {
					patched(t, name)
				}
				return
			}
			s.First = true
			s.Search()
			if s.Most <= 0 {
				t.Fatalf("not found in %d logs", s.Logs)
			}
			t.Logf("%d logs:\n%s", s.Logs, s.Story)
		})
	}
}
