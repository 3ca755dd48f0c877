package coordinator

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/view"
)

// errLease ends an incarnation whose lease is gone.
var errLease = errors.New("this instance's lease is gone from etcd; unless it is leaving it registers again")

// errGone ends the following of a watch: this incarnation is over.
var errGone = errors.New("this instance's key is gone from etcd; unless it is leaving it registers again")

// errReopen says that this membership has ended its watch itself, to open another.
var errReopen = errors.New("the watch is opened anew")

// follow applies the watch's events until the incarnation is over or ctx
// ends. It opens the watch anew where it left off when it breaks or was closed
// in a rush, and lists anew after a gap.
func (p *membership) follow(ctx context.Context) error {
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
		case errors.Is(err, errReopen):
			continue // not because something failed
		case errors.Is(err, rpctypes.ErrCompacted), tooLarge(err):
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

// followOnce follows one watch to its end, after listing again if necessary.
func (p *membership) followOnce(ctx context.Context, wait *backoff) error {
	if err := p.listIfNeeded(ctx); err != nil {
		return err
	}
	early := p.early.view
	p.early.view = nil
	p.mu.Lock()
	if early != nil && early.from > p.tracker.Position()+1 {
		early.close()
		early = nil
	}
	p.mu.Unlock()
	return p.watch(ctx, early, wait)
}

// watch follows the watch w to its end; if it is nil, another one from the tracker's
// position on.
func (p *membership) watch(ctx context.Context, w *stream, wait *backoff) error {
	p.mu.Lock()
	if w == nil {
		w = p.newStream(ctx, p.tracker.Position()+1)
	}
	p.open, p.behind = w, 0
	newcomer := p.proved == 0
	p.mu.Unlock()
	defer w.close()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open = nil // there is none to ask for its progress
	}()
	if w.told == nil {
		w.open(p.s.keys.Provider(p.provider))
	}
	var latest rush
	if newcomer { // it may use what it borrows once its view is proved
		p.s.wg.Go(func() { p.s.probeOnce(p.s.o.Probe, []*membership{p}) })
	}
	for {
		r, ok := w.next()
		if !ok {
			break
		}
		if err := r.Err(); err != nil {
			return classify(ctx, "watch "+p.provider, err)
		}
		wait.reset()
		if err := p.take(w.ctx, &r); err != nil {
			return err
		}
		if latest.changes(len(r.Events), p.s.o.Clock.Mono(), p.holdBack()) {
			return errRush
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.ctx.Err() != nil && !p.relist {
		return errReopen
	}
	return nil
}

// take applies one answer of the watch that lasts as long as ctx. After a watch has
// ended its answers do not count: they may be of a store that was replaced.
func (p *membership) take(ctx context.Context, r *clientv3.WatchResponse) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	if r.Header.ClusterId != p.tracker.Cluster() {
		p.gapLocked("another cluster answered")
		return nil
	}
	if r.IsProgressNotify() {
		p.tracker.Progress(r.Header.Revision)
	}
	keys := make([]view.Key, 0, len(r.Events))
	for _, e := range r.Events {
		keys = append(keys, p.parse(e.Kv, e.Type == clientv3.EventTypeDelete))
	}
	for _, c := range p.tracker.Events(keys) {
		if c.Policy != nil || c.PolicyDeleted {
			p.policy, p.policyAt = c.Policy, c.Revision
			p.openLocked()
		}
		if c.Level != nil || c.LevelDeleted {
			p.levelLocked(c.Level)
		}
		if c.Pace != nil || c.PaceDeleted {
			p.paceLocked(c.Pace)
		}
		if !p.silent {
			p.sink.Apply(p.s.o.Clock.Now(), c)
		}
	}
	for i := range keys {
		p.askedLocked(&keys[i])
	}
	p.proveLocked()
	if len(keys) > 0 {
		p.tellLocked(nil)
	}
	if !p.tracker.Has(p.id) {
		return errGone
	}
	if err := p.tooMany(p.tracker.Instances()); err != nil {
		p.gapLocked(err.Error())
	}
	return nil
}

// proveLocked passes the newest proof on.
func (p *membership) proveLocked() {
	if !p.tracker.Behind() {
		p.behind = 0
	}
	proof, ok := p.tracker.Proof()
	if !ok || p.relist || proof.Mono <= p.proved {
		return
	}
	p.proved = proof.Mono
	if !p.silent {
		p.sink.Prove(proof)
	}
	p.tellLocked(nil)
}

// gapLocked notes that the history has a gap and ends the watch, so that follow
// lists anew. Until then no proof counts.
func (p *membership) gapLocked(why string) {
	if p.relist {
		return
	}
	p.s.o.Logger.Warn("the history restarts", "provider", p.provider, "because", why)
	p.relist = true
	if p.open != nil {
		p.open.end()
	}
}
