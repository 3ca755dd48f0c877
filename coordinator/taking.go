package coordinator

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session"
)

// Permits of long limits, the provider's and those of keys, are taken from etcd in one
// transaction: package escrow decides, and this file reads and writes. Each window of a
// transaction has conditions of its own, so one that another instance has written in between
// holds up no other.

// offer is what a transaction does for one taking: puts when the conditions hold, else gets.
// Without puts it only reads.
type offer struct {
	when       []clientv3.Cmp
	puts, gets []clientv3.Op
}

// standing returns what a taking depends on now, beside its window.
func (p *membership) standing() session.Standing {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.Standing(p.s.o.Clock.Mono())
}

// exchange sends what is due, and tells the sink what is taken then. The limits are of the policy at
// a revision.
func (p *membership) exchange(ctx context.Context, tries int, policy int64, uses []escrow.KeyUse) error {
	p.setExchanging(true)
	defer p.setExchanging(false)
	all := make([]*taking, 0, len(uses))
	for i := range uses {
		uses[i].Away = true
		all = append(all, &taking{KeyUse: &uses[i]})
	}
	err := classify(ctx, "take permits of "+p.Provider, p.transact(ctx, tries, policy, all))
	for _, t := range all {
		t.Unsent = t.Away && !t.sent && !t.dropped
		t.Answered = t.Away && err == nil
		t.Outrun = t.Answered && t.outrun
	}
	p.s.step(session.WriteAnswered{Member: p.Member, Right: session.ToTake, Err: err, Denied: errors.Is(err, ErrPermission)})
	p.Sink.Fund(uses)
	return err
}

func (p *membership) setExchanging(on bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.exchanging = on
}

// transact sends transactions until each taking is decided, so many at most. Nothing is taken by
// policy 0.
func (p *membership) transact(ctx context.Context, tries int, policy int64, all []*taking) error {
	for ; tries > 0 && len(all) > 0; tries-- {
		at := p.standing() // each time: the view may have changed since the windows were seen
		at.Policy, at.Fresh = policy, at.Fresh && policy != 0
		sent, offers, err := p.offers(ctx, at, all)
		if err != nil || len(sent) == 0 {
			return err
		}
		for i, t := range sent {
			t.sent = t.back().N > 0 && len(offers[i].puts) > 0
		}
		r, err := p.commit(ctx, offers)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) { // a restored etcd does not know it
			for _, l := range p.budgets.lengths {
				l.lease = clientv3.NoLease
			}
		}
		if err == nil && r.Header.ClusterId != at.Cluster {
			err = errOtherCluster
		}
		if err != nil {
			for i, t := range sent {
				if len(offers[i].puts) > 0 {
					t.Purse.Unanswered(t.total, t.n, t.back())
				}
			}
			return err
		}
		if !r.Succeeded {
			kv := etcdcall.KeyIn(r.Responses[len(r.Responses)-1])
			p.budgets.mark = escrow.ReadMark(kv.Value, kv.ModRevision, at.Cluster)
		}
		all = nil
		for i, t := range sent {
			found, committed := r.Responses, false
			if r.Succeeded && len(offers[i].puts) > 0 {
				txn := found[0].GetResponseTxn()
				found, committed, r.Responses = txn.Responses, txn.Succeeded, r.Responses[1:]
			} else {
				r.Responses = r.Responses[len(offers[i].gets):]
			}
			if t.answered(p, committed, found, r.Header.Revision) {
				all = append(all, t)
			}
		}
	}
	return nil
}

// offers returns those of the takings that are sent, and what is sent for each. It sees to what they depend on: the
// mark, the counts that others go on with, and leases.
func (p *membership) offers(ctx context.Context, at session.Standing, all []*taking) (sent []*taking, offers []offer, err error) {
	ctx, done := context.WithTimeout(ctx, reportTimeout)
	defer done()
	if at.Cluster == 0 { // whatever answers would seem to be another store
		return nil, nil, errors.New("no etcd cluster is followed yet")
	}
	if err := p.knowMark(ctx, at); err != nil {
		return nil, nil, err
	}
	if err := p.carryCounts(ctx, at, all); err != nil {
		return nil, nil, err
	}
	for _, t := range all {
		x, err := t.offer(ctx, p, at)
		if err != nil {
			return nil, nil, err
		}
		if len(x.gets) > 0 {
			sent, offers = append(sent, t), append(offers, x)
		}
	}
	return sent, offers, nil
}

