package lending

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// called is a flow of calls at a rate, looked at each 5 ms, from one instant to another, in
// windows of a second.
func called(f *Flow, from, until float64, rate float64) {
	for at := from; at <= until; at += 5 {
		f.Begin(int64(at/1000), math.Floor(at/1000)*1000, 1000)
		n := f.calls
		if at > from {
			n += 5 * rate
		}
		f.Look(at, n)
	}
}

func begun() *Flow {
	f := &Flow{}
	f.Look(0, 0)
	f.Begin(0, 0, 1000)
	return f
}

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.Abs(got-want) > by {
		t.Errorf("%s: %.1f, want %.1f", what, got, want)
	}
}

func TestForecasts(t *testing.T) {
	for _, test := range []struct {
		what  string
		play  func(f *Flow)
		phase float64
		want  float64
	}{
		{"nobody calls", func(f *Flow) { called(f, 0, 2500, 0) }, 500, 0},
		{"a steady rate of one a millisecond", func(f *Flow) { called(f, 0, 2500, 1) }, 500, 1.05*500 + math.Sqrt(500)},
		{"at the window's end there is no margin for chance", func(f *Flow) { called(f, 0, 2900, 1) }, 900, 105},
		{"callers that have gone silent", func(f *Flow) { called(f, 0, 2300, 1); called(f, 2305, 2800, 0) }, 800, 0},
		{"20 a second, silent for six calls", func(f *Flow) { called(f, 0, 2300, 0.02); called(f, 2305, 2700, 0) }, 700, 0},
		{"ones that came half a window ago at twice the rate", func(f *Flow) { called(f, 0, 2000, 0); called(f, 2005, 2500, 2) }, 500, 1.05*1000 + math.Sqrt(1000)},
		{"at least half of the rate two windows ago", func(f *Flow) { called(f, 0, 999, 1); called(f, 1000, 2499, 0.1) }, 499, 1.05*250 + math.Sqrt(250)},
	} {
		f := begun()
		test.play(f)
		near(t, test.what, f.Forecast(test.phase, 1000, 0), test.want, 0.06*test.want+1)
		near(t, test.what+", and three wait", f.Forecast(test.phase, 1000, 3)-f.Forecast(test.phase, 1000, 0), 3, 1e-9)
	}
	// One that has just woken, and asked, keeps what it asked by.
	f := begun()
	called(f, 0, 2400, 0)
	called(f, 2400, 2420, 1)
	before := f.Forecast(420, 1000, 0)
	f.Asked(0.8)
	if after := f.Forecast(420, 1000, 0); after <= before || after < 1.05*0.8*580 {
		t.Errorf("a waker keeps %.0f after its ask, %.0f before", after, before)
	}
}

// Four calls within 10 ms are no rate of 0.4 a millisecond for sure.
func TestARateOfFewCallsCountsLess(t *testing.T) {
	f := begun()
	f.Look(100, 0)
	f.Look(110, 4)
	near(t, "the rate of four calls in 10 ms", f.begun(), 0.2, 0.01)
}

