package live

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// The rates of a key are summed over the instances, and no more than 50 keys are shown.
func TestBusiestKeysOfAFleet(t *testing.T) {
	t.Parallel()
	report := func(all ...protocol.KeyRate) protocol.InstanceStatus {
		return protocol.InstanceStatus{Report: &protocol.Report{BusiestKeys: all}}
	}
	f := &protocol.Fleet{Instances: []protocol.InstanceStatus{
		report(protocol.KeyRate{Key: "a", Issued: 1.25, Refused: 2}, protocol.KeyRate{Key: "b", Issued: 3}),
		{}, report(), report(protocol.KeyRate{Key: "a", Issued: 2}, protocol.KeyRate{Key: "c", Refused: 3}),
	}}
	want := []Key{{"a", 3.3, 2, 2}, {"b", 3, 0, 1}, {"c", 0, 3, 1}}
	if diff := cmp.Diff(want, BusiestKeys(f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range 100 {
		f.Instances = append(f.Instances, report(protocol.KeyRate{Key: fmt.Sprint(i)}))
	}
	if got := BusiestKeys(f); len(got) != keysAtMost || got[0].Key != "a" {
		t.Errorf("%d keys, %v first", len(got), got[0])
	}
	if got := BusiestKeys(&protocol.Fleet{}); got == nil || len(got) > 0 {
		t.Errorf("%#v, not an empty list", got)
	}
}
