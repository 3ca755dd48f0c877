package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// leave lets members leave, all at once.
func (g *group) leave(all []*member) {
	g.t.Helper()
	var wg sync.WaitGroup
	for _, m := range all {
		wg.Go(func() {
			if err := m.session.Leave(g.t.Context()); err != nil {
				g.t.Error(err)
			}
		})
	}
	wg.Wait()
}

// That they lose nothing either is for internal/test/hours, where no machine is busy.
func TestAnnouncedJoinsAndLeavesExceedNothing(t *testing.T) {
	t.Parallel()
	g := newGroup(t, exact(t, "50/s", 1200*ms), time.Second) // 50 over 8, 10, 5: with remainders
	all := g.join(8)
	g.ready(all...)
	g.awaitFull(time.Second, 50)
	g.ready(g.join(2)...)
	g.leave(all[:5])
	g.awaitFull(time.Second, 50)
	g.end()
}

func TestHalfOfTheFleetClosesUnderLoad(t *testing.T) {
	t.Parallel()
	g, all := loaded(t, exact(t, "60/200ms", 500*ms), 8, 60)
	for i, m := range all[:4] {
		g.pass(time.Duration(i*30) * ms)
		if err := m.session.Close(); err != nil {
			t.Error(err)
		}
	}
	g.awaitFull(200*ms, 60) // by the other half, once it has settled
	g.join(2)
	g.awaitFull(200*ms, 60)
	g.end()
}

// The announcement reaches etcd when its window has begun already.
func TestAnAnnouncementThatCommitsLateExceedsNothing(t *testing.T) {
	t.Parallel()
	g := newGroup(t, exact(t, "60/200ms", 500*ms), 200*ms)
	link, client := g.linked()
	others, late := g.join(3), g.joinBy(client)
	g.ready(append(others, late)...)
	g.awaitFull(200*ms, 60)
	key := g.prefix + "providers/" + provider + "/instances/" + url.PathEscape(late.limiter.Status().Incarnation)
	written := g.client.Watch(t.Context(), key)
	link.Hold()
	left := make(chan error)
	go func() { left <- late.session.Leave(t.Context()) }()
	g.pass(1500 * ms) // its end has passed by then, as it was announced to nobody
	link.Mend()
	if err := <-left; err != nil {
		t.Log("leave:", err)
	}
	g.awaitFull(200*ms, 60)
	g.end()
	if n := late.issuedSince(announcedIn(t, written)); n != 0 {
		t.Errorf("who had announced its end issued %d permits after it", n)
	}
}

// announcedIn returns the end that was written into an instance's key before it
// was deleted; if none was, now.
func announcedIn(t *testing.T, written clientv3.WatchChan) int64 {
	t.Helper()
	until := time.Now()
	for r := range written {
		for _, e := range r.Events {
			if e.Type == clientv3.EventTypeDelete {
				return until.UnixNano()
			}
			var i quota.Instance
			if err := json.Unmarshal(e.Kv.Value, (*protocol.Incarnation)(&i)); err != nil {
				t.Fatal(err)
			}
			until = i.Until
		}
	}
	t.Fatal("the key was never deleted")
	return 0
}

// issuedSince returns how many permits the member issued after an instant, by
// its own count, 0 if its last window began before.
func (m *member) issuedSince(at int64) int64 {
	if st := m.limiter.Status(); st.Shortest().Start.UnixNano() >= at {
		return st.Shortest().Used
	}
	return 0
}

// A key says that its instance takes part until the next window, far less ahead
// than S: the author binds itself later than the others may think.
func TestAnEndAnnouncedTooLateExceedsNothing(t *testing.T) {
	t.Parallel()
	g, all := loaded(t, exact(t, "60/200ms", 500*ms), 6, 60)
	until := quota.WindowAt(200*ms, time.Now().UnixNano()).End()
	for _, m := range all[:3] {
		g.putUntil(m, time.Unix(0, until))
	}
	g.awaitFull(200*ms, 60)
	g.end()
}

// putUntil writes an end into the key of a member, as the member would.
func (g *group) putUntil(m *member, until time.Time) {
	g.t.Helper()
	key := g.prefix + "providers/" + provider + "/instances/" + url.PathEscape(m.limiter.Status().Incarnation)
	r, err := g.client.Get(g.t.Context(), key)
	if err != nil || len(r.Kvs) != 1 {
		g.t.Fatal(r, err)
	}
	var i quota.Instance
	if err := json.Unmarshal(r.Kvs[0].Value, (*protocol.Incarnation)(&i)); err != nil {
		g.t.Fatal(err)
	}
	i.Until = until
	b, err := json.Marshal(protocol.Incarnation(i))
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.client.Put(g.t.Context(), key, string(b), clientv3.WithIgnoreLease()); err != nil {
		g.t.Fatal(err)
	}
}

