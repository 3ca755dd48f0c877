package simulation_test

import (
	"testing"

	"github.com/quotient-limiter/quotient/internal/safeguard"
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
	for name, off := range map[string]safeguard.Set{
		"the lookback from now":     safeguard.AnchorAtStart,
		"two revisions as one view": safeguard.EveryRevision,
		"a joiner at once":          safeguard.JoinWaits,
		"no proof":                  safeguard.ProofEnds,
		"S no longer than S'":       safeguard.TimingRule,
		"the quotient rounded up":   safeguard.Floor,
	} {
		t.Run(name, func(t *testing.T) {
			s := simulation.Small{Off: off}
			s.Search()
			if s.Most <= 0 {
				t.Fatalf("not found in %d logs", s.Logs)
			}
			t.Logf("%d logs:\n%s", s.Logs, s.Story)
		})
	}
}
