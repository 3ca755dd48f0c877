package live

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// A point is divided by class, label and key as the reports divide it, though their rates are
// means of other times: the parts of classes and labels sum to the point, and the busiest keys
// to no more.
func TestAPointIsDividedByKind(t *testing.T) {
	t.Parallel()
	w := []*worker{{name: "a", share: 60, to: 1000}, {name: "b", share: 40, phase: 300 * time.Millisecond, to: 1000}}
	c := newMeter()
	c.observed(true)
	var points []Point
	for i := range 20 {
		now := start.Add(time.Duration(i)*time.Second + 500*time.Millisecond)
		f := fleetAt(now, time.Second, 100, w)
		for n := range f.Instances {
			if r := f.Instances[n].Report; r != nil {
				r.Classes = map[string]protocol.ClassUse{"critical": {Issued: 30 * int64(i)}, "default": {Issued: 90 * int64(i)}, "sheddable": {}}
				r.BusiestLabels = []protocol.Rate{{Name: "", Issued: 150}, {Name: "nightly", Issued: 50}}
				r.BusiestKeys = []protocol.Rate{{Name: "tenant-1", Issued: 10}}
				if i > 15 {
					r.BusiestKeys = nil
					for k := range 20 {
						r.BusiestKeys = append(r.BusiestKeys, protocol.Rate{Name: fmt.Sprint("tenant-", k), Issued: 30})
					}
				}
			}
		}
		points = append(points, c.see(now, f)...)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	if p := points[10]; *p.Total != 100 || !near(p.By["class"]["critical"], 25) || !near(p.By["class"]["default"], 75) ||
		!near(p.By["label"][""], 75) || !near(p.By["label"]["nightly"], 25) || !near(p.By["key"]["tenant-1"], 20) {
		t.Errorf("%v: %v", *p.Total, p.By)
	}
	last, sum := points[len(points)-1], 0.0
	for _, n := range last.By["key"] {
		sum += n
	}
	if len(last.By["key"]) != named || sum > *last.Total || !near(last.By["key"]["tenant-1"], 5) {
		t.Errorf("%v of %v by key: %v", sum, *last.Total, last.By["key"])
	}
	if points, _ := run(time.Second, 100, 9, w); points[len(points)-1].By != nil {
		t.Error("calls without classes, labels and keys are divided")
	}
}
