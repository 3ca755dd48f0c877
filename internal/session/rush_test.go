package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session/view"
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
		{"faster", held, 1000, 1, 40 * time.Millisecond, RushChanges + 1},
		{"all at once", held, 1000, 1, 0, RushChanges + 1},
		{"all at once, and few", held, RushChanges, 1, 0, 0},
		{"what was missed, in one message", held, 1, RushChanges + 1, 0, 1},
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
	r.changes(RushChanges, int64(time.Hour), held)
	if r.changes(1, int64(time.Hour)+int64(held)+1, held) {
		t.Error("changes of long ago count")
	}
}

// among returns the machine of a session with one member, whose view has so many instances.
func among(instances int) (*Machine, *Member) {
	m := New("/")
	p := NewMember(m, "p", "/p/", nil)
	var listed []view.Key
	for i := range instances {
		listed = append(listed, view.Key{Kind: view.Instance, ID: fmt.Sprint(i), Value: []byte(`{}`), Revision: 7})
	}
	p.tracker.List(7, listed)
	policy := quota.Policy{}.WithDefaults()
	p.policy = &policy
	m.members["p"] = p
	return m, p
}

func TestWatchesAreHeldBackInLargeFleetsOnly(t *testing.T) {
	if m, _ := among(ManyInstances - 1); m.HoldBack() != 0 {
		t.Errorf("%v in a small fleet", m.HoldBack())
	}
	m, p := among(ManyInstances)
	if d, want := m.HoldBack(), quota.DefaultFreshness/heldBackPart; d != want {
		t.Errorf("%v in a large fleet, want %v", d, want)
	}
	p.policy.Freshness, p.policy.Settle = time.Hour, time.Second
	if d := m.HoldBack(); d != time.Second/heldBackPart {
		t.Errorf("%v with a settle time of 1s", d)
	}
	p.policy.Settle = time.Hour
	if d := m.HoldBack(); d != mostHeldBack {
		t.Errorf("%v with an endless settle time", d)
	}
	p.policy = nil
	if d := m.HoldBack(); d != 0 {
		t.Errorf("%v without a policy", d)
	}
}

// A watch that opens again after a rush stays open while it tells few changes. That it is created, and how far it has
// told, are none.
func TestARushClosesTheWatchOnce(t *testing.T) {
	s := newSteps()
	s.joins("p", 20)
	keys := []view.Key{policyKey(40)}
	for i := range ManyInstances {
		keys = append(keys, instanceKey(fmt.Sprint("x", i), 40))
	}
	s.log = nil
	s.tell("p", 40, keys)
	if last := s.log[len(s.log)-1]; last != "unwatch" {
		t.Fatalf("%d changes at once end with %q", len(keys), last)
	}
	now := s.at()
	now.Mono -= int64(time.Second) - int64(s.HoldBack()*3/4) // after about the pause
	for i, e := range []Event{
		WatchOpened{s.whole()},
		WatchAnswer{Line: s.whole(), Created: true, Revision: 41, Cluster: 1},
		WatchAnswer{Line: s.whole(), Progress: true, Revision: 41, Cluster: 1},
		WatchAnswer{Line: s.whole(), Revision: 42, Newest: 42, Cluster: 1, Told: []Told{{s.members["p"], []view.Key{instanceKey("x0", 42)}}}},
	} {
		for _, x := range s.Step(e, now) {
			if x, closed := x.(Unwatch); closed {
				t.Errorf("event %d closes the watch for %v", i, x.Pause)
			}
		}
	}
	if !s.whole().open {
		t.Error("it is not open")
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
	}{{1, 0}, {ManyInstances - 1, 0}, {ManyInstances, policy.Freshness / heldBackPart}, {10 * ManyInstances, policy.Freshness / heldBackPart}} {
		ahead := policy.Settle + 2*policy.ClockError + protocol.AnnounceAhead + c.earlier
		if got := startAmong(c.instances, now, &policy).UnixNano() - now; got < int64(ahead) || got >= int64(ahead+policy.Limits[0].Window) {
			t.Errorf("%d instances: %v ahead, want %v and less than a window", c.instances, time.Duration(got), ahead)
		}
	}
}
