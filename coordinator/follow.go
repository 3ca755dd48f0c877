package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/view"
)

// errLease ends an incarnation whose lease is gone.
var errLease = errors.New("this instance's lease is gone from etcd; unless it is leaving it registers anew")

// errGone ends the following of a watch: this incarnation is over.
var errGone = errors.New("this instance's key is gone from etcd; unless it is leaving it registers anew")

// follow applies what the watch delivers until the incarnation is over or ctx
// ends. It opens the watch anew where it left off when it breaks or was closed
// in a rush, and lists anew after a gap.
func (p *place) follow(ctx context.Context) error {
	if !sleep(ctx, p.holdBack()) {
		return ctx.Err()
	}
	var wait backoff
	for {
		err := p.followOnce(ctx, &wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case errors.Is(err, errGone):
			return err
		case errors.Is(err, errRush):
			// Not all at the same instants.
			if !sleep(ctx, jitter(p.holdBack())) {
				return ctx.Err()
			}
			continue
		case errors.Is(err, rpctypes.ErrCompacted):
			p.mu.Lock()
			p.relist = true
			p.mu.Unlock()
		}
		p.trouble(err)
		if !wait.sleep(ctx) {
			return ctx.Err()
		}
	}
}

// followOnce follows one watch to its end, after listing anew if need be.
func (p *place) followOnce(ctx context.Context, wait *backoff) error {
	if err := p.listIfNeeded(ctx); err != nil {
		return err
	}
	return p.watch(ctx, wait)
}

// streamContext is the context for the session's watches and for asking their
// progress: it must be the same, or etcd's client opens another stream.
func (s *Session) streamContext(ctx context.Context) context.Context {
	return clientv3.WithRequireLeader(ctx)
}

// watch follows one watch from the tracker's position on.
func (p *place) watch(ctx context.Context, wait *backoff) error {
	c, cancel := context.WithCancel(p.s.streamContext(ctx))
	defer cancel()
	p.mu.Lock()
	p.rewatch, p.behind = cancel, 0
	from := p.tracker.Position() + 1
	p.mu.Unlock()
	defer p.unwatched()
	var latest rush
	responses := p.s.watcher.Watch(c, p.s.keys.provider(p.provider), clientv3.WithPrefix(), clientv3.WithRev(from))
	for r := range responses {
		if err := r.Err(); err != nil {
			return classify(ctx, "watch "+p.provider, err)
		}
		wait.reset()
		if err := p.take(&r); err != nil {
			return err
		}
		if latest.changes(len(r.Events), p.s.o.Clock.Mono(), p.holdBack()) {
			return errRush
		}
	}
	return nil
}

// unwatched notes that no watch is open: there is none to ask for its progress.
func (p *place) unwatched() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewatch = nil
}

// take applies one answer of the watch.
func (p *place) take(r *clientv3.WatchResponse) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.IsProgressNotify() {
		p.tracker.Progress(r.Header.Revision)
	}
	keys := make([]view.Key, 0, len(r.Events))
	for _, e := range r.Events {
		keys = append(keys, p.parse(e.Kv, e.Type == clientv3.EventTypeDelete))
	}
	for _, c := range p.tracker.Events(keys) {
		if c.Policy != nil || c.PolicyDeleted {
			p.policy = c.Policy
		}
		p.ownLocked(c.Level)
		if !p.silent {
			p.sink.Apply(p.s.o.Clock.Now(), c)
		}
	}
	p.proveLocked()
	if len(keys) > 0 {
		p.tellLocked(nil)
	}
	if !p.tracker.Has(p.id) {
		return errGone
	}
	return nil
}

// proveLocked passes the newest proof on.
func (p *place) proveLocked() {
	if !p.tracker.Behind() {
		p.behind = 0
	}
	proof, ok := p.tracker.Proof()
	if !ok || proof.Mono <= p.proved {
		return
	}
	p.proved, p.sure = proof.Mono, proof
	if !p.silent {
		p.sink.Prove(proof)
	}
	p.tellLocked(nil)
}

// listIfNeeded starts the history anew, under the same incarnation, after a gap.
func (p *place) listIfNeeded(ctx context.Context) error {
	p.mu.Lock()
	relist := p.relist
	p.mu.Unlock()
	if !relist {
		return nil
	}
	sent := p.s.o.Clock.Now()
	c, done := p.s.bounded(ctx)
	defer done()
	r, err := p.s.client.Get(c, p.s.keys.provider(p.provider), clientv3.WithPrefix())
	if err != nil {
		return classify(ctx, "list "+p.provider, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.s.o.Logger.Warn("history has a gap, starting anew", "provider", p.provider, "revision", r.Header.Revision)
	p.listLocked(sent, r.Header.Revision, r.Header.ClusterId, r.Kvs)
	if !p.tracker.Has(p.id) {
		return errGone
	}
	return nil
}

// gapLocked notes that the history has a gap and ends the watch, so that follow
// lists anew. Until then no proof counts.
func (p *place) gapLocked(why string) {
	if p.relist {
		return
	}
	p.s.o.Logger.Warn("etcd went backwards", "provider", p.provider, "because", why)
	p.relist = true
	p.tracker.Doubt()
	if p.rewatch != nil {
		p.rewatch()
	}
}

// check compares a doubted view with a listing of the keys and their revisions.
// The own report is no part of the view, but claims by demand follow from it: a
// store that lost it went backwards.
func (p *place) check(ctx context.Context) {
	p.mu.Lock()
	probe, report := p.tracker.Sent(p.s.o.Clock.Now()), p.published.Newest()
	reportKey := p.s.keys.report(p.provider, p.id)
	p.mu.Unlock()
	c, done := p.s.bounded(ctx)
	defer done()
	t, err := p.s.client.Txn(c).Then(
		clientv3.OpGet(p.s.keys.provider(p.provider), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(reportKey, clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		p.mu.Lock()
		p.checking = false
		p.mu.Unlock()
		return
	}
	r := t.Responses[0].GetResponseRange()
	stored := int64(0)
	if kvs := t.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		stored = kvs[0].ModRevision
	}
	// The watch may still have to catch up with the listing; probes and their
	// progress requests go on meanwhile.
	keys := p.parseAll(r.Kvs)
	for range 20 {
		p.mu.Lock()
		if p.relist || !p.checking { // there is a gap, or another history already
			p.checking = false
			p.mu.Unlock()
			return
		}
		same, ok := p.tracker.Check(probe, t.Header.Revision, t.Header.ClusterId, keys)
		beyond := p.tracker.Position() > t.Header.Revision
		switch {
		case ok && same && stored < report:
			p.checking = false
			p.gapLocked("this instance's newest report is gone")
		case ok && same:
			p.checking = false
			p.proveLocked()
		case ok:
			p.checking = false
			p.gapLocked(fmt.Sprintf("the view is not that of revision %d", t.Header.Revision))
		case beyond:
			p.checking = false // too late for this listing: try another
		}
		again := p.checking
		p.mu.Unlock()
		if !again || !sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
	p.mu.Lock()
	p.checking = false
	p.mu.Unlock()
}
