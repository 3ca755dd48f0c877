package coordinator

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// This file is how asks and loans come: docs/protocol.md, section 13. carry.go is how they
// go.

// hearFrom hears of loans and asks for an incarnation, in place of one before, if not too many
// memberships of the session do. It is called within a batch.
func (p *membership) hearFrom(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.hears == id:
		return
	case p.hears != "":
		p.deafen()
	case p.s.mu.hearers == mostLending:
		return
	default:
		p.s.mu.hearers++
	}
	ctx, end := context.WithCancel(p.ctx)
	p.hears, p.deafen = id, end
	p.parts.Go(func() { p.hear(ctx, id) })
}

// hear passes on what hosts lend to this incarnation and what guests ask it for, until ctx
// ends. Messages that come while a watch is broken are lost, and exceed nothing.
func (p *membership) hear(ctx context.Context, id string) {
	for ctx.Err() == nil {
		// etcd tells by a text why it does not open a watch.
		if err := p.hearOnce(ctx, id); err != nil && strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrPermissionDenied)) {
			p.mute()
			return
		}
		if !sleep(ctx, jitter(time.Second)) {
			return
		}
	}
}

// mute ends lending for want of a permission.
func (p *membership) mute() {
	p.muted.Do(func() {
		p.s.o.Logger.Warn("this instance may not lend or borrow: create the role again", "provider", p.provider)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sink.Carry(nil)
	})
}

// hearOnce does so by watches of one stream, until one of them ends.
func (p *membership) hearOnce(ctx context.Context, id string) error {
	w := p.s.newStream(ctx, 0)
	defer w.close()
	folders := []string{p.s.keys.Loans(p.provider, id), p.s.keys.Asks(p.provider, id), p.s.keys.SampleAsks(p.provider)}
	var told [3]clientv3.WatchChan
	for i, folder := range folders {
		told[i] = w.Watch(w.ctx, folder, clientv3.WithPrefix(), clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	}
	for created := 0; ; {
		var r clientv3.WatchResponse
		var ok bool
		which := 0
		select {
		case <-w.ctx.Done():
			return w.ctx.Err()
		case r, ok = <-told[0]:
		case r, ok = <-told[1]:
			which = 1
		case r, ok = <-told[2]:
			which = 2
		}
		if !ok || r.Err() != nil {
			return r.Err()
		}
		if r.Created {
			if created++; created == len(told) {
				p.carriesFor(id)
			}
		}
		for _, e := range r.Events {
			if who, ok := keys.IncarnationIn(folders[which], string(e.Kv.Key)); ok && who != id {
				p.heard(id, who, e.Kv.Value, which == 0)
			}
		}
	}
}

// carriesFor lets the sink ask and lend: it would hear the answers.
func (p *membership) carriesFor(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id == id && !p.silent && !p.carries {
		p.carries = true
		p.sink.Carry(p)
	}
}

// heard passes a loan on, or an ask. Only instances that the view has lend and ask.
func (p *membership) heard(id, who string, value []byte, isLoan bool) {
	var loan protocol.Loan
	var need protocol.Need
	var err error
	if isLoan {
		loan, err = protocol.ReadLoan(value)
	} else {
		need, err = protocol.ReadNeed(value)
	}
	if err != nil {
		p.s.o.Logger.Debug("not a loan or an ask", "provider", p.provider, "from", who, "error", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.id != id || p.silent || !p.tracker.Has(who):
	case isLoan:
		p.sink.Borrow(who, loan)
	default:
		p.sink.Asked(who, need)
	}
}

// Tell implements feed.Carrier.
func (p *membership) Tell(self, guest string, l protocol.Loan) {
	p.s.post.put(letter{p, self, keys.In(p.s.keys.Loans(p.provider, guest), self), l, l.Windows[0].End()})
}

// Ask implements feed.Carrier.
func (p *membership) Ask(self string, all []protocol.Request) {
	for _, r := range all {
		folder := p.s.keys.SampleAsks(p.provider)
		if r.Host != "" {
			folder = p.s.keys.Asks(p.provider, r.Host)
		}
		p.s.post.put(letter{p, self, keys.In(folder, self), r.Need, r.Windows[0].End()})
	}
}
