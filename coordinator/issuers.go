package coordinator

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/keys"
)

// This file is about issuer keys, by which the first instance of a fleet knows that nobody
// else can issue permits: docs/proof/protocol.md, section 12.

// unissued returns the conditions on which an incarnation registers: that it has never had an
// issuer key; for the first of a fleet, that nobody has one, nor an instance's key. unless
// counts the two kinds of keys that are in the way.
func (p *membership) unissued(i *incarnation) (none []clientv3.Cmp, unless []clientv3.Op) {
	for _, kind := range [][2]string{
		{p.s.keys.Issuers(p.provider), p.s.keys.Issuer(p.provider, i.id)},
		{p.s.keys.Instances(p.provider), i.key},
	} {
		c, op := clientv3.Compare(clientv3.CreateRevision(kind[1]), "=", 0), clientv3.OpGet(kind[1], clientv3.WithCountOnly())
		if i.value.First {
			c, op = clientv3.Compare(clientv3.CreateRevision(kind[0]), "=", 0).WithPrefix(), clientv3.OpGet(kind[0], clientv3.WithPrefix(), clientv3.WithCountOnly())
		}
		none, unless = append(none, c), append(unless, op)
	}
	return none, unless
}

// issuerGone deletes the issuer keys of this membership, when nothing is issued any more.
func (p *membership) issuerGone() (gone []clientv3.Op) {
	if own := p.current(); own.key != "" {
		gone = append(gone, clientv3.OpDelete(p.s.keys.Issuer(p.provider, own.id)))
	}
	if a := p.attempt; a != nil {
		gone = append(gone, clientv3.OpDelete(p.s.keys.Issuer(p.provider, a.id)))
	}
	return gone
}

const (
	sweepEvery = 2 * time.Second
	sweepKeys  = 50 // at once
)

// sweeping is what a membership knows of issuer keys that incarnations have left behind. An
// incarnation whose instance's key is gone does not come back, and issues nothing S later.
type sweeping struct {
	at    int64                // monotonic instant of the last round; 0: there was none
	clean bool                 // the last round found none, and no instance has gone since
	gone  map[string]abandoned // by key
	// settle is the largest S of the policies since the listing.
	settle time.Duration
}

// abandoned is an issuer key of a revision, whose incarnation was gone by the instant at.
type abandoned struct{ revision, at int64 }

// sweep deletes some issuer keys that incarnations have left behind: the oldest instance does,
// after instances have gone. A later round does what fails, and the rest.
func (p *membership) sweep() {
	if !p.sweepIsDue() {
		return
	}
	ctx, done := context.WithTimeout(p.s.ctx, reportTimeout)
	defer done()
	folder := p.s.keys.Issuers(p.provider)
	var found []*mvccpb.KeyValue
	err := etcdcall.EachIn(ctx, p.s.kv, folder, func(kv *mvccpb.KeyValue) {
		if len(found) < sweepKeys && !p.mayIssue(kv) {
			found = append(found, kv)
		}
	}, clientv3.WithKeysOnly(), clientv3.WithSerializable())
	var gone []clientv3.Op
	for _, kv := range p.left(found, err) {
		key := string(kv.Key)
		instance := p.s.keys.Instances(p.provider) + strings.TrimPrefix(key, folder)
		when := []clientv3.Cmp{etcdcall.At(key, kv.ModRevision), clientv3.Compare(clientv3.CreateRevision(instance), "=", 0)}
		gone = append(gone, clientv3.OpTxn(when, []clientv3.Op{clientv3.OpDelete(key)}, nil))
	}
	if len(gone) == 0 {
		return
	}
	if _, err := p.s.kv.Txn(ctx).Then(gone...).Commit(); err == nil {
		p.s.o.Logger.Info("removed the issuer keys of instances that are gone", "provider", p.provider, "keys", len(gone))
	}
}

// sweepIsDue begins a round if one is due.
func (p *membership) sweepIsDue() bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	w, now := &p.sweeping, p.s.o.Clock.Mono()
	if p.stage != following || p.silent || p.policy == nil || w.clean || w.at != 0 && now-w.at < int64(sweepEvery) {
		return false
	}
	w.at, w.clean = now, p.tracker.Rank(p.id) == 0
	return w.clean
}

// mayIssue reports whether the incarnation of an issuer key is there, or may be: the watch has not
// told of it yet.
func (p *membership) mayIssue(kv *mvccpb.KeyValue) bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	id, ok := keys.IncarnationIn(p.s.keys.Issuers(p.provider), string(kv.Key))
	return ok && p.tracker.Has(id) || p.line == nil || kv.ModRevision > p.line.Position()
}

// left returns those of the issuer keys whose incarnations have been gone for S. If they could
// not be read the round counts for nothing.
func (p *membership) left(found []*mvccpb.KeyValue, err error) (left []*mvccpb.KeyValue) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	w, now, gone := &p.sweeping, p.s.o.Clock.Mono(), map[string]abandoned{}
	if err != nil || p.stage != following || w.settle == 0 {
		w.clean = false
		return nil
	}
	for _, kv := range found {
		key := string(kv.Key)
		a := w.gone[key]
		if a.revision != kv.ModRevision {
			a = abandoned{kv.ModRevision, now}
		}
		if gone[key] = a; now-a.at >= int64(w.settle) {
			left = append(left, kv)
		}
	}
	w.gone, w.clean = gone, w.clean && len(gone) == 0
	return left
}
