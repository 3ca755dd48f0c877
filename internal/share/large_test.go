package share_test

import (
	"flag"
	"testing"
)

var (
	instances = flag.Int("instances", 300, "size of the fleet of TestALargeFleetIsNeverOver")
	seed      = flag.Uint64("seed", 1, "of the history")
)

// TestALargeFleetIsNeverOver: in no window the sum of all permits is over, whoever
// joins, crashes or leaves, and once all have settled everything is issued.
//
//	go test ./internal/share -run ALargeFleet -v -instances 10000
func TestALargeFleetIsNeverOver(t *testing.T) {
	r := runLarge(*instances, *seed)
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