// The author of an announcement dies before the window that it announced, or
// after it with its key still there.
func TestTheAuthorOfAnAnnouncementDies(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"before its window": 900 * ms, "after its window": 50 * ms} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, exact(t, "50/s", 1200*ms), time.Second)
			g.ttl = 5 * time.Second
			link, client := g.linked()
			others, author := g.join(3), g.joinBy(client)
			g.ready(append(others, author)...)
			g.awaitFull(time.Second, 50)
			left := make(chan error)
			go func() { left <- author.session.Leave(t.Context()) }()
			until := g.awaitUntil(author.limiter.Status().Incarnation)
			g.passes(until.Add(-ahead).UnixNano())
			if ahead > 500*ms {
				author.stop() // a process that is gone issues nothing
			}
			link.Cut()
			g.passes(until.Add(g.ttl + time.Second).UnixNano()) // its lease ends on the way
			g.awaitFull(time.Second, 50)                        // by the others
			g.stop()
			link.Mend()
			if err := <-left; err != nil {
				t.Error(err)
			}
			g.ledger.never(t)
		})
	}
}

// awaitUntil waits until an incarnation's key says until when it takes part.
func (g *group) awaitUntil(incarnation string) (until time.Time) {
	g.t.Helper()
	g.await("the end is announced", func() bool {
		v, err := g.admin.Fleet(g.t.Context(), provider, nil)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, i := range v.View().Instances {
			if i.ID == incarnation {
				until = i.Until
			}
		}
		return !until.IsZero()
	})
	return until
}

func TestALeaveThatIsCutShortExceedsNothing(t *testing.T) {
	t.Parallel()
	g, all := loaded(t, exact(t, "60/200ms", 500*ms), 6, 60)
	var wg sync.WaitGroup
	for i, m := range all[:3] {
		wg.Go(func() {
			// At once, and somewhere between the announcement and its window, 240 ms ahead.
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i*80)*ms)
			defer cancel()
			if err := m.session.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want DeadlineExceeded", err)
			}
		})
	}
	wg.Wait()
	for _, m := range all[:3] {
		if s := m.limiter.Status().State; s != quota.StateClosed {
			t.Errorf("state %s after Leave", s)
		}
	}
	g.awaitFull(200*ms, 60)
	g.end()
}

// Operators see the debt of an instance that has left, however it went, and nothing of one
// that left without.
func TestADebtOutlivesItsInstance(t *testing.T) {
	t.Parallel()
	g := newGroup(t, exact(t, "50/s", 1200*ms), time.Second)
	for name, test := range map[string]struct {
		cost  int64
		leave func(*coordinator.Session, *consumer.Limiter) error
	}{
		"closes its limiter":   {1_000_000, func(_ *coordinator.Session, l *consumer.Limiter) error { return l.Close() }},
		"closes its session":   {2_000_000, func(s *coordinator.Session, _ *consumer.Limiter) error { return s.Close() }},
		"leaves":               {3_000_000, func(s *coordinator.Session, _ *consumer.Limiter) error { return s.Leave(t.Context()) }},
		"owes nothing":         {1, func(s *coordinator.Session, _ *consumer.Limiter) error { return s.Close() }},
		"owes nothing, leaves": {1, func(_ *coordinator.Session, l *consumer.Limiter) error { return l.Close() }},
	} {
		session, err := coordinator.Join(t.Context(), g.client, coordinator.Options{Prefix: g.prefix, Name: name, TTL: g.ttl, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		limiter, err := consumer.Open(t.Context(), session, provider, consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		p, err := limiter.Take(t.Context(), 1, consumer.Forever)
		if err := errors.Join(err, p.Settle(test.cost)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(test.leave(session, limiter), session.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f, err := g.admin.Fleet(t.Context(), provider, nil)
		if err != nil || len(f.Instances) != 0 {
			t.Fatalf("%s: %d instances, %v", name, len(f.Instances), err)
		}
		found := false
		for _, i := range f.Left {
			if i.Instance.Name == name {
				found = true
				if owed := test.cost - 1; i.Report.Debt > owed || i.Report.Debt < owed-1000 || i.Instance.ID == "" {
					t.Errorf("%s: %s with a debt of %d", name, i.Instance.ID, i.Report.Debt)
				}
			}
		}
		if found != (test.cost > 1) {
			t.Errorf("%s: %+v", name, f.Left)
		}
	}
	r, err := g.client.Get(t.Context(), g.prefix+"reports/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 3 {
		t.Fatalf("%d reports, %v", len(r.Kvs), err)
	}
	for _, kv := range r.Kvs {
		if l, err := g.client.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease)); err != nil || l.GrantedTTL != 3600 {
			t.Errorf("%+v, %v", l, err)
		}
	}
}
