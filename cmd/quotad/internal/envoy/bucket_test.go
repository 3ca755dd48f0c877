package envoy

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ideal is a token bucket as an Envoy enforces it.
type ideal struct {
	bucket
	level float64
	at    time.Duration
}

func fresh(b bucket, at time.Duration) ideal { return ideal{b, float64(b.tokens), at} }

// take admits up to n requests at an instant, and returns how many.
func (i *ideal) take(n int64, at time.Duration) int64 {
	i.level = min(float64(i.tokens), i.level+float64(i.fill)*(at-i.at).Seconds()/fillInterval.Seconds())
	i.at = at
	n = min(n, int64(i.level))
	i.level -= float64(n)
	return n
}

var windows = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, time.Second, 7 * time.Second, time.Minute}

func TestFitCostsNoMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.Int64Range(-5, 100), rapid.Int64Range(-1, math.MaxInt64)).Draw(t, "n")
		w := rapid.SampledFrom(windows).Draw(t, "window")
		b := fit(n, w)
		if b.cost(w) > max(0, n) || b.tokens > math.MaxUint32 || b.fill > math.MaxUint32 || (b.tokens == 0) != (b.fill == 0) {
			t.Fatalf("fit(%d, %v) = %+v costs %d", n, w, b, b.cost(w))
		}
		if w == time.Second && n >= 1000 && n < math.MaxUint32/60 && b.admits(w) < n*88/100 {
			t.Fatalf("fit(%d, %v) = %+v wastes more than the documents say", n, w, b)
		}
	})
}

// In no window, wherever it begins, arrive more requests than a member is charged: with
// any instants of requests, of changes to other buckets, or of the return to a full one,
// and of arrivals that take up to spread longer than others.
func TestAMemberAdmitsNoMoreThanItsCharge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom(windows).Draw(t, "window")
		instant := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(3*w)).Draw(t, name))
		}
		start := instant("start")
		times := []time.Duration{start, start + w - 1, start + w + spread - 1}
		changes := []time.Duration{0}
		m, like := member{}, rapid.Int64Range(3, 3000).Draw(t, "permits")
		for range rapid.IntRange(1, 3).Draw(t, "buckets") {
			m.leases = append(m.leases, lease{bucket: fit(rapid.OneOf(rapid.Just(like), rapid.Int64Range(3, 3000)).Draw(t, "permits"), w)})
			changes = append(changes, start+instant("change")/3)
		}
		next := slices.Clone(m.leases)
		if len(next) == 1 {
			next = append(next, next[0]) // a full one of the same, as after its end
		}
		slices.Sort(changes)
		for range rapid.IntRange(0, 30).Draw(t, "requests") {
			times = append(times, instant("at"))
		}
		times = append(times, changes...)
		slices.Sort(times)
		var now ideal
		arrived, burst := int64(0), rapid.SampledFrom([]int64{1, 5, math.MaxInt32}).Draw(t, "burst")
		for _, at := range times {
			got := now.take(burst, at)
			if len(next) > 0 && at >= changes[0] {
				got += now.take(math.MaxInt32, at)
				now, next, changes = fresh(next[0].bucket, at), next[1:], changes[1:]
				got += now.take(math.MaxInt32, at)
			}
			if at >= start && at < start+w+spread { // it may arrive in the window
				arrived += got
			}
		}
		if charge := m.charge(w); arrived > charge {
			t.Fatalf("%d requests arrive in a window of %v, the charge is %d", arrived, w, charge)
		}
	})
}

// far is an Envoy and the way to it.
type far struct {
	member
	ideal
	inbox []message
	ends  time.Duration // of its bucket
	last  time.Duration // a message was delivered

	requests [21]int64 // in the parts of a window
}

type message struct {
	bucket
	at time.Duration
}

// send assigns a bucket at an instant, of which the Envoy learns late.
func (f *far) send(b bucket, at, late time.Duration) {
	if f.gone {
		return
	}
	f.assign(b, time.Unix(0, int64(at)))
	f.last = max(f.last, at+late)
	f.inbox = append(f.inbox, message{b, f.last})
}

// step delivers what is due, and admits up to n requests.
func (f *far) step(now time.Duration, n int64) (admitted int64) {
	for len(f.inbox) > 0 && f.inbox[0].at <= now {
		m := f.inbox[0]
		f.inbox = f.inbox[1:]
		switch ended := m.at >= f.ends; {
		case !ended && m.bucket == f.bucket:
		case !ended:
			admitted += f.take(n, m.at)
			fallthrough
		default:
			f.ideal = fresh(m.bucket, m.at)
		}
		f.ends = m.at + ttl
	}
	if now < f.ends {
		admitted += f.take(n, now)
	}
	return admitted
}

