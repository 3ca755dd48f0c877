package coordinator

import (
	"context"
	"errors"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/session"
)

// membership is this process's part in one provider: a member, and all that acts for it.
type membership struct {
	*session.Member // guarded by Session.mu, but for what never changes: Provider, Folder and Sink
	s               *Session
	users           int // subscriptions; guarded by Session.mu

	ctx    context.Context // until the last subscription or the session is closed
	cancel context.CancelFunc
	parts  sync.WaitGroup // of all goroutines, and of a batch that it is in

	// attempt is a registration whose outcome is unknown; nil if there is none. Owned by the batch that
	// the membership is in; after it, by close.
	attempt *session.Incarnation

	ended sync.Once

	// duplicate warns of a membership of another session in the same provider.
	duplicate sync.Once
	needed    sync.Once // the sink has something to take from Pushed or Wanting, or is closed

	// Session.mu guards these too:
	asks [2]*ear // of this incarnation, and of samples; nil if the session has one of all
	mute bool    // the sink may not ask and lend
	// exchanging says that permits of long limits are on their way between etcd and the sink.
	exchanging bool

	loans *ear // of the incarnation that asked last; nil if none did. Session.hearing.mu guards it

	budgets  budgets
	reported reporting // owned by the goroutine that writes reports
}

func newMembership(s *Session, provider string, sink feed.Sink) *membership {
	p := &membership{s: s, Member: session.NewMember(s.mu.Machine, provider, s.keys.Provider(provider), sink)}
	p.budgets = budgets{lengths: map[budgetKind]*budgetLength{}}
	// A member of etcd that is cut off from its leader says so at once, and the next
	// question goes to another. Not for probes: etcd's client would repeat them
	// without a pause while no member has a leader.
	p.ctx, p.cancel = context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	return p
}

// short reduces a name to characters that read well in a key.
func short(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, name)
	return name[:min(len(name), 64)]
}

// close ends the membership: first nothing is issued any more, then the key says so,
// then it goes.
func (p *membership) close() error {
	p.cancel()
	p.s.step(session.Closing{Member: p.Member})
	p.end()
	p.s.mu.Lock()
	p.s.hearing.leave(p)
	p.s.mu.Unlock()
	own := p.current()
	if own.Key == "" && p.attempt == nil || p.s.ctx.Err() != nil {
		return nil
	}
	ctx, done := context.WithTimeout(context.Background(), etcdcall.Timeout)
	defer done()
	indebted, err := p.part(ctx)
	if errors.Is(err, errKeyGone) { // it was to go
		err = nil
	}
	var gone, ours []clientv3.Op
	if a := p.attempt; a != nil { // its keys may be there
		gone = append(p.issuerGone(), clientv3.OpDelete(a.Key), clientv3.OpDelete(p.s.keys.Report(p.Provider, a.ID)))
	}
	if own.Key != "" {
		if ours = append(ours, clientv3.OpDelete(own.Key)); !indebted {
			ours = append(ours, clientv3.OpDelete(p.s.keys.Report(p.Provider, own.ID)))
		}
		gone = append(gone, clientv3.OpTxn([]clientv3.Cmp{lives(&own)}, ours, nil))
	}
	if _, unsure := p.s.kv.Txn(ctx).Then(gone...).Commit(); unsure != nil {
		return classify(ctx, "leave "+p.Provider, unsure)
	}
	return err
}

// need starts what takes a sink's pauses and the budgets that it wants, with the first. The sink
// calls it under locks of its own.
func (p *membership) need() {
	p.needed.Do(func() {
		p.parts.Go(p.pushBacks)
		p.parts.Go(p.runBudgets)
	})
}

// end waits for all that acts for the membership, whose sink is closed, and gives back what it has
// of the host.
func (p *membership) end() {
	p.needed.Do(func() {}) // nothing starts from now on
	p.parts.Wait()
	p.ended.Do(func() {
		p.noteClosed()
	})
}
