package coordinator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

func adaptive(permits, floor int64) *quota.Policy {
	p := quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Throttling: quota.Throttling{Adaptive: quota.Adaptive{Floor: floor}}}.WithDefaults()
	return &p
}

func paceOf(revision, permits int64) protocol.Throttle {
	return protocol.Throttle{Revision: revision, Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}
}

// paceReport is a report of two instances that share 1,000/s, or the pace.
func paceReport(revision, span, issued, refused int64) protocol.Report {
	return protocol.Report{Share: 300, PaceRevision: revision, PaceSpan: span, PaceIssued: issued, PaceRefused: refused}
}

// TestNextPace is the rule step by step: limit 1,000/s, floor 200, at most 30% a cut, 30 a
// raise, 5 s between.
func TestNextPace(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	raised := func(raises int64) protocol.Throttle { p := paceOf(7, 600); p.Raises = raises; return p }
	for name, test := range map[string]struct {
		pace    protocol.Throttle
		age     time.Duration
		reports []protocol.Report
		next    int64 // 0: the limit
		stays   bool
	}{
		"nobody refused":                 {paceOf(7, 600), time.Minute, []protocol.Report{paceReport(7, 4000, 1200, 0), paceReport(7, 4000, 1200, 0)}, 630, false},
		"the third raise in a row":       {raised(2), time.Minute, []protocol.Report{paceReport(7, 4000, 1200, 0)}, 630, false},
		"the fourth is larger":           {raised(3), time.Minute, []protocol.Report{paceReport(7, 4000, 1200, 0)}, 660, false},
		"a cut after many raises":        {raised(100), 0, []protocol.Report{paceReport(7, 1000, 300, 60)}, 468, false},
		"up to the limit at once":        {raised(100), time.Minute, []protocol.Report{paceReport(7, 4000, 1200, 0)}, 0, false},
		"nobody refused, too soon":       {paceOf(7, 600), 4 * time.Second, []protocol.Report{paceReport(7, 4000, 1200, 0)}, 0, true},
		"not used":                       {paceOf(7, 600), time.Minute, []protocol.Report{paceReport(7, 4000, 300, 0), paceReport(7, 4000, 300, 0)}, 0, true},
		"used by one":                    {paceOf(7, 600), time.Minute, []protocol.Report{paceReport(7, 4000, 1200, 0), paceReport(7, 4000, 0, 0)}, 630, false},
		"most know another pace":         {paceOf(7, 600), time.Minute, []protocol.Report{paceReport(7, 4000, 1200, 0), paceReport(6, 4000, 1200, 0), paceReport(6, 4000, 1200, 0)}, 0, true},
		"others know no pace":            {paceOf(7, 600), time.Minute, []protocol.Report{paceReport(7, 4000, 1200, 0), {}, {}, {}}, 630, false},
		"a stray one":                    {paceOf(7, 600), time.Minute, []protocol.Report{paceReport(7, 4000, 1200, 2)}, 630, false},
		"a tenth refused":                {paceOf(7, 600), 0, []protocol.Report{paceReport(7, 1000, 300, 60), paceReport(7, 1000, 300, 0)}, 528, false}, // and 2%
		"most refused":                   {paceOf(7, 600), 0, []protocol.Report{paceReport(7, 1000, 300, 250)}, 420, false},
		"refused for a moment":           {paceOf(7, 600), 0, []protocol.Report{paceReport(7, 999, 300, 250)}, 0, true},
		"refused under the pace before":  {paceOf(7, 600), 0, []protocol.Report{paceReport(6, 4000, 1200, 250)}, 0, true},
		"the first cut":                  {protocol.Throttle{}, 0, []protocol.Report{paceReport(0, 4000, 2000, 200)}, 880, false},
		"down to the floor":              {paceOf(7, 210), 0, []protocol.Report{paceReport(7, 1000, 300, 250)}, 200, false},
		"at the floor":                   {paceOf(7, 200), 0, []protocol.Report{paceReport(7, 1000, 300, 250)}, 0, true},
		"up to the limit":                {paceOf(7, 980), time.Minute, []protocol.Report{paceReport(7, 4000, 1200, 0)}, 0, false},
		"at the limit":                   {protocol.Throttle{}, time.Minute, []protocol.Report{paceReport(0, 4000, 1200, 0)}, 0, true},
		"more refused than issued, lies": {paceOf(7, 600), 0, []protocol.Report{paceReport(7, 1000, 1, 1<<60)}, 420, false},
		"the limit was lowered to it":    {paceOf(7, 1000), 0, nil, 0, false},
		"what the provider states":       {protocol.Throttle{}, 0, []protocol.Report{{Learned: "600/s"}}, 0, true},
		"no reports":                     {paceOf(7, 600), time.Minute, nil, 0, true},
	} {
		next, ok := nextPace(adaptive(1000, 20), test.pace, test.reports, test.age, now)
		got := int64(0)
		if ok && len(next.Limits) > 0 {
			got = next.Limits[0].Permits
		}
		if ok == test.stays || got != test.next {
			t.Errorf("%s: %d, changes %v, want %d", name, got, ok, test.next)
		}
	}
}