// commit sends one transaction. It has all of reportTimeout, however long others have taken before: where etcd is slow,
// it would be cut off otherwise when it is sent already, and what it gives back would be lost, since it may be committed.
func (p *membership) commit(ctx context.Context, offers []offer) (*clientv3.TxnResponse, error) {
	ctx, done := context.WithTimeout(ctx, reportTimeout)
	defer done()
	mark := p.s.keys.BudgetMark(p.Provider)
	var ops, reads []clientv3.Op
	for _, x := range offers {
		reads = append(reads, x.gets...)
		if len(x.puts) > 0 {
			ops = append(ops, clientv3.OpTxn(x.when, x.puts, x.gets))
		} else { // not nested: what only reads needs no agreement of etcd's members
			ops = append(ops, x.gets...)
		}
	}
	// Another mark may forbid all of it: then it is only read.
	return p.s.kv.Txn(ctx).If(etcdcall.At(mark, p.budgets.mark.Revision)).Then(ops...).Else(append(reads, clientv3.OpGet(mark))...).Commit()
}

// leaseOf returns a lease of so many seconds for a window's totals. Those of a sliding limit are of all time, and
// get one that is less than a window old.
func (p *membership) leaseOf(ctx context.Context, u *escrow.KeyUse, seconds int64) (clientv3.LeaseID, error) {
	l, of := p.budgets.of(u), u.Start
	due := l.leased < of
	if u.ByParts() {
		of = p.s.o.Clock.Wall()
		due = l.leased+int64(u.Window) <= of
	}
	if l.lease == clientv3.NoLease || due {
		r, err := p.s.newLease(ctx, seconds)
		if err != nil {
			return clientv3.NoLease, err
		}
		l.leased, l.lease = of, r.ID
	}
	return l.lease, nil
}

// putTotal adds the write of a total, if its key is at a revision; 0: it is not there.
func (p *membership) putTotal(ctx context.Context, x *offer, u *escrow.KeyUse, key string, revision int64, total escrow.Total) error {
	text, err := escrow.Encode(total)
	if err != nil {
		return err
	}
	lease := clientv3.WithIgnoreLease()
	if seconds := u.Lease(revision); seconds > 0 {
		id, err := p.leaseOf(ctx, u, seconds)
		if err != nil {
			return err
		}
		lease = clientv3.WithLease(id)
	}
	x.when, x.puts = append(x.when, etcdcall.At(key, revision)), append(x.puts, clientv3.OpPut(key, text, lease))
	return nil
}

// onPolicy adds the condition that the policy is the one that the limits are of.
func (p *membership) onPolicy(x *offer, at session.Standing) {
	x.when = append(x.when, etcdcall.At(p.s.keys.Policy(p.Provider), at.Policy))
}

// totalOf returns the key of a window's total.
func (p *membership) totalOf(u *escrow.KeyUse) string {
	if u.Key == "" {
		return p.s.keys.BudgetTotal(p.Provider, u.Name(), u.TotalStart())
	}
	return p.s.keys.BudgetOfKey(p.Provider, u.Name(), u.TotalStart(), u.Key)
}

// taking is a window of which permits are taken, or given back. Away is true until it is decided.
type taking struct {
	*escrow.KeyUse
	known bool // the total was read for this
	sent  bool // a write that gives back is sent, and it is not proved that it never was committed, nor will be
	// dropped says that nothing of Back goes back any more: it is of another store, or a copy may have gone back.
	dropped bool
	outrun  bool         // the total was another than the one known, at the latest try
	total   escrow.Total // to be written
	n       int64        // permits that are taken by it; see escrow.Purse.Next
	// carried and carriedTo are what the total is to begin with: escrow.Rule.
	carried   []escrow.Carried
	carriedTo int64
}

// back returns what is to be given back now.
func (k *taking) back() escrow.Back {
	if k.dropped {
		return escrow.Back{}
	}
	return k.Back
}

