package coordinator

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/session"
)

// This file is about issuer keys, by which the first instance of a fleet knows that nobody
// else can issue permits: docs/proof/protocol.md, section 12.

// unissued returns the conditions on which an incarnation registers: that it has never had an
// issuer key; for the first of a fleet, that nobody has one, nor an instance's key. unless
// counts the two kinds of keys that are in the way.
func (p *membership) unissued(i *session.Incarnation) (none []clientv3.Cmp, unless []clientv3.Op) {
	for _, kind := range [][2]string{
		{p.s.keys.Issuers(p.Provider), p.s.keys.Issuer(p.Provider, i.ID)},
		{p.s.keys.Instances(p.Provider), i.Key},
	} {
		c, op := clientv3.Compare(clientv3.CreateRevision(kind[1]), "=", 0), clientv3.OpGet(kind[1], clientv3.WithCountOnly())
		if i.Value.First {
			c, op = clientv3.Compare(clientv3.CreateRevision(kind[0]), "=", 0).WithPrefix(), clientv3.OpGet(kind[0], clientv3.WithPrefix(), clientv3.WithCountOnly())
		}
		none, unless = append(none, c), append(unless, op)
	}
	return none, unless
}

// issuerGone deletes the issuer keys of this membership, when nothing is issued any more.
func (p *membership) issuerGone() (gone []clientv3.Op) {
	if own := p.current(); own.Key != "" {
		gone = append(gone, clientv3.OpDelete(p.s.keys.Issuer(p.Provider, own.ID)))
	}
	if a := p.attempt; a != nil {
		gone = append(gone, clientv3.OpDelete(p.s.keys.Issuer(p.Provider, a.ID)))
	}
	return gone
}

// sweepKeys bounds the issuer keys that a round of sweeping looks at.
const sweepKeys = 50

// sweep deletes some issuer keys that incarnations have left behind, if a round is due. A later round
// does what fails, and the rest.
func (p *membership) sweep() {
	if !p.sweepIsDue() {
		return
	}
	ctx, done := context.WithTimeout(p.s.ctx, reportTimeout)
	defer done()
	folder := p.s.keys.Issuers(p.Provider)
	var found []session.IssuerKey
	err := etcdcall.EachIn(ctx, p.s.kv, folder, func(kv *mvccpb.KeyValue) {
		if len(found) < sweepKeys && !p.mayIssue(kv) {
			found = append(found, session.IssuerKey{Key: string(kv.Key), Revision: kv.ModRevision})
		}
	}, clientv3.WithKeysOnly(), clientv3.WithSerializable())
	var gone []clientv3.Op
	for _, k := range p.swept(found, err == nil) {
		instance := p.s.keys.Instances(p.Provider) + strings.TrimPrefix(k.Key, folder)
		when := []clientv3.Cmp{etcdcall.At(k.Key, k.Revision), clientv3.Compare(clientv3.CreateRevision(instance), "=", 0)}
		gone = append(gone, clientv3.OpTxn(when, []clientv3.Op{clientv3.OpDelete(k.Key)}, nil))
	}
	if len(gone) == 0 {
		return
	}
	if _, err := p.s.kv.Txn(ctx).Then(gone...).Commit(); err == nil {
		p.s.o.Logger.Debug("deleted keys in etcd of instances that have ended", "provider", p.Provider, "keys", len(gone))
	}
}

// sweepIsDue begins a round if one is due.
func (p *membership) sweepIsDue() bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.SweepDue(p.s.o.Clock.Mono())
}

// mayIssue reports whether the incarnation of an issuer key is there, or may be.
func (p *membership) mayIssue(kv *mvccpb.KeyValue) bool {
	id, _ := keys.IncarnationIn(p.s.keys.Issuers(p.Provider), string(kv.Key)) // empty if the key is nobody's
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.MayIssue(id, kv.ModRevision)
}

// swept ends a round, and returns the keys that are to be deleted.
func (p *membership) swept(found []session.IssuerKey, ok bool) []session.IssuerKey {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.Swept(found, ok, p.s.o.Clock.Mono())
}