func TestWhatAHostLends(t *testing.T) {
	large, small := RulesOf(96, 96), RulesOf(5, 5)
	host := func(change func(h *Host)) Host {
		h := Host{Phase: 400, Length: 1000, Share: 100, Left: 100}
		change(&h)
		return h
	}
	uneven := func(left, issued int64, forecast float64) Host {
		return host(func(h *Host) { h.Uneven, h.Left, h.Issued, h.Forecast = true, left, issued, forecast })
	}
	kept, tiny := uneven(370, 100, 400), uneven(2, 0, 2)
	kept.Kept, tiny.Share = 320, 1
	onDuty, last := tiny, tiny
	onDuty.Duty, last.Left, last.Forecast = true, 1, 1
	for _, test := range []struct {
		what          string
		rules         Rules
		host          Host
		permits, poor int64
		want          int64
	}{
		{"an idle one, half a reserve of 1 %", large, host(func(*Host) {}), 500, 0, 100},
		{"an idle one of few, 10 %", small, host(func(*Host) {}), 500, 0, 95},
		{"no reserve at the end", small, host(func(h *Host) { h.Phase = 860 }), 500, 0, 100},
		{"what it will not need", large, host(func(h *Host) { h.Forecast = 60.2 }), 500, 0, 39},
		{"not more than it is asked for", large, host(func(*Host) {}), 7, 0, 7},
		{"a little, too", large, host(func(h *Host) { h.Left, h.Phase = 2, 700 }), 50, 0, 2},
		{"a part of a permit is kept whole", large, host(func(h *Host) { h.Left, h.Phase, h.Forecast = 2, 990, 0.2 }), 50, 0, 1},
		{"but not of a small share", large, host(func(h *Host) { h.Share, h.Left, h.Phase, h.Forecast, h.Sure = 1, 1, 900, 0.4, true }), 50, 0, 1},
		{"if it is less than half a one", large, host(func(h *Host) { h.Share, h.Left, h.Phase, h.Forecast, h.Sure = 1, 1, 900, 0.6, true }), 50, 0, 0},
		{"if the guest will use it", large, host(func(h *Host) { h.Share, h.Left, h.Phase, h.Forecast = 1, 1, 900, 0.1 }), 50, 0, 0},
		{"of more than one, too", large, host(func(h *Host) { h.Share, h.Left, h.Phase, h.Forecast = 5, 5, 900, 1.4 }), 50, 0, 4},
		{"an idle one of a small share", large, host(func(h *Host) { h.Share, h.Left, h.Phase = 1, 1, 900 }), 50, 0, 1},
		{"on duty: the whole share", large, host(func(h *Host) { h.Duty = true }), 50, 0, 0},
		{"but to the poor", large, host(func(h *Host) { h.Duty = true }), 50, 50, 50},
		{"on duty, at the end", large, host(func(h *Host) { h.Duty, h.Phase = true, 860 }), 50, 0, 50},
		{"recall: to the poor, what it has beyond its fair share", large, host(func(h *Host) { h.Left, h.Issued, h.Forecast = 900, 30, 5000 }), 2000, 2000, 830},
		{"against others its forecast counts", large, host(func(h *Host) { h.Left, h.Issued, h.Forecast = 900, 30, 5000 }), 2000, 0, 0},
		{"where shares are uneven both divide what it has beyond its share", large, uneven(370, 30, 370), 100, 0, 75},
		{"also where the guest wants more than all", large, uneven(900, 30, 5000), 2000, 0, 239},
		{"and none of the share", large, uneven(70, 30, 5000), 2000, 0, 0},
		{"but for what the policy keeps", large, kept, 100, 0, 10},
		{"of a tiny share they divide all", large, tiny, 2, 0, 1},
		{"but not if the host is on duty", large, onDuty, 2, 0, 0},
		{"and the last one stays where it is wanted", large, last, 9, 0, 0},
		{"a spent one", large, host(func(h *Host) { h.Left = 0 }), 50, 50, 0},
		{"an overdrawn one", large, host(func(h *Host) { h.Left = -5 }), 50, 50, 0},
	} {
		if got := test.host.Lend(test.rules, test.permits, test.poor, 0); got != test.want {
			t.Errorf("%s: lends %d, want %d", test.what, got, test.want)
		}
	}
}

// For critical calls a host lends what it keeps for its other callers, and never what the
// policy keeps for critical ones.
func TestWhatAHostLendsToClasses(t *testing.T) {
	rules := RulesOf(5, 5)
	host := Host{Phase: 400, Length: 1000, Share: 100, Left: 60, Kept: 12, Forecast: 70, Critical: 20}
	duty := host
	duty.Duty = true
	quiet := host
	quiet.Forecast, quiet.Critical = 5, 0
	for _, test := range []struct {
		what                    string
		host                    Host
		permits, poor, critical int64
		want                    int64
	}{
		{"nothing to default calls, which its own lack", host, 50, 0, 0, 0},
		{"to critical ones, besides what its critical calls will want", host, 50, 0, 50, 40},
		{"not more than critical calls lack", host, 50, 0, 7, 7},
		{"on duty too", duty, 50, 0, 50, 40},
		{"what the policy keeps is kept from default calls", quiet, 60, 0, 0, 48},
		{"from the poor", quiet, 60, 60, 0, 48},
		{"and from critical ones of others", quiet, 60, 0, 60, 48},
	} {
		if got := test.host.Lend(rules, test.permits, test.poor, test.critical); got != test.want {
			t.Errorf("%s: lends %d, want %d", test.what, got, test.want)
		}
	}
}

