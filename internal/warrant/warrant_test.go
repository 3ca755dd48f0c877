package warrant

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	ms    = int64(time.Millisecond)
	epoch = 28_333_334 * int64(time.Minute)
)

// at is a reading of two clocks that run together.
func at(t int64) clock.Instant { return clock.Instant{Mono: t * ms, Wall: epoch + t*ms} }

// TestTerms steps through a proof's life by both clocks and both rules.
func TestTerms(t *testing.T) {
	for _, rule := range []quota.Outage{quota.OutageStop, quota.OutageHold} {
		c := clock.Started(at(0), nil, 0)
		var w Warrant
		if terms := w.Terms(at(0), c); terms.Known || terms.Hopeless {
			t.Errorf("%s: before anything is known: %+v", rule, terms)
		}
		p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Outage: rule,
			Settle: 600 * time.Millisecond, Freshness: 400 * time.Millisecond}.WithDefaults()
		w.Reset(at(0), "a", quota.View{Revision: 1, Policy: &p, Instances: []quota.Instance{{ID: "a"}}})
		if terms := w.Terms(at(10), c); !terms.Strict || terms.Until != math.MinInt64 {
			t.Errorf("%s: without a proof permits may be issued until %d", rule, terms.Until)
		}
		if !w.Prove(at(100)) {
			t.Errorf("%s: the first proof changes nothing", rule)
		}
		if w.Prove(at(90)) {
			t.Errorf("%s: an older proof changes something", rule)
		}
		terms := w.Terms(at(200), c)
		if rule == quota.OutageStop {
			if terms.Until != 500*ms || terms.WallUntil != epoch+500*ms {
				t.Errorf("stop: until %d and %d", terms.Until, terms.WallUntil)
			}
			continue
		}
		if terms.Strict {
			t.Error("hold: strict with a proof")
		}
		if w.Prove(at(200)) {
			t.Error("hold: a newer proof changes shares while the view is fresh")
		}
		w.Terms(at(601), c)
		if !w.Prove(at(602)) {
			t.Error("hold: the proof that ends an outage changes nothing")
		}
	}
}

// TestHoldNeverGrows: another instance leaves, the proof ends, and the share
// stays what it was, however long that lasts; the next proof lets it grow.
func TestHoldNeverGrows(t *testing.T) {
	p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Outage: quota.OutageHold,
		Settle: 600 * time.Millisecond, Freshness: 400 * time.Millisecond}.WithDefaults()
	c := clock.Started(at(0), nil, 0)
	var w Warrant
	w.Reset(at(0), "a", quota.View{Revision: 1, Policy: &p, Instances: []quota.Instance{{ID: "a"}, {ID: "b"}}})
	w.Prove(at(2100))
	w.Apply(at(2050), quota.Change{Revision: 2, Deleted: []string{"b"}})
	for _, now := range []int64{3000, 60_000, 600_000} {
		w.Terms(at(now), c)
		if b := w.Bound(quota.WindowAt(time.Second, epoch+now*ms), now*ms, epoch); b.Permits != 5 {
			t.Errorf("after %d ms: %d permits", now, b.Permits)
		}
	}
	w.Prove(at(600_000))
	w.Terms(at(600_000), c)
	if b := w.Bound(quota.WindowAt(time.Second, epoch+600_000*ms), 600_000*ms, epoch); b.Permits != 10 {
		t.Errorf("proved again: %d permits", b.Permits)
	}
}
