package coordinator

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// attempt is a registration that was sent and whose answer has not come: the key
// may be there, or may come to be there, and would keep a share that nobody uses
// for as long as the lease lives. So the same incarnation is registered again,
// not another: its life has not begun, for nothing is issued before the listing
// that is the answer.
type attempt struct {
	lease  clientv3.LeaseID
	id     string
	key    ed25519.PrivateKey
	number int // of the attempts before: no two write the same value
}

// register makes a new incarnation, or finds the one whose answer was lost, and
// starts the history.
func (p *membership) register(ctx context.Context, l *lease) error {
	i, m, resumed, err := p.resume(ctx, l)
	joined, keyAt := int64(0), m.revision
	if err == nil && !resumed {
		i, m, joined, err = p.writeKey(ctx, l)
		keyAt = m.created
	}
	if err != nil {
		return err
	}
	if joined > stormJoins {
		m.revision = 0
		p.early.close()
		if err := p.awaitCalm(ctx); err != nil {
			return err
		}
	}
	signer := p.attempt.key
	all, m, err := p.list(ctx, m)
	if err == nil || errors.Is(err, errGone) {
		p.attempt, p.before = nil, nil
	} else if resumed {
		p.before.Report = m.newest
	}
	if err != nil {
		return err
	}
	p.noteRegistered(m.cluster, i.ID)
	p.mu.Lock()
	p.key, p.id, p.lease, p.value, p.created, p.keyAt, p.signer = m.key, i.ID, l.id, i, m.created, keyAt, signer
	p.listLocked(m, all)
	p.mu.Unlock()
	if loans := p.early.loans; loans != nil && i.Borrows {
		p.early.loans = nil
		p.s.wg.Go(func() { p.borrow(loans, i.ID, i.From) })
	}
	if resumed {
		p.s.o.Logger.Info("continues the instance of the process before", "provider", p.provider, "instance", i.ID, "revision", m.asOf())
	}
	p.keep()
	return nil
}

// instance is this process as an incarnation.
func (p *membership) instance(id string) quota.Instance {
	s := p.s
	return quota.Instance{
		ID: id, Name: s.o.Name, Host: s.host[:min(len(s.host), quota.MaxNameBytes)], PID: os.Getpid(), Version: buildinfo.Version(),
		Weight: max(1, s.o.Weight), Started: s.started,
	}
}

// writeKey writes the key of a new incarnation, with its first report, which is a
// mark; or it finds that of the attempt whose answer was lost. joined is how many
// others have registered meanwhile.
func (p *membership) writeKey(ctx context.Context, l *lease) (i quota.Instance, m mark, joined int64, err error) {
	s := p.s
	a, again, err := p.attemptOf(l)
	if err != nil {
		return i, m, 0, fmt.Errorf("coordinator: register: %w", err)
	}
	p.watchEarly(ctx, a.id)
	from, before, err := p.announcedStart(ctx)
	if err != nil {
		return i, m, 0, err
	}
	m.id, m.key, m.lease, m.sent = a.id, s.keys.Instance(p.provider, a.id), l.id, s.o.Clock.Now()
	i = p.instance(a.id)
	i.Attempt, i.From, i.Borrows = a.number, from, !from.IsZero()
	value, err := json.Marshal(protocol.Incarnation(i))
	if err != nil {
		return i, m, 0, fmt.Errorf("coordinator: register: %w", err)
	}
	m.report, err = p.reportNow()
	if err != nil {
		return i, m, 0, err
	}
	c, done := s.bounded(ctx)
	defer done()
	r, err := s.kv.Txn(c).If(clientv3.Compare(clientv3.CreateRevision(m.key), "=", 0)).
		Then(clientv3.OpPut(m.key, string(value), clientv3.WithLease(l.id)),
			clientv3.OpPut(s.keys.Report(p.provider, m.id), string(m.report), clientv3.WithLease(l.id)), p.countInstances()).
		Else(clientv3.OpGet(m.key)).Commit()
	if err != nil {
		return i, m, 0, classify(ctx, "register as an instance of "+p.provider, err)
	}
	if r.Succeeded {
		m.created, m.newest, m.revision = r.Header.Revision, r.Header.Revision, r.Header.Revision
		m.cluster = r.Header.ClusterId
		return i, m, r.Responses[2].GetResponseRange().Count - 1 - before, nil
	}
	if m.created, err = written(r.Responses[0].GetResponseRange().Kvs, l, &i); err != nil || !again {
		return i, m, 0, errors.Join(fmt.Errorf("coordinator: register: %s is there already", m.key), err)
	}
	return i, m, 0, nil
}

// attemptOf returns the next attempt to register under a lease, and whether there
// was one before.
func (p *membership) attemptOf(l *lease) (a *attempt, again bool, err error) {
	if p.attempt != nil && p.attempt.lease == l.id {
		p.attempt.number++
		return p.attempt, true, nil
	}
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, false, err
	}
	p.attempt = &attempt{lease: l.id, key: key, id: protocol.NewID(short(p.s.o.Name), public)}
	return p.attempt, false, nil
}

// written reads the instance that was found under its key, and returns the key's
// create revision.
func written(kvs []*mvccpb.KeyValue, l *lease, into *quota.Instance) (created int64, err error) {
	if len(kvs) == 0 {
		return 0, errors.New("it is not listed")
	}
	kv := kvs[0]
	if kv.Lease != int64(l.id) {
		return 0, fmt.Errorf("its lease is %x, not %x", kv.Lease, int64(l.id))
	}
	found := quota.Instance{ID: into.ID}
	if err := json.Unmarshal(kv.Value, (*protocol.Incarnation)(&found)); err != nil {
		return 0, err
	}
	*into = found
	return kv.CreateRevision, nil
}

// announcedStart returns from when this instance shall take part, far enough ahead
// that all others know by then, and how many others there are.
func (p *membership) announcedStart(ctx context.Context) (from time.Time, others int64, err error) {
	c, done := p.s.bounded(ctx)
	defer done()
	r, err := p.s.kv.Txn(c).Then(clientv3.OpGet(p.s.keys.Policy(p.provider)), p.countInstances()).Commit()
	if err != nil {
		return from, 0, classify(ctx, "read the policy of "+p.provider, err)
	}
	others = r.Responses[1].GetResponseRange().Count
	kvs := r.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return from, others, nil
	}
	st := stored(p.provider, kvs[0].Value, kvs[0].ModRevision)
	if st.Problem != nil {
		return from, others, nil
	}
	return startAmong(int(others)+1, p.s.o.Clock.Wall(), &st.Policy), others, nil
}