// An ask says what critical calls lack, and asks for no reserve on behalf of sheddable ones.
func TestAnAskIsDivided(t *testing.T) {
	flow := func(rate float64) *Flow {
		f := begun()
		called(f, 0, 2400, rate)
		return f
	}
	for _, test := range []struct {
		critical, sheddable float64 // calls a millisecond
		waiting             int64   // for critical permits
		want                Ask
	}{
		{0, 0, 0, Ask{Permits: 500, Poor: 80}},
		{0.2, 0, 0, Ask{Permits: 500, Poor: 80, Critical: 90}},
		{0.2, 0, 10, Ask{Permits: 500, Poor: 80, Critical: 100}},
		{0, 0.9, 0, Ask{Permits: 500, Poor: 5}},
		{2, 2, 0, Ask{Permits: 500, Critical: 500}},
	} {
		a := Ask{Permits: 500, Poor: 80}
		a.Divide(Has{Rest: 500, Left: 20}, flow(test.critical), flow(test.sheddable), test.waiting, 0)
		near(t, "critical", float64(a.Critical), float64(test.want.Critical), 3)
		near(t, "poor", float64(a.Poor), float64(test.want.Poor), 6)
	}
}

// Of a share of 3 permits a reserve of 10 % keeps one in some windows, by the mean as many.
func TestASmallReserveIsKeptInSomeWindows(t *testing.T) {
	kept := int64(0)
	for w := range uint64(2000) {
		h := Host{Phase: 0, Length: 1000, Share: 3, Left: 3, Chance: 12345 ^ w<<20}
		kept += 3 - h.Lend(RulesOf(5, 5), 3, 0, 0)
	}
	near(t, "kept in 2,000 windows", float64(kept), 2000*0.3*0.85, 60)
}

func TestEachIsOnDutyInTurn(t *testing.T) {
	r := RulesOf(96, 96)
	for hash := range uint64(50) {
		n := 0
		for w := range int64(200) {
			if r.OnDuty(hash*0x9e3779b97f4a7c15, w) {
				n++
			}
		}
		if n != 10 {
			t.Errorf("instance %d is on duty %d times in 200 windows", hash, n)
		}
	}
	if small := RulesOf(19, 19); small.OnDuty(0, 0) {
		t.Error("somebody of 19 is on duty")
	}
}

// asking is one window of a guest with calls at a rate and what it gets for each ask.
func asking(rate float64, has Has, answer func(a Ask, phase float64) int64) (phases []float64, all []Ask) {
	f, g := begun(), &Guest{}
	g.Begin(0)
	has.Length, has.Own = 1000, has.Own+1
	calls := 0.0
	for phase := 0.0; phase < 1000; phase += 5 {
		calls += 5 * rate
		for float64(has.Issued) < calls && has.Left > 0 {
			has.Left, has.Issued = has.Left-1, has.Issued+1
		}
		f.Look(phase, calls)
		has.Phase, has.Rest = phase, 1000-phase
		if a, ok := g.Ask(f, RulesOf(20, 20), has); ok {
			phases, all = append(phases, phase), append(all, a)
			n := answer(a, phase)
			has.Left, has.Borrowed = has.Left+n, has.Borrowed+n
		}
	}
	return phases, all
}

// After one call a guest asks for one permit. It asks no more until another call comes, or waits.
func TestOneCallAsksOnce(t *testing.T) {
	f, g := begun(), &Guest{}
	g.Begin(0)
	has := Has{Length: 1000, Own: 1, Fair: 1, Total: 20}
	asks := func(phase, calls float64, waiting int64) int64 {
		f.Look(phase, calls)
		has.Phase, has.Rest, has.Waiting = phase, 1000-phase, waiting
		a, _ := g.Ask(f, RulesOf(20, 20), has)
		return a.Permits
	}
	for _, test := range []struct {
		phase, calls float64
		waiting      int64
		want         int64
	}{{100, 0, 0, 0}, {105, 1, 0, 1}, {160, 1, 0, 0}, {165, 2, 0, 2}, {220, 2, 0, 0}, {225, 2, 1, 3}} {
		if n := asks(test.phase, test.calls, test.waiting); n != test.want {
			t.Errorf("at %v, after %v calls, of which %d wait, it asks for %d permits, want %d", test.phase, test.calls, test.waiting, n, test.want)
		}
	}
}