// Long limits alone have no pace: it lowers short ones.
func TestLongLimitsAloneHaveNoPace(t *testing.T) {
	p := adaptive(1000, 20)
	p.Limits[0].Window = time.Hour
	if next, ok := nextPace(p, protocol.Throttle{}, []protocol.Report{paceReport(0, 4000, 300, 250)}, 0, time.Now()); ok {
		t.Errorf("%+v", next)
	}
}

// Each limit follows, and earlier paces are kept, a minute apart and not too many.
func TestAPaceOfSeveralLimits(t *testing.T) {
	p := adaptive(1000, 20)
	p.Limits = append(p.Limits, quota.Limit{Permits: 5000, Window: time.Minute})
	asks := []protocol.Ask{{By: "a"}}
	pace, now := protocol.Throttle{Asks: asks}, time.Unix(1_700_000_000, 0)
	for i := range 80 {
		next, ok := nextPace(p, pace, []protocol.Report{paceReport(pace.Revision, 4000, 300, 6)}, 0, now)
		if !ok {
			break
		}
		pace, now = next, now.Add(20*time.Second)
		pace.Revision = int64(1 + i)
	}
	if !slices.Equal(pace.Asks, asks) {
		t.Errorf("of the asks these are left: %v", pace.Asks)
	}
	if got := quota.FormatLimits(pace.Limits); got != "200/s,1000/1m" {
		t.Errorf("the pace falls to %s, want 200/s,1000/1m", got)
	}
	if n := len(pace.Past); n != protocol.MaxPastPaces {
		t.Errorf("%d paces are kept, want %d", n, protocol.MaxPastPaces)
	}
	for i := range pace.Past[1:] {
		if d := pace.Past[i+1].Time.Sub(pace.Past[i].Time); d < time.Minute {
			t.Errorf("two are %v apart", d)
		}
	}
}

