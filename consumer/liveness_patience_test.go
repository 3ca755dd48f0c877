package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// TestLivenessOfPatience plays random histories of fleets that lend: small and large requests of all
// classes, of the provider and of a key, first calls of new instances, limits below the fleet. One in four has a long
// limit, whose permits etcd gives after a time: see liveness_long_test.go. What must hold: nobody is
// refused before its deadline who would be served by then if it had asked with Forever. Each such
// refusal is held against a second play of the same history, in which that one call has Forever and
// nothing else is different. That a caller before it gives up is news.
func TestLivenessOfPatience(t *testing.T) {
	var sum patience
	seeds := []uint64{*livenessSeed}
	if *livenessSeed == 0 {
		seeds = []uint64{1081, 1387, 1481, 1502, 2666, 4166, 5673, 7546, 10379, 1344, 4, 596, 20984, 51704, 71470, 108068, 153196, 1101444, 1245472, 5003564, 5028728, 7011388} // have failed
		for seed, end := livenessSeeds(); seed < end; seed++ {
			seeds = append(seeds, seed)
		}
	}
	for _, seed := range seeds {
		sum.histories++
		h := newPatient(seed)
		outcomes := h.play(t, -1)
		var refused []int
		for i, o := range outcomes {
			sum.calls++
			switch c := h.calls[i]; {
			case o.err == nil:
				sum.served++
			case !errors.Is(o.err, consumer.ErrLimited):
				sum.other++
			case o.after >= c.wait:
				sum.late++
			default:
				sum.early++
				refused = append(refused, i)
			}
		}
		rand.New(rand.NewPCG(seed, 14)).Shuffle(len(refused), func(i, j int) { refused[i], refused[j] = refused[j], refused[i] })
		for _, i := range refused[:min(3, len(refused))] {
			sum.replayed++
			all := h.play(t, i)
			switch o := all[i]; {
			case o.err != nil || o.after >= h.calls[i].wait:
			case h.gaveUp(all, outcomes[i].after, i), h.longNews(outcomes[i].err, i):
				sum.gaveUp++
			case h.again(t, i):
				sum.though++
				t.Errorf("-liveness.seed %d: %s: call %d, %+v, was refused after %v (%v), and with Forever it was served after %v",
					seed, h.about, i, h.calls[i], outcomes[i].after, outcomes[i].err, o.after)
			}
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d histories, %d calls: %d served, %d refused at their deadline, %d before it, %d other errors; of %d played again %d are served since another gave up, refused though Forever was served: %d",
		sum.histories, sum.calls, sum.served, sum.late, sum.early, sum.other, sum.replayed, sum.gaveUp, sum.though)
}

// patience is what TestLivenessOfPatience reports.
type patience struct{ histories, calls, served, late, early, other, replayed, gaveUp, though int }

// patienceHistory is one history: a fleet, and when which calls come. Nothing of it depends on outcomes.
type patienceHistory struct {
	policy    quota.Policy
	instances int
	joins     time.Duration // when another instance joins; 0: never
	calls     []patientCall
	about     string
	window    time.Duration // of the first limit
	longHistory
}

// patientCall is one call.
type patientCall struct {
	at       time.Duration
	instance int // the last one is the one that joins
	n        int64
	class    int
	key      bool
	wait     time.Duration
	longCall
}

// patientOutcome is what became of a call.
type patientOutcome struct {
	after time.Duration
	err   error
}

func newPatient(seed uint64) *patienceHistory {
	r := rand.New(rand.NewPCG(seed, 13))
	h := &patienceHistory{instances: 1 + r.IntN(5)}
	window := []time.Duration{250 * time.Millisecond, time.Second, time.Second, 10 * time.Second}[r.IntN(4)]
	total := []int64{1, 3, 7, 20, 100, 1000}[r.IntN(6)]
	h.policy.Limits = []quota.Limit{{Permits: total, Window: window}}
	if r.IntN(4) == 0 {
		h.policy.Limits = append(h.policy.Limits, quota.Limit{Permits: 2 * total, Window: 4 * window})
	}
	if r.IntN(5) == 0 {
		h.policy.Lend = "off"
	}
	if r.IntN(4) == 0 {
		h.policy.Critical = 1 + r.Int64N(50)
	}
	keys := r.IntN(3) == 0
	if keys {
		h.policy.Keys.Limits = []quota.Limit{{Permits: max(1, total/2), Window: window}}
	}
	if r.IntN(2) == 0 {
		h.joins = window + time.Duration(r.Int64N(int64(window)))
	}
	const windows = 5
	load, busy := 0.2+2*r.Float64(), 1+r.IntN(h.instances)
	for used := int64(0); float64(used) < load*float64(total)*windows && len(h.calls) < 120; {
		c := patientCall{at: time.Duration(r.Int64N(int64(windows * window))), instance: r.IntN(busy), n: 1, class: 1}
		if h.joins > 0 && c.at > h.joins && r.IntN(3) == 0 {
			c.instance = h.instances
		}
		most := total
		if c.key = keys && r.IntN(2) == 0; c.key {
			most = h.policy.Keys.Limits[0].Permits
		}
		switch r.IntN(4) {
		case 0:
			c.n = 1 + r.Int64N(most)
		case 1:
			c.n = 1 + r.Int64N(max(1, most/int64(h.instances)))
		}
		if r.IntN(3) == 0 {
			c.class = r.IntN(len(classes))
		}
		c.wait = time.Duration(1 + r.Int64N(int64([]time.Duration{window / 10, window, 3 * window}[r.IntN(3)])))
		used += c.n
		h.calls = append(h.calls, c)
	}
	if more := rand.New(rand.NewPCG(seed, 15)); keys { // apart, so that seeds that have failed play as they did
		h.policy.Keys.Owners = []int64{0, 0, 1, 2}[more.IntN(4)]
		if more.IntN(2) == 0 { // larger calls
			for i := range h.calls {
				if c := &h.calls[i]; c.key {
					c.n = 1 + more.Int64N(h.policy.Keys.Limits[0].Permits)
				}
			}
		}
	}
	if h.joins > 0 { // its first call comes at once
		h.calls = append(h.calls, patientCall{at: h.joins, instance: h.instances, n: 1, class: 1, wait: time.Duration(1 + r.Int64N(int64(2*window)))})
	}
	if h.policy.Critical == 0 && rand.New(rand.NewPCG(seed, 88)).IntN(3) == 0 { // apart, like owners
		h.policy.Pacing = quota.PacingEven
	}
	if h.window = window; seed%4 == 0 {
		h.makeLong(rand.New(rand.NewPCG(seed, 61)))
	}
	h.about = fmt.Sprintf("%d instances, another at %v, %d of them busy, %v, lend %q, pacing %q, critical %d, keys %v of %d owners, etcd answers after %v, first %v", h.instances, h.joins, busy, h.policy.Limits, h.policy.Lend, h.policy.Pacing, h.policy.Critical, h.policy.Keys.Limits, h.policy.Keys.Owners, h.answers, h.first)
	return h
}

// gaveUp reports whether another call of the instance, one that goes before this one, ended without a permit while this one
// waited, and after the instant at which this one was refused: its place is there for others, which nobody could know before.
// A call for a key may come to the provider's queue after one that began later.
func (h *patienceHistory) gaveUp(all []patientOutcome, refused time.Duration, i int) bool {
	c := &h.calls[i]
	at := func(i int) time.Duration { return h.calls[i].at + time.Duration(i) }
	for j, o := range all {
		first := h.calls[j].class < c.class || h.calls[j].class == c.class && (at(j) < at(i) || c.key)
		if end := at(j) + o.after; first && h.calls[j].instance == c.instance && o.err != nil && o.after > 0 && end > at(i)+refused && end <= at(i)+all[i].after {
			return true
		}
	}
	return false
}

// again reports whether a call is refused in each of twelve plays more and served in each with Forever.
// What comes at one instant has an order of its own in each play: the runtime draws that of timers, and
// several goroutines run. Nearly all histories repeat in spite of it; where one does not, a call is served
// in some plays and refused in others, with Forever or without.
func (h *patienceHistory) again(t *testing.T, i int) bool {
	for range 12 {
		finite, endless := h.play(t, -1)[i], h.play(t, i)[i]
		if finite.err == nil || finite.after >= h.calls[i].wait || endless.err != nil || endless.after >= h.calls[i].wait {
			return false
		}
	}
	return true
}

// play plays the history, in which one call has Forever.
func (h *patienceHistory) play(t *testing.T, forever int) []patientOutcome {
	outcomes := make([]patientOutcome, len(h.calls))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		all := make([]*consumer.Limiter, h.instances+1) // the last is that of the newcomer
		joined := make(chan struct{})
		if h.answers > 0 {
			time.Sleep(h.begins)
			defer h.open(t, all)()
		} else {
			f := fleet(t, h.policy, h.instances)
			for i, instance := range f.Instances() {
				all[i] = open(t, instance, consumer.Options{})
			}
			if h.joins > 0 {
				running.Go(func() {
					time.Sleep(h.joins)
					all[h.instances] = open(t, f.Join(), consumer.Options{})
					close(joined)
				})
			}
		}
		for i, c := range h.calls {
			running.Go(func() {
				time.Sleep(c.at + time.Duration(i)) // no two at one instant
				if c.instance == h.instances {
					<-joined
				}
				var l taker = all[c.instance].Class(classes[c.class])
				if c.key {
					l = all[c.instance].Class(classes[c.class]).Key("k")
				}
				wait, began := c.wait, time.Now()
				if i == forever {
					wait = consumer.Forever
				}
				p, err := l.Take(ctx, c.n, wait)
				outcomes[i] = patientOutcome{time.Since(began), err}
				if err == nil {
					c.end(t, p)
				}
			})
		}
		time.Sleep(10 * h.window)
		for _, l := range all {
			if l == nil { // nobody has joined
				continue
			}
			if st := l.Status(); st.OverIssued != 0 {
				t.Errorf("%s: %d permits were issued that no bound allowed", h.about, st.OverIssued)
			}
		}
		cancel()
		running.Wait()
	})
	return outcomes
}