func TestWhenAGuestAsks(t *testing.T) {
	none := func(Ask, float64) int64 { return 0 }
	hot := Has{Left: 100, Fair: 100, Total: 2000}
	phases, all := asking(2, hot, func(a Ask, _ float64) int64 { return a.Permits })
	if len(all) == 0 || phases[0] > 40 || all[0].Permits < 150 || all[0].Poor > 0 {
		t.Errorf("a hot one that gets all that it asks for asks at %v: %+v", phases, all)
	}
	if phases, all = asking(2, hot, none); len(phases) != 5 || phases[2] > 200 || phases[3] < 1000-ends || phases[1]-phases[0] < 2*spacing {
		t.Errorf("in vain it asks at %v", phases)
	}
	for i, want := range []float64{1, 8, 20, 20} { // 20 instances share the total
		if all[i].Part != want {
			t.Errorf("after %d rounds in vain it asks for %v times what it needs, want %v", i, all[i].Part, want)
		}
	}
	if _, all = asking(2, hot, func(a Ask, _ float64) int64 { return a.Permits / 4 }); all[1].Part != 2 {
		t.Errorf("where a quarter comes it asks for %v times what it needs, want 2", all[1].Part)
	}
	if phases, _ = asking(2, hot, func(a Ask, _ float64) int64 { return a.Permits / 20 }); len(phases) != 8 || phases[5] < 400 || phases[6] < 1000-ends {
		t.Errorf("where little comes it asks at %v", phases)
	}
	if phases, _ = asking(0.09, hot, none); len(phases) > 0 {
		t.Errorf("one that has enough asks at %v", phases)
	}
	if phases, _ = asking(0, hot, none); len(phases) > 0 {
		t.Errorf("one without calls asks at %v", phases)
	}
	if phases, all = asking(0.1, Has{Fair: 100, Total: 2000}, none); len(phases) <= 8 || all[0].Poor != all[0].Permits {
		t.Errorf("one that has nothing of its share asks at %v: %+v", phases, all)
	}
	few := Has{Fair: 90_000, Total: 1_000_000}
	if phases, _ = asking(0.2, few, none); len(phases) > 0 {
		t.Errorf("one that lacks little of its share asks at %v", phases)
	}
	few.Fair = 6000
	if phases, _ = asking(0.2, few, none); len(phases) == 0 {
		t.Error("one that woke does not ask for a thirtieth of its share: its rate begins with few calls")
	}
	few.Fair = 90_000
	few.Own = -1
	if phases, _ = asking(0.2, few, none); len(phases) == 0 || phases[0] > 50 {
		t.Errorf("one without a share, which calls seldom, asks at %v", phases)
	}
	if phases, _ = asking(0, Has{Waiting: 1, Fair: 100, Total: 2000}, func(Ask, float64) int64 { return 1 }); len(phases) == 0 {
		t.Error("it does not ask for a permit that somebody waits for")
	}
}

func TestAGuestThatAsksInVainIsQuiet(t *testing.T) {
	f, g := begun(), Guest{}
	has := Has{Phase: 10, Length: 1000, Rest: 990, Issued: 100, Own: 100, Fair: 100, Total: 2000, Waiting: 5}
	var asks []int
	for w := range 16 {
		g.Begin(0)
		f.at += 1000
		if _, ok := g.Ask(f, RulesOf(20, 20), has); ok {
			asks = append(asks, w)
		}
	}
	if want := []int{0, 1, 2, 4, 7, 12}; fmt.Sprint(asks) != fmt.Sprint(want) {
		t.Errorf("it asks in windows %v, want %v", asks, want)
	}
	g.rounds = 1
	g.Begin(7)
	if g.vain != 0 {
		t.Error("a window in which something came does not count")
	}
	g = Guest{vain: 6, quiet: 3, at: math.Inf(-1), part: 1}
	has.Issued = 0
	if _, ok := g.Ask(f, RulesOf(20, 20), has); !ok {
		t.Error("a poor one is quiet")
	}
}

