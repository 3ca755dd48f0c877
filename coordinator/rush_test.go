package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

func TestARushIsManyChangesInALittleTime(t *testing.T) {
	const held = 600 * time.Millisecond
	for _, c := range []struct {
		name        string
		held        time.Duration
		messages, n int // that many changes in each message
		every       time.Duration
		want        int // the message that is the first of a rush, 0 for none
	}{
		{"as few as pay one by one", held, 1000, 1, 60 * time.Millisecond, 0},
		{"faster", held, 1000, 1, 40 * time.Millisecond, rushChanges + 1},
		{"all at once", held, 1000, 1, 0, rushChanges + 1},
		{"all at once, and few", held, rushChanges, 1, 0, 0},
		{"what was missed, in one message", held, 1, rushChanges + 1, 0, 1},
		{"progress", held, 1000, 0, 0, 0},
		{"a small fleet", 0, 1000, 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r rush
			got, at := 0, int64(time.Hour)
			for i := 1; i <= c.messages && got == 0; i++ {
				if r.changes(c.n, at, c.held) {
					got = i
				}
				at += int64(c.every)
			}
			if got != c.want {
				t.Errorf("message %d begins a rush, want %d", got, c.want)
			}
		})
	}
	var r rush
	r.changes(rushChanges, int64(time.Hour), held)
	if r.changes(1, int64(time.Hour)+int64(held)+1, held) {
		t.Error("changes of long ago count")
	}
}

// membershipAmong returns a membership whose view has so many instances, of a session with
// the default TTL.
func membershipAmong(t *testing.T, instances int) *membership {
	t.Helper()
	s := &Session{keys: layout, ctx: t.Context(), o: settings{Options: Options{TTL: defaultTTL, Logger: quiet}, Clock: clock.New()}}
	p := newMembership(s, "p", &recorder{})
	var listed []view.Key
	for i := range instances {
		listed = append(listed, view.Key{Kind: view.Instance, ID: fmt.Sprint(i), Value: []byte(`{}`), Revision: 7})
	}
	p.tracker.List(7, listed)
	policy := quota.Policy{}.WithDefaults()
	p.policy = &policy
	s.mu.machine = newMachine(layout.Provider(""))
	s.mu.memberships["p"] = p
	return p
}

func TestWatchesAreHeldBackInLargeFleetsOnly(t *testing.T) {
	if d := membershipAmong(t, manyInstances-1).s.mu.holdBack(); d != 0 {
		t.Errorf("%v in a small fleet", d)
	}
	p := membershipAmong(t, manyInstances)
	if d, want := p.s.mu.holdBack(), quota.DefaultFreshness/heldBackPart; d != want {
		t.Errorf("%v in a large fleet, want %v", d, want)
	}
	p.policy.Freshness, p.policy.Settle = time.Hour, time.Second
	if d := p.s.mu.holdBack(); d != time.Second/heldBackPart {
		t.Errorf("%v with a settle time of 1s", d)
	}
	p.policy.Settle = time.Hour
	if d := p.s.mu.holdBack(); d != mostHeldBack {
		t.Errorf("%v with an endless settle time", d)
	}
	p.policy = nil
	if d := p.s.mu.holdBack(); d != 0 {
		t.Errorf("%v without a policy", d)
	}
}

// A start that a watch tells later than S before it leaves a view in the lookback by which
// instances that leave now still have their shares.
func TestAStartIsAnnouncedBeforeWatchesAreHeldBack(t *testing.T) {
	policy := quota.Policy{}.WithDefaults()
	policy.Limits = []quota.Limit{{Permits: 100, Window: 10 * time.Millisecond}}
	const now = int64(time.Hour)
	for _, c := range []struct {
		instances int
		earlier   time.Duration
	}{{1, 0}, {manyInstances - 1, 0}, {manyInstances, policy.Freshness / heldBackPart}, {10 * manyInstances, policy.Freshness / heldBackPart}} {
		ahead := policy.Settle + 2*policy.ClockError + protocol.AnnounceAhead + c.earlier
		if got := startAmong(c.instances, now, &policy).UnixNano() - now; got < int64(ahead) || got >= int64(ahead+policy.Limits[0].Window) {
			t.Errorf("%d instances: %v ahead, want %v and less than a window", c.instances, time.Duration(got), ahead)
		}
	}
}

func TestLeasesThatRunOutInLargeFleetsGetLonger(t *testing.T) {
	for _, c := range []struct {
		instances int
		set, lost time.Duration
		want      time.Duration
	}{
		{manyInstances - 1, defaultTTL, defaultTTL, defaultTTL},
		{manyInstances, defaultTTL, defaultTTL, 2 * defaultTTL},
		{manyInstances, defaultTTL, 20 * time.Second, mostTTL},
		{manyInstances, defaultTTL, mostTTL, mostTTL},
		{manyInstances, maxTTL, maxTTL, maxTTL},
	} {
		s := membershipAmong(t, c.instances).s
		s.o.TTL = c.set
		if got := s.nextTTL(c.lost); got != c.want {
			t.Errorf("%d instances, TTL %v: after a lease of %v one of %v, want %v", c.instances, c.set, c.lost, got, c.want)
		}
	}
}
