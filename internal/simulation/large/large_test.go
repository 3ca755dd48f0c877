package large_test

import (
	"flag"
	"os/exec"
	"testing"

	"github.com/quotient-limiter/quotient/internal/mutant"
	"github.com/quotient-limiter/quotient/internal/simulation/large"
)

var (
	instances = flag.Int("instances", 1000, "size of the fleet")
	seed      = flag.Uint64("seed", 1, "of the history")
	patched   = flag.Bool("patched", false, "build a mutant of the real code, and see that it is caught")
	inside    = flag.Bool("inside", false, "this test was built with the mutant")
)

// TestALargeFleetIsNeverOver: in no window the sum of all permits is over, whoever
// joins, crashes or leaves, and once all have settled everything is issued.
//
//	go test ./internal/simulation/large -v -instances 10000
func TestALargeFleetIsNeverOver(t *testing.T) {
	r := large.Run(*instances, *seed)
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

// ceil rounds every share up.
var ceil = mutant.Mutant{Name: "Ceil", Wrong: "rounds every share up", Edits: []mutant.Edit{{
	File: "internal/share/lots.go",
	Old:  "	for i := range c.ranks {\n		share += each",
	New:  "	for i := range c.ranks {\n		left = c.total\n		share += each",
}}}

// TestItNotices: with a safeguard taken out, some window is over.
func TestItNotices(t *testing.T) {
	if *inside {
		if r := large.Run(120, *seed); len(r.Over) == 0 {
			t.Errorf("nothing is over: %v", r)
		}
		return
	}
	root, err := mutant.Root()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ceil.Apply(root); err != nil {
		t.Fatal(err)
	}
	if !*patched {
		return
	}
	binary, err := ceil.BuildTest(t.Context(), root, t.TempDir(), "./internal/simulation/large")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), binary, "-test.run", "^TestItNotices$", "-inside").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