// A newcomer that asked in the last window is lent its part at the edge: it asks for the rest only
// when that has come, or has not.
func TestANewcomerWaitsForItsPart(t *testing.T) {
	has := Has{Phase: 10, Length: 1000, Rest: 990, Fair: 100, Total: 2000, Waiting: 5}
	after := func(own, borrowed int64) float64 {
		f, g := begun(), Guest{rounds: 1}
		g.Begin(1)
		h, first := has, f.at
		h.Own, h.New, h.Borrowed = own, own == 0, borrowed
		for ; f.at < first+200; f.at += 5 {
			if _, ok := g.Ask(f, RulesOf(8, 4), h); ok {
				return f.at - first
			}
		}
		return math.Inf(1)
	}
	if got := after(0, 0); got != spacing {
		t.Errorf("nothing comes: it asks after %v ms", got)
	}
	if own, borrowed := after(1, 0), after(0, 1); own != 0 || borrowed != 0 {
		t.Errorf("it has a share: it asks after %v ms; its part has come: after %v", own, borrowed)
	}
}

// peersOf are n peers.
func peersOf(n int) (all []Peer) {
	for i := range n {
		all = append(all, Peer{fmt.Sprintf("p%03d", i), protocol.Mix(uint64(i))})
	}
	return all
}

func TestWhoIsAsked(t *testing.T) {
	r := RulesOf(96, 96)
	debtors := []Debtor{{"p001", 3}, {"p002", 40}, {"gone", 99}, {"p003", 0}}
	for _, test := range []struct {
		what    string
		ask     Ask
		debtors []Debtor
		direct  int
		sample  float64 // hosts, about
		first   string  // the first debtor
	}{
		{"a little: six hosts", Ask{Permits: 100, Part: 1}, nil, 6, 0, ""},
		{"as much after rounds in vain: a sample", Ask{Permits: 100, Part: 8}, nil, 0, 12, ""},
		{"much: a sample", Ask{Permits: 2000, Part: 1}, nil, 0, 30, ""},
		{"everything: all", Ask{Permits: 9600, Part: 4}, nil, 0, 95, ""},
		{"few for the poor: one", Ask{Permits: 9, Poor: 9, Part: 1}, nil, 1, 0, ""},
		{"after a round in vain: two", Ask{Permits: 9, Poor: 9, Part: 2, Fails: 1}, nil, 2, 0, ""},
		{"its largest debtor first", Ask{Permits: 9, Poor: 9, Part: 1}, debtors, 1, 0, "p002"},
		{"many for the poor: its debtors and four more", Ask{Permits: 60, Poor: 60, Part: 1}, debtors, 6, 0, "p001"},
		{"the rich do not ask debtors first", Ask{Permits: 60, Part: 1}, debtors, 6, 0, ""},
		{"quiet: six hosts in place of a sample", Ask{Permits: 2000, Part: 8, Quiet: true}, nil, 6, 0, ""},
		{"quiet, of the poor: debtors among the six", Ask{Permits: 60, Poor: 60, Part: 8, Quiet: true}, debtors, 6, 0, "p001"},
	} {
		all := r.Requests(test.ask, 100, 7, 99, peersOf(95), test.debtors)
		direct, sample := 0, 0
		for _, q := range all {
			if q.Host != "" {
				direct++
				continue
			}
			for _, p := range peersOf(95) {
				if q.Has(p.Hash) {
					sample++
				}
			}
		}
		if direct != test.direct || math.Abs(float64(sample)-test.sample) > 0.4*test.sample {
			t.Errorf("%s: %d one by one and %d of a sample: %+v", test.what, direct, sample, all)
		}
		if test.first != "" && all[0].Host != test.first {
			t.Errorf("%s: %s is asked first", test.what, all[0].Host)
		}
	}
}