// TestThePaceConverges: whatever a provider takes, the pace stays within its bounds. While
// that stays the same, and is above the floor, no more than a raise above it is issued,
// few calls are refused, and nine tenths of it are used.
func TestThePaceConverges(t *testing.T) {
	for seed := uint64(1); seed <= 300; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			limit, floor := 200+r.Int64N(100_000), 1+r.Int64N(50)
			p := adaptive(limit, floor)
			p.Adaptive.Decrease, p.Adaptive.Increase = 5+r.Int64N(60), 1+r.Int64N(5)
			pace, revision := protocol.Throttle{}, int64(0)
			now, changed := time.Unix(1_700_000_000, 0), int64(0)
			for range 3 {
				takes := protocol.PaceFloor(p, limit) + r.Int64N(limit)
				var sent, refused, taken, seconds int64
				for second := range int64(1000) {
					now = now.Add(time.Second)
					changed++
					total := pace.Total(p, limit, time.Second)
					if total > limit || total < protocol.PaceFloor(p, limit) {
						t.Fatalf("the pace is %d of %d", total, limit)
					}
					if second >= 700 {
						sent, refused, taken, seconds = sent+total, refused+max(0, total-takes), taken+min(total, takes), seconds+1
					}
					if second%2 > 0 { // the oldest looks
						continue
					}
					span := min(4, changed)
					report := protocol.Report{Share: total, PaceSpan: 1000 * span, PaceIssued: span * total, PaceRefused: span * max(0, total-takes)}
					report.PaceRevision = pace.Revision
					next, ok := nextPace(p, pace, []protocol.Report{report}, time.Duration(changed)*time.Second, now)
					if !ok {
						continue
					}
					if pace, changed = next, 0; len(pace.Limits) > 0 {
						revision++
						pace.Revision = revision
					}
				}
				can := min(takes, limit)
				if taken < can*seconds*9/10 {
					t.Errorf("limit %d, the provider takes %d: %d are used", limit, takes, taken/seconds)
				}
				if step := max(1, limit*p.Adaptive.Increase/100); refused > seconds*(step+can/50) {
					t.Errorf("limit %d, the provider takes %d: %d of %d are refused", limit, takes, refused/seconds, sent/seconds)
				}
			}
		})
	}
}

// pacedTo returns the pace in a view; "" if there is none.
func pacedTo(r *recorder) string {
	if r.view.Throttle == nil {
		return ""
	}
	return quota.FormatLimits(r.view.Throttle.Limits)
}

// refusing is a limiter that uses its share, and the part of whose calls that the provider
// refused in the last 4 s.
type refusing struct {
	recorder
	share, percent int64
}

// Report implements feed.Sink.
func (l *refusing) Report(clock.Instant) protocol.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := protocol.Report{Schema: quota.Schema, State: quota.StateActive, Share: l.share, PaceSpan: 4000, PaceIssued: 4 * l.share, PaceRefused: 4 * l.share * l.percent / 100}
	r.PaceRevision = l.view.Throttle.Decided()
	return r
}

// TestThePaceIsWritten: it falls by what the instances report, in everybody's view, and
// rises when they are refused nothing more; one writes it, and the floor holds.
func TestThePaceIsWritten(t *testing.T) {
	t.Parallel()
	f := setup(t)
	p := *adaptive(1000, 50)
	p.Adaptive.Increase, p.Adaptive.Every = 100, 2*time.Second
	if _, err := f.admin.Put(t.Context(), "p", p); err != nil {
		t.Fatal(err)
	}
	var all []*refusing
	var log bytes.Buffer // its handler locks it
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for range 2 {
		l := &refusing{share: 200}
		if _, _, err := f.join(Options{Logger: logger}).subscribe("p", func() feed.Sink { return l }); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	both := func(holds func(*recorder) bool) func() bool {
		return func() bool { return all[0].is(holds)() && all[1].is(holds)() }
	}
	await.Until(t, "both know both", both(members(2)))
	answers := func(share, refused int64) {
		for _, l := range all {
			l.mu.Lock()
			l.share, l.percent = share, refused
			l.mu.Unlock()
		}
	}
	answers(200, 60)
	await.Until(t, "cuts down to the floor, in both views", both(func(r *recorder) bool {
		return pacedTo(r) == "500/s"
	}))
	s, err := feed.Inside(f.admin).Throttle(t.Context(), "p")
	if err != nil || s == nil || s.Author == "" || s.Refused == 0 || len(s.Past) != 1 || quota.FormatLimits(s.Past[0].Limits) != "700/s" {
		t.Errorf("%+v, %v", s, err)
	}
	fleet, err := feed.Inside(f.admin).Fleet(t.Context(), "p")
	if err != nil || fleet.Throttle == nil {
		t.Fatalf("%+v, %v", fleet.Throttle, err)
	}
	sum := int64(0)
	for _, i := range fleet.Instances {
		sum += i.Share
	}
	if sum > 500 {
		t.Errorf("shares sum to %d", sum)
	}
	answers(600, 0)
	await.Until(t, "raises up to the limit, without a pace", both(func(r *recorder) bool { return pacedTo(r) == "" }))
	for _, s := range f.sessions {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"the total in force is lower than the limit", "the limit is in force again"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("logged %d times: %s\n%s", n, want, log.String())
		}
	}
}