// moves reports whether it gives back what was taken of an earlier part of a sliding limit, and takes some of
// the one that runs.
func (k *taking) moves() bool { return k.back().N > 0 && k.ByParts() && !k.Use.Look }

// offer decides by what was read last. An offer without gets is none.
func (k *taking) offer(ctx context.Context, p *membership, at session.Standing) (x offer, err error) {
	verdict := p.budgets.verdictOf(k.KeyUse)
	if k.outrun = false; !k.goesOn(p, verdict) {
		return x, nil
	}
	if !at.Fresh && k.moves() { // the view is in doubt
		k.Use.Look = true
	}
	key, rule := p.totalOf(k.KeyUse), escrow.Rule{Limit: k.Permits, Instances: at.Instances, Share: k.Share, Now: p.s.o.Clock.Wall(), Nonce: rand.Uint32() | 1, Carried: k.carried, CarriedTo: k.carriedTo}
	total, n, ok := k.Purse.Next(rule, k.Use, k.back(), verdict)
	k.total, k.n = total, n
	switch {
	case k.n > 0 && !at.Fresh:
		return x, nil
	case !ok && k.known:
		k.decided(p)
		return x, nil
	}
	x.gets = []clientv3.Op{clientv3.OpGet(key)}
	if ok && (k.known || k.back().N == 0) { // a give-back has one try, but for those that Refused allows
		err = p.putTotal(ctx, &x, k.KeyUse, key, k.Purse.Revision(), k.total)
	}
	if k.n > 0 {
		p.onPolicy(&x, at)
	}
	return x, err
}

// goesOn returns whether the taking is to be sent by a verdict, or on. If what was in hand is of another store, it counts no
// more: then the taking goes on with a new purse, and has nothing to give back. If it was only to give back, it is decided.
func (k *taking) goesOn(p *membership, verdict *escrow.Verdict) bool {
	if k.Purse.Of(verdict) {
		return true
	}
	ends := k.back().N > 0 && !k.moves()
	if k.Purse, k.dropped = (escrow.Purse{Taken: k.Use.Used, Part: k.Purse.Part}), true; ends {
		k.decided(p)
	}
	return !ends
}

// answered takes the answer: at which revision the total was committed, or what was found in its place. It
// returns whether there is more to do.
func (k *taking) answered(p *membership, committed bool, found []*etcdserverpb.ResponseOp, revision int64) (again bool) {
	verdict := p.budgets.verdictOf(k.KeyUse)
	if committed {
		k.Purse.Committed(k.total, k.n, revision, verdict)
		k.decided(p)
		return false
	}
	if !k.goesOn(p, verdict) { // another mark was found
		return false
	}
	kv := etcdcall.KeyIn(found[0])
	k.outrun = kv.ModRevision != k.Purse.Revision()
	never := k.Purse.Refused(k.total, kv.Value, kv.ModRevision, verdict)
	if k.known && k.back().N > 0 && !never { // a copy of the give-back may be committed
		moves := k.moves()
		if k.dropped = true; !moves {
			k.decided(p)
			return false
		}
	}
	k.known, k.sent = true, false
	return true
}

// decided notes that etcd has answered, and logs what is withheld.
func (k *taking) decided(p *membership) {
	k.Away = false
	why, l := k.Purse.Withheld(), p.budgets.of(k.KeyUse)
	if why == "" || l.withheld >= k.Start {
		return
	}
	l.withheld = k.Start
	if k.ByParts() { // whose parts are no windows
		l.withheld = max(k.Purse.Resumes(&k.Budget), k.Start+int64(k.Window)) - 1
	}
	resumes, until := k.Purse.Resumes(&k.Budget), "its count is given"
	if resumes != 0 {
		until = cause.Until(k.Limit, cause.Date(time.Unix(0, resumes)))
	}
	if k.Key == "" {
		p.s.o.Logger.Warn("nothing more of a limit is handed out", "provider", p.Provider, "limit", k.String(), "until", until, "because", why,
			"do", cause.GiveCount(p.Provider, k.Limit, resumes != 0))
		return
	}
	p.s.o.Logger.Warn("nothing more of a limit is handed out for some keys", "provider", p.Provider, "key", k.Key, "limit", k.String(), "until", until, "because", why,
		"do", cause.GiveCountOf(p.Provider, "KEY", k.Limit))
}