// Against a model that knows all: hosts are asked for about what is needed and a fifth more, or more
// hosts for as much each after rounds in vain; none twice, none for more than what is needed, and never
// the guest's debtors for more than they owe and the poor need. Of shares below one only some hosts have
// a permit, so that more are asked for as much.
func TestRequestsSumToTheNeed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "peers")
		peers := peersOf(n)
		fair := rapid.Float64Range(0.5, 1000).Draw(t, "fair")
		a := Ask{Permits: rapid.Int64Range(1, 20_000).Draw(t, "permits"), Part: float64(int(1) << rapid.IntRange(0, 4).Draw(t, "doubled"))}
		a.Poor = min(a.Permits, rapid.Int64Range(0, int64(fair)+1).Draw(t, "poor"))
		var debtors []Debtor
		owed := map[string]int64{}
		for _, p := range peers[:rapid.IntRange(0, min(n, 6)).Draw(t, "debtors")] {
			owed[p.ID] = rapid.Int64Range(0, 50).Draw(t, "owes")
			debtors = append(debtors, Debtor{p.ID, owed[p.ID]})
		}
		seen := map[string]bool{}
		sum := 0.0
		for _, q := range RulesOf(n+1, n+1).Requests(a, fair, 3, rapid.Uint64().Draw(t, "salt"), peers, debtors) {
			if seen[q.Host] {
				t.Fatalf("%q is asked twice", q.Host)
			}
			seen[q.Host] = true
			if k := float64(a.Permits); float64(q.Permits) > 1000*k && owed[q.Host] == 0 {
				t.Fatalf("%v for one that needs %v: %+v", q.Permits, 1000*k, a)
			}
			if q.Permits < 1 || q.Poor < 0 || q.Poor > max(q.Permits, 1000*a.Poor) {
				t.Fatalf("%+v of %+v", q, a)
			}
			hosts := 1.0
			if q.Host == "" {
				hosts = float64(q.Part) / (1 << 32) * float64(n-len(seen)+1)
			} else if owed[q.Host] > 0 && a.Poor > 0 {
				continue
			}
			sum += hosts * float64(q.Permits) / 1000
		}
		if k := float64(a.Permits); len(seen) > 0 && sum > 0 && (sum*min(1, fair) > 1.25*a.Part*k+float64(len(seen)) || len(debtors) == 0 && sum < 0.99*k) {
			t.Fatalf("%d asked for, of %d hosts %.1f", a.Permits, len(seen), sum)
		}
	})
}

// One permit among twelve instances: each of them is asked for all of it.
func TestWhoeverHasTheOnlyPermitIsAskedForIt(t *testing.T) {
	all := RulesOf(12, 1).Requests(Ask{Permits: 1, Part: 1}, 1./12, 3, 7, peersOf(11), nil)
	if len(all) != 1 || all[0].Permits != 1000 || all[0].Part != 1<<32 {
		t.Errorf("asks for %+v", all)
	}
}

// Wholes sum to the fraction, and a sample is as large as its part, over many hosts.
func TestChanceIsFair(t *testing.T) {
	s, sum, in := protocol.Sample{Salt: 5, Part: 1 << 30}, int64(0), 0
	for _, p := range peersOf(4000) {
		sum += s.Whole(2300, p.Hash)
		if s.Has(p.Hash) {
			in++
		}
	}
	near(t, "wholes", float64(sum)/4000, 2.3, 0.05)
	near(t, "sample", float64(in)/4000, 0.25, 0.03)
}

// Where few have a share, all others ask seldom.
func TestHowOftenThoseWithoutAShareAsk(t *testing.T) {
	for _, c := range []struct{ n, owners, want int }{
		{200, 1, 1}, {201, 1, 1}, {96, 1, 1}, {20, 1, 3}, {8, 1, 8}, {2, 1, 8}, {97, 96, 7}, {1, 0, 8},
	} {
		r, f, g, asks := RulesOf(c.n, c.owners), begun(), Guest{}, 0
		g.Begin(0)
		for phase := 0.0; phase < 1000; phase += 5 {
			f.Look(phase, phase)
			has := Has{Phase: phase, Length: 1000, Rest: 1000 - phase, Fair: 100, Total: 2000, Waiting: 5}
			if _, ok := g.Ask(f, r, has); ok {
				asks++
			}
		}
		if asks != c.want && (asks > c.want || c.want < 3) {
			t.Errorf("%d of %d have a share: another asks %d times, at most %d", c.owners, c.n, asks, c.want)
		}
	}
}