// One command ends what a provider has asked for, a lowered total too.
func TestResumeEndsAPace(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if _, err := f.admin.Put(t.Context(), "p", *adaptive(1000, 50)); err != nil {
		t.Fatal(err)
	}
	r, _ := f.subscribe(f.join(Options{}), "p")
	lower := paceOf(0, 600)
	lower.Time = time.Now()
	value, err := json.Marshal(lower)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.write(clientv3.OpPut(f.admin.keys.Throttle("p"), string(value))); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the total is lower", r.is(func(r *recorder) bool { return pacedTo(r) == "600/s" }))
	if ended, err := f.admin.Resume(t.Context(), "p"); !ended || err != nil {
		t.Errorf("ended: %v, %v", ended, err)
	}
	await.Until(t, "the limit is in force", r.is(func(r *recorder) bool { return r.view.Throttle == nil }))
}

// Without the right to write the pace the limit stays in force, and the instance reports
// that, until its role has the right.
func TestAPaceThatMayNotBeWrittenIsReported(t *testing.T) {
	t.Parallel()
	f, cluster := setupAsConsumer(t, *adaptive(1000, 50))
	l := &refusing{share: 1000, percent: 60}
	if _, _, err := f.join(Options{}).subscribe("p", func() feed.Sink { return l }); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it is told", l.is(func(r *recorder) bool {
		return errors.Is(r.trouble, ErrPermission) && strings.Contains(r.trouble.Error(), "quota-admin roles consumer p")
	}))
	if !l.is(func(r *recorder) bool { return pacedTo(r) == "" && !r.closed })() {
		t.Error("there is a pace")
	}
	grants := login(t, cluster, "root")
	await.Until(t, "the role has the right", func() bool {
		_, err := grants.RoleGrantPermission(t.Context(), "consumer", f.admin.keys.Throttle("p"), "", clientv3.PermissionType(clientv3.PermReadWrite))
		return err == nil
	})
	await.Until(t, "the pace is written", l.is(func(r *recorder) bool { return pacedTo(r) != "" }))
	await.Until(t, "the problem is over", l.is(func(r *recorder) bool { return r.trouble == nil }))
}

// A pace that no policy follows any more would hold back the next one that does. A throttle
// that cannot be read is a problem that all report. Asks stay.
func TestAPaceThatLowersNothingGoes(t *testing.T) {
	t.Parallel()
	asked := paceOf(0, 3)
	asked.Time = time.Unix(1, 0).UTC()
	asked.Asks = []protocol.Ask{{By: "a", At: time.Unix(1, 0).UTC(), Until: time.Unix(2, 0).UTC()}}
	value, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	lower := *adaptive(3, 50)
	for name, test := range map[string]struct {
		policy quota.Policy
		value  string
		asks   int
	}{
		"not adaptive":           {quota.Policy{Limits: lower.Limits}, string(value), 1},
		"at the limit":           {lower, string(value), 1},
		"that is not a throttle": {lower, "{", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			if _, err := f.admin.Put(t.Context(), "p", test.policy); err != nil {
				t.Fatal(err)
			}
			key := f.admin.keys.Throttle("p")
			if err := f.write(clientv3.OpPut(key, test.value)); err != nil {
				t.Fatal(err)
			}
			f.subscribe(f.join(Options{}), "p")
			await.Until(t, "it is gone", func() bool {
				s, err := feed.Inside(f.admin).Throttle(t.Context(), "p")
				return err == nil && s != nil && len(s.Limits) == 0 && len(s.Asks) == test.asks
			})
		})
	}
}
