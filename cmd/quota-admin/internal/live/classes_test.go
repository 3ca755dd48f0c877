package live

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Rates by class are those between two reports, summed; a class of a stranger's invention is
// not shown, and a fleet without classes has none.
func TestClassRates(t *testing.T) {
	p := newProvider("p")
	for i := range 3 {
		now := start.Add(time.Duration(i) * time.Second)
		f := look{names: []string{"a", "b"}, issued: int64(10 * i)}.fleet(now)
		if i == 0 {
			if p.see(now, f, nil); p.Classes() != nil {
				t.Errorf("without classes: %v", p.Classes())
			}
			continue
		}
		n := int64(i)
		for k := range f.Instances {
			f.Instances[k].Report.Classes = map[string]protocol.ClassUse{"critical": {Issued: 4 * n, Refused: n, Waiting: 2}, "default": {Issued: 6 * n}, "invented": {Issued: 9 * n}}
		}
		p.see(now, f, nil)
	}
	want := []ClassRate{{"critical", 8, 2, 4}, {"default", 12, 0, 0}, {"sheddable", 0, 0, 0}}
	if diff := cmp.Diff(want, p.Classes()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