// A pool's Envoys admit no more in a window than the permits set aside for it, however late
// messages are within slack. If the share falls, they admit no more than that or what their
// former buckets admit until spread later, if messages take no longer; those whose stream
// has ended do not learn of it.
func TestAPoolAdmitsNoMoreThanItsPermits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom(windows[:4]).Draw(t, "window")
		falls := rapid.Bool().Draw(t, "falls")
		lateness := slack
		if falls {
			lateness = spread
			w = max(w, 250*time.Millisecond) // the Envoys learn within the window
		}
		shares := rapid.SampledFrom([]int64{0, 1, 5, 50, 200, 300, 700, 1000, 2000})
		share := shares.Draw(t, "share")
		var envoys []*far
		for k := range 25 {
			start := time.Duration(k) * w
			if rapid.IntRange(0, 4).Draw(t, "join") == 0 {
				envoys = append(envoys, &far{member: member{want: math.MaxInt64}})
			}
			for _, f := range envoys {
				if rapid.IntRange(0, 3).Draw(t, "demand") == 0 {
					f.want = rapid.SampledFrom([]int64{0, 5, 60, 700, math.MaxInt64}).Draw(t, "want")
				}
				f.gone = f.gone || rapid.IntRange(0, 20).Draw(t, "leave") == 0
			}
			if falls && rapid.IntRange(0, 5).Draw(t, "falls now") == 0 {
				share = shares.Draw(t, "share")
			}
			share := share - rapid.Int64Range(0, min(1, share)).Draw(t, "remainder")
			elapsed := time.Duration(rapid.Int64Range(0, int64(spread)).Draw(t, "elapsed"))
			var members []*member
			allowed := int64(0)
			for _, f := range envoys {
				f.expire(time.Unix(0, int64(start)))
				members = append(members, &f.member)
				if allowed += f.newest().admits(elapsed + spread); f.gone { // it does not learn
					allowed += f.charge(w)
				}
			}
			permits := min(share, needs(members, share, w))
			for i, b := range plan(members, permits, share, w, elapsed) {
				f := envoys[i]
				f.send(b, start+elapsed, time.Duration(rapid.Int64Range(0, int64(lateness)-1).Draw(t, "late")))
			}
			charged := int64(0)
			for _, f := range envoys {
				charged += f.charge(w)
			}
			if !falls && charged > permits {
				t.Fatalf("window %d: the charges sum to %d, permits are %d", k, charged, permits)
			}
			for _, f := range envoys {
				f.requests = [21]int64{}
				for i := rapid.SampledFrom([]int{0, 5, 21}).Draw(t, "saves until"); i < len(f.requests); i++ {
					f.requests[i] = math.MaxInt32
				}
			}
			admitted := int64(0)
			for step := range time.Duration(20) {
				if step == 10 && w >= renewal {
					for _, f := range envoys {
						f.send(f.newest(), start+w/2, time.Duration(rapid.Int64Range(0, int64(lateness)-1).Draw(t, "late")))
					}
				}
				for _, f := range envoys {
					admitted += f.step(start+step*w/20, f.requests[step])
				}
			}
			for _, f := range envoys {
				admitted += f.step(start+w-1, f.requests[20])
			}
			if bound := max(permits, allowed); admitted > permits && (!falls || admitted > bound) {
				t.Fatalf("window %d: %d admitted, permits are %d, and %d while the Envoys learn that the share fell", k, admitted, permits, allowed)
			}
		}
	})
}

// A share that falls to half is not exceeded in the window in which an Envoy learns of it.
func TestAShareThatFalls(t *testing.T) {
	t.Parallel()
	const w, elapsed = time.Second, 40 * time.Millisecond
	f := far{member: member{want: math.MaxInt64}}
	f.send(plan([]*member{&f.member}, 2000, 2000, w, 0)[0], 0, 0)
	f.step(0, 0) // the bucket is full at the next window's start
	f.send(plan([]*member{&f.member}, 1000, 1000, w, elapsed)[0], w+elapsed, spread-1)
	admitted := int64(0)
	for at := w; at < 2*w; at += time.Millisecond {
		admitted += f.step(at, math.MaxInt32)
	}
	if admitted > 1000 || admitted < 850 {
		t.Errorf("%d are admitted, with a share of 1000", admitted)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	const w = time.Second
	now, b := time.Unix(100, 0), fit(500, w)
	m := &member{want: math.MaxInt64}
	m.assign(b, now)
	m.assign(b, now.Add(ttl-1)) // before it can have ended: the bucket goes on
	now = now.Add(ttl - 1)
	if m.expire(now.Add(ttl + slack - 1)); len(m.leases) != 1 {
		t.Fatalf("%d leases while a late message may prolong the first", len(m.leases))
	}
	if m.assign(b, now.Add(ttl)); len(m.leases) != 2 {
		t.Error("a bucket that has ended, and is full again, counts once")
	}
	// The parts of those that stay do not come from one that has gone, and keeps its bucket.
	gone, stays := &member{gone: true, leases: []lease{{bucket: b}}}, &member{want: math.MaxInt64, leases: []lease{{bucket: b}}}
	if next := plan([]*member{gone, stays}, 700, 700, w, 0)[1]; next.cost(w) > 200 || next == (bucket{}) {
		t.Errorf("%+v, of 700 permits less those of the gone one", next)
	}
	if m.expire(now.Add(time.Hour)); m.charge(w) != 0 {
		t.Error("charged for nothing")
	}
}

func TestDivide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n     int64
		wants []int64
		parts string
	}{
		{10, nil, "[]"},
		{10, []int64{4}, "[4]"},
		{10, []int64{20, 1, 20}, "[4 1 5]"},
		{10, []int64{1, 2, 3}, "[1 2 3]"},
		{-1, []int64{1, 2}, "[0 0]"},
	} {
		if parts := fmt.Sprint(divide(c.n, c.wants)); parts != c.parts {
			t.Errorf("%d among those that want %v: %s, not %s", c.n, c.wants, parts, c.parts)
		}
	}
}
