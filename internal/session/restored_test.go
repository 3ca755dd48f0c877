package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/quota"
)

// TestAProviderThatIsFollowedAgain: etcd is put back under the ID that it has while nobody in this process uses a provider.
// Whoever uses it next hears Restored, and until when the provider was followed before.
func TestAProviderThatIsFollowedAgain(t *testing.T) {
	for what, c := range map[string]struct {
		happens func(s *steps)
		at      int64 // revision of the next listing
		back    bool
	}{
		"nothing else":                  {func(*steps) {}, 1007, false},
		"nobody has seen it":            {func(*steps) {}, 900, true},
		"another provider has found it": {func(s *steps) { s.probe(500, 1, s.members["q"].own.Created); s.begins("/", 1200) }, 1201, true},
		"there was another gap before": {func(s *steps) {
			s.do(WatchEnded{Line: s.whole(), Gap: true, Err: errors.New("compacted")})
			s.begins("/", 1010)
		}, 1005, true},
		"there was another gap, and not": {func(s *steps) {
			s.do(WatchEnded{Line: s.whole(), Gap: true, Err: errors.New("compacted")})
			s.begins("/", 1010)
		}, 1011, false},
		"its user may read some providers only": {func(s *steps) {
			s.do(WatchEnded{Line: s.whole(), Denied: true, Err: errors.New("denied")})
		}, 1005, true},
		"its user may read some providers only, and not": {func(s *steps) {
			s.do(WatchEnded{Line: s.whole(), Denied: true, Err: errors.New("denied")})
		}, 1007, false},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSteps()
			p := s.joins("p", 20)
			s.joins("q", 30)
			s.tell("p", 1000, []view.Key{policyKey(31)})
			s.probe(1000, 1, 30)
			s.do(Unsubscribed{p})
			s.tell("q", 1006, nil)
			c.happens(s)
			s.log = nil
			again := s.subscribe("p")
			if again.line != s.whole() {
				s.begins(again.line.Folder, c.at)
			}
			if s.register(c.at, 1); again.stage != following { // older than what the watch has told
				s.begins("/", c.at+1)
				s.register(c.at+2, 1)
			}
			if back := strings.Contains(fmt.Sprint(s.log), "p restored p reset"); back != c.back {
				t.Errorf("it hears that the store went back: %v, want %v: %q", back, c.back, s.log)
			}
			if at := again.Standing(0).Elsewhere; c.back && at != p.lastHeard || !c.back && at != 0 {
				t.Errorf("it has followed the provider in the store before until %d, want %d", at/1e9, p.lastHeard/1e9)
			}
			if len(s.left) != 0 {
				t.Errorf("%d providers are kept that are in use", len(s.left))
			}
		})
	}
}

