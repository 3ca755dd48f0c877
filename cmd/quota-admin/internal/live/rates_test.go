package live

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// The rates of a key are summed over the instances, and no more than 50 keys are shown.
func TestBusiestKeysOfAFleet(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	report := func(age time.Duration, all ...protocol.Rate) protocol.InstanceStatus {
		return protocol.InstanceStatus{Report: &protocol.Report{Time: now.Add(-age), BusiestKeys: all}}
	}
	f := &protocol.Fleet{Instances: []protocol.InstanceStatus{
		report(1, protocol.Rate{Name: "a", Issued: 1.25, Refused: 2}, protocol.Rate{Name: "b", Issued: 3}),
		{}, report(9), report(2, protocol.Rate{Name: "a", Issued: 2}, protocol.Rate{Name: "c", Refused: 3}, protocol.Rate{Name: "seldom", Refused: 0.03}),
	}}
	want := []Rate{{"a", 3.3, 2, 2, now.Add(-2)}, {"b", 3, 0, 1, now.Add(-1)}, {"c", 0, 3, 1, now.Add(-2)}, {"seldom", 0, 0.1, 1, now.Add(-2)}}
	if diff := cmp.Diff(want, BusiestKeys(f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range 100 {
		f.Instances = append(f.Instances, report(0, protocol.Rate{Name: fmt.Sprint(i)}))
	}
	if got := BusiestKeys(f); len(got) != keysAtMost || got[0].Name != "a" {
		t.Errorf("%d keys, %v first", len(got), got[0])
	}
	if got := BusiestKeys(&protocol.Fleet{}); got == nil || len(got) > 0 {
		t.Errorf("%#v, not an empty list", got)
	}
}

// No more than 20 labels of a fleet are shown by name. The others are summed with the others of
// each instance, and stand last.
func TestBusiestLabelsOfAFleet(t *testing.T) {
	t.Parallel()
	f := &protocol.Fleet{Instances: make([]protocol.InstanceStatus, 3)}
	for n := range 2 {
		all := []protocol.Rate{{Name: "other", Issued: 100, Refused: 1}, {Issued: 50}}
		for i := range 20 {
			all = append(all, protocol.Rate{Name: fmt.Sprintf("label %02d", i+n), Issued: float64(20 - i)})
		}
		f.Instances[n].Report = &protocol.Report{Time: time.Unix(int64(n+1), 0), BusiestLabels: all}
	}
	got := BusiestLabels(f)
	if want := (Rate{"other", 200 + 1 + 3, 2, 2, time.Unix(1, 0)}); len(got) != 21 || got[20] != want {
		t.Errorf("%d rows, the last %+v, want %+v", len(got), got[len(got)-1], want)
	}
	if diff := cmp.Diff([]Rate{{"", 100, 0, 2, time.Unix(1, 0)}, {"label 01", 39, 0, 2, time.Unix(1, 0)}}, got[:2]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := BusiestLabels(&protocol.Fleet{}); got == nil || len(got) > 0 {
		t.Errorf("%#v, not an empty list", got)
	}
}
