package coordinator

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
)

// This file is about issuer keys, by which the first instance of a fleet knows that nobody
// else can issue permits: docs/protocol.md, section 15.

// unissued returns the conditions on which an incarnation registers: that it has never had an
// issuer key; for the first of a fleet, that nobody has one, nor an instance's key. One that
// continues has its key as the process before wrote it. unless counts the two kinds of keys
// that are in the way.
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
	if b := p.before; b != nil {
		none = []clientv3.Cmp{is(i.key, b.Key)}
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
	at   int64  // monotonic instant of the last round; 0: there was none
	from string // the key from which on the next round looks; empty: from the first
	// clean says that since the round at the first key none was found, and no instance went.
	clean bool
	gone  map[string]abandoned
	// settle is the largest S of the policies since the listing.
	settle time.Duration
}

// abandoned is an issuer key of a revision, whose incarnation was gone by the instant at.
type abandoned struct{ revision, at int64 }

// sweep deletes some issuer keys that incarnations have left behind: the oldest instance does,
// after instances have gone. A later round does what fails.
func (p *membership) sweep() {
	folder := p.s.keys.Issuers(p.provider)
	from, due := p.nextSweep(folder)
	if !due {
		return
	}
	ctx, done := context.WithTimeout(p.s.ctx, reportTimeout)
	defer done()
	r, err := p.s.kv.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(folder)),
		clientv3.WithLimit(sweepKeys), clientv3.WithKeysOnly(), clientv3.WithSerializable())
	if err != nil {
		return
	}
	next := ""
	if r.More && len(r.Kvs) > 0 {
		next = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
	var when []clientv3.Cmp
	var gone []clientv3.Op
	for _, kv := range p.left(from, next, r.Kvs) {
		key := string(kv.Key)
		instance := p.s.keys.Instances(p.provider) + strings.TrimPrefix(key, folder)
		when = append(when, is(key, kv.ModRevision), clientv3.Compare(clientv3.CreateRevision(instance), "=", 0))
		gone = append(gone, clientv3.OpDelete(key))
	}
	if len(gone) == 0 {
		return
	}
	if r, err := p.s.kv.Txn(ctx).If(when...).Then(gone...).Commit(); err == nil && r.Succeeded {
		p.s.o.Logger.Info("removed the issuer keys of instances that are gone", "provider", p.provider, "keys", len(gone))
	}
}

// nextSweep returns from which key on a round looks that is due now.
func (p *membership) nextSweep(folder string) (from string, due bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	w, now := &p.sweeping, p.s.o.Clock.Mono()
	if p.stage != following || p.silent || p.policy == nil || w.clean && w.from == "" || w.at != 0 && now-w.at < int64(sweepEvery) {
		return "", false
	}
	if w.at = now; p.tracker.Rank(p.id) > 0 {
		return "", false
	}
	if w.from == "" {
		w.from, w.clean = folder, true
	}
	return w.from, true
}

// left takes the issuer keys from one key up to next, and returns those whose incarnations
// have been gone for S. next is the key from which on the next round looks.
func (p *membership) left(from, next string, all []*mvccpb.KeyValue) (left []*mvccpb.KeyValue) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.stage != following || p.sweeping.settle == 0 {
		return nil
	}
	w, now, gone := &p.sweeping, p.s.o.Clock.Mono(), map[string]abandoned{}
	for _, kv := range all {
		key := string(kv.Key)
		id, ok := keys.IncarnationIn(p.s.keys.Issuers(p.provider), key)
		if ok && p.tracker.Has(id) || kv.ModRevision > p.line.Position() { // the watch has not told of it yet
			continue
		}
		a := w.gone[key]
		if a.revision != kv.ModRevision {
			a = abandoned{kv.ModRevision, now}
		}
		if gone[key] = a; now-a.at >= int64(w.settle) {
			left = append(left, kv)
		}
	}
	for key, a := range w.gone {
		if key < from || next != "" && key >= next {
			gone[key] = a // of another round
		}
	}
	w.gone, w.from, w.clean = gone, next, w.clean && len(gone) == 0
	return left
}