// TestAMemberHearsThatTheStoreWentBack: etcd is put back under the ID that it has. Whatever a member waits for when
// that is found, its sink hears Restored before its next view, and until when the provider was followed is kept. p has
// joined at revision 20, has had a policy since 31, and was told by the watch of cluster 1, the last time at second 13.
func TestAMemberHearsThatTheStoreWentBack(t *testing.T) {
	older := func(s *steps, revision int64) { s.probe(revision, 1, s.members["q"].own.Created) }
	for what, c := range map[string]struct {
		happens func(s *steps, p *Member)
		back    bool
	}{
		"it follows": {func(s *steps, p *Member) {
			older(s, 500)
			s.begins("/", 502)
			s.register(503, 1)
		}, true},
		"it follows, and the store has grown beyond what was known when it is listed": {func(s *steps, p *Member) {
			older(s, 500)
			s.begins("/", 1200)
			s.register(1201, 1)
		}, true},
		"the witness is gone from a store that has grown": {func(s *steps, p *Member) {
			s.do(WatchAnswer{Line: s.whole(), Cluster: 1, Progress: true, Revision: 1200})
			s.probe(1200, 1, 0)
			s.begins("/", 1201)
			s.register(1202, 1)
		}, true},
		"the witness is gone, and the watch lags behind what has been read": {func(s *steps, p *Member) {
			s.probe(1005, 1, 30)
			s.probe(1002, 1, 0)
			s.begins("/", 1200)
			s.register(1201, 1)
		}, true},
		"another provider is listed, and the watch lags behind what has been read": {func(s *steps, p *Member) {
			s.probe(1005, 1, 30)
			s.subscribe("r")
			s.register(1002, 1)
			s.begins("/", 1200)
			s.register(1201, 1)
		}, true},
		"its lease is lost": {func(s *steps, p *Member) {
			s.do(Leased{})
			s.do(Leased{Lease: Lease{ID: 7}})
			s.register(501, 1) // older than what the watch has told: a gap
			s.begins("/", 502)
			s.register(503, 1)
		}, true},
		"its lease is lost, and the watch has a gap": {func(s *steps, p *Member) {
			s.do(Leased{})
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("compacted"), Gap: true})
			s.begins("/", 500)
			s.do(Leased{Lease: Lease{ID: 7}})
			s.register(501, 1)
		}, true},
		"its lease is lost while a probe is under way": {func(s *steps, p *Member) {
			asked := s.Question(s.at().Instant)
			s.do(Leased{})
			s.do(ProbeAnswered{asked, 500, 1, 0})
			s.do(Leased{Lease: Lease{ID: 7}})
			s.begins("/", 1200)
			s.register(1201, 1)
		}, true},
		"its key is gone": {func(s *steps, p *Member) {
			s.tell("p", 1001, []view.Key{{Kind: view.Instance, ID: p.own.ID, Revision: 1001, Deleted: true}})
			older(s, 500)
			s.begins("/", 502)
			s.register(503, 1)
		}, true},
		"its provider has too many instances": {func(s *steps, p *Member) {
			var many []view.Key
			for i := range protocol.MaxInstances {
				many = append(many, instanceKey(fmt.Sprint("x", i), 1001))
			}
			s.tell("p", 1001, many)
			older(s, 500)
			s.begins("/", 502)
			s.register(503, 1)
		}, true},
		"it is about to be listed, after a gap": {func(s *steps, p *Member) {
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("compacted"), Gap: true})
			s.begins("/", 1010)
			s.register(501, 1)
			s.begins("/", 1020)
			s.register(1021, 1)
		}, true},
		"a probe has read more than the watch has told": {func(s *steps, p *Member) {
			s.probe(1005, 1, 30)
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("compacted"), Gap: true})
			s.begins("/", 1002)
			s.register(1003, 1)
		}, true},
		"its lease is lost, and the account may read some providers only": {func(s *steps, p *Member) {
			s.do(Leased{})
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
			s.begins("/p/", 500)
			s.begins("/q/", 500)
			s.do(Leased{Lease: Lease{ID: 7}})
			s.register(501, 1)
		}, true},
		"its policy was deleted": {func(s *steps, p *Member) {
			s.tell("p", 1001, []view.Key{{Kind: view.Policy, Revision: 1001, Deleted: true}})
			older(s, 500)
			s.begins("/", 502)
			s.register(503, 1)
		}, true},
		"its policy was deleted, and it was listed since": {func(s *steps, p *Member) {
			s.tell("p", 1001, []view.Key{{Kind: view.Policy, Revision: 1001, Deleted: true}})
			s.do(Leased{})
			s.do(Leased{Lease: Lease{ID: 7}})
			s.register(1002, 1)
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("compacted"), Gap: true})
			s.begins("/", 500)
			s.register(503, 1)
		}, true},
		"another store answers, and then this one again": {func(s *steps, p *Member) {
			s.do(WatchAnswer{Line: s.whole(), Cluster: 2})
			s.do(WatchOpened{s.whole()})
			s.do(WatchAnswer{Line: s.whole(), Created: true, Revision: 5000, Cluster: 2})
			s.probe(4000, 2, 0) // that one goes back
			s.begins("/", 1001)
			s.register(1002, 1)
		}, false},
		"its lease is lost, and nothing else": {func(s *steps, p *Member) {
			s.do(Leased{})
			s.do(Leased{Lease: Lease{ID: 7}})
			s.register(1001, 1)
		}, false},
		"the watch has a gap, and the store goes on": {func(s *steps, p *Member) {
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("compacted"), Gap: true})
			s.begins("/", 1010)
			s.register(1011, 1)
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSteps()
			p := s.joins("p", 20)
			s.joins("q", 30)
			if bound := p.Standing(0).Bound; bound != quota.MaxSettle {
				t.Errorf("before it knows a policy clocks err by up to %v", bound)
			}
			s.tell("p", 1000, []view.Key{policyKey(31)})
			s.probe(1000, 1, 30)
			heard := p.lastHeard
			s.log = nil
			c.happens(s, p)
			if p.stage != following || !strings.Contains(fmt.Sprint(s.log), "p reset") {
				t.Fatalf("it is not listed: %q", s.log)
			}
			if back := strings.Contains(fmt.Sprint(s.log), "p restored p reset"); back != c.back {
				t.Errorf("it hears that the store went back: %v, want %v: %q", back, c.back, s.log)
			}
			if at := p.Standing(0).Elsewhere; c.back && at != heard || !c.back && at != 0 {
				t.Errorf("it has followed the provider in the store before until %d, want %d", at/1e9, heard/1e9)
			}
			if bound := p.Standing(0).Bound; bound != quota.DefaultClockError {
				t.Errorf("the policy that was lost allowed clocks to err by %v, and not %v", quota.DefaultClockError, bound)
			}
		})
	}
}
