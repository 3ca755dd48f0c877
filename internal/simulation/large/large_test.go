package large_test

import (
	"flag"
	"testing"

	"github.com/quotient-limiter/quotient/internal/safeguard"
	"github.com/quotient-limiter/quotient/internal/simulation/large"
)

var (
	instances = flag.Int("instances", 1000, "size of the fleet")
	seed      = flag.Uint64("seed", 1, "of the history")
)

// TestALargeFleetIsNeverOver: in no window the sum of all permits is over, whoever
// joins, crashes or leaves, and once all have settled everything is issued.
//
//	go test ./internal/simulation/large -v -instances 10000
func TestALargeFleetIsNeverOver(t *testing.T) {
	r := large.Run(*instances, *seed, 0)
	t.Log(r)
	for _, w := range r.Windows {
		t.Logf("window %d: %d of %d", w.Index, w.Issued, w.Bound)
	}
	for _, w := range r.Over {
		t.Errorf("window %d: %d issued, %d allowed", w.Index, w.Issued, w.Bound)
	}
	if r.Storm < 0 || r.Raised < 0 {
		t.Errorf("there is no window of which everything was issued: %v after the joins, %v after the total was raised", r.Storm, r.Raised)
	}
}

// TestItNotices: with a safeguard switched off, some window is over.
func TestItNotices(t *testing.T) {
	for name, off := range map[string]safeguard.Set{
		"AnchorAtStart": safeguard.AnchorAtStart, "JoinWaits": safeguard.JoinWaits, "Floor": safeguard.Floor,
	} {
		if r := large.Run(120, *seed, off); len(r.Over) == 0 {
			t.Errorf("without %s: %v", name, r)
		}
	}
}
