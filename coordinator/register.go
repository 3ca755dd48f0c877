package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// incarnation is this process as one instance of a provider.
type incarnation struct {
	id      string
	key     string // in etcd; empty while there is none
	lease   clientv3.LeaseID
	created int64          // revision of the key's first write
	keyAt   int64          // revision at which this process wrote it
	value   quota.Instance // as written there
	// continued is set if another process was this incarnation before.
	continued bool
}

// lives is the condition that the key is still there.
func (i *incarnation) lives() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(i.key), "=", i.created)
}

// putKey is the operation that writes the key.
func (i *incarnation) putKey(o ...clientv3.OpOption) (clientv3.Op, error) {
	b, err := json.Marshal(protocol.Incarnation(i.value))
	return clientv3.OpPut(i.key, string(b), o...), err
}

// replace writes a value, or deletes the key for nil, if the key is at a revision and the
// incarnation lives. Otherwise the answer has the key.
func (i *incarnation) replace(ctx context.Context, kv clientv3.KV, key string, revision int64, value any) (*clientv3.TxnResponse, error) {
	op := clientv3.OpDelete(key)
	if value != nil {
		b, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		op = clientv3.OpPut(key, string(b))
	}
	return kv.Txn(ctx).If(is(key, revision), i.lives()).Then(op).Else(clientv3.OpGet(key)).Commit()
}

// current returns the incarnation in force.
func (p *membership) current() incarnation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.incarnation
}

// newIncarnation returns this process as the incarnation id under a lease.
func (p *membership) newIncarnation(id string, l *lease) incarnation {
	s := p.s
	return incarnation{id: id, key: s.keys.Instance(p.provider, id), lease: l.id, value: quota.Instance{
		ID: id, Name: s.o.Name, Host: s.host, PID: os.Getpid(), Version: buildinfo.Version(),
		Weight: max(1, s.o.Weight), Started: s.started,
	}}
}

// register makes a new incarnation, or finds the one whose answer was lost, and
// starts the history.
func (p *membership) register(ctx context.Context, l *lease) error {
	m, resumed, err := p.resume(ctx, l)
	joined := int64(0)
	if err == nil && !resumed {
		m, joined, err = p.writeKey(ctx, l)
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
	all, m, err := p.list(ctx, m)
	if err == nil || errors.Is(err, errGone) {
		p.attempt, p.before = nil, nil
	} else if resumed {
		p.before.Report = m.newest
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.incarnation, p.opens = m.incarnation, 0
	p.listLocked(m, all)
	p.mu.Unlock()
	p.noteRegistered(m.cluster)
	p.s.wg.Go(func() { p.hear(ctx, m.id) })
	if resumed {
		p.s.o.Logger.Info("continues the instance of the process before", "provider", p.provider, "instance", m.id, "revision", m.asOf())
	}
	p.keep()
	return nil
}

// writeKey writes the key of a new incarnation, with its first report, which is a
// mark; or it finds that of the attempt whose answer was lost. joined is how many
// others have registered meanwhile.
func (p *membership) writeKey(ctx context.Context, l *lease) (m mark, joined int64, err error) {
	s := p.s
	a, again := p.attemptOf(l)
	p.watchEarly(ctx)
	from, before, err := p.announcedStart(ctx)
	if err != nil {
		return m, 0, err
	}
	m.incarnation, m.sent = *a, s.o.Clock.Now()
	m.value.From = from
	put, err := m.putKey(clientv3.WithLease(l.id))
	if err != nil {
		return m, 0, fmt.Errorf("coordinator: register: %w", err)
	}
	if m.report, err = p.reportNow(); err != nil {
		return m, 0, err
	}
	r, err := s.kv.Txn(ctx).If(m.lives()).
		Then(put, clientv3.OpPut(s.keys.Report(p.provider, m.id), string(m.report), clientv3.WithLease(l.id)), p.countInstances()).
		Else(clientv3.OpGet(m.key)).Commit()
	if err != nil {
		return m, 0, classify(ctx, "register as an instance of "+p.provider, err)
	}
	if r.Succeeded {
		m.made(r)
		m.created, m.keyAt = m.revision, m.revision
		return m, r.Responses[2].GetResponseRange().Count - 1 - before, nil
	}
	if err := m.written(r.Responses[0]); err != nil || !again {
		return m, 0, errors.Join(fmt.Errorf("coordinator: register: %s is there already", m.key), err)
	}
	return m, 0, nil
}

// attemptOf returns the next attempt to register under a lease, and whether there was
// one before, whose answer has not come. The key of that one may be there, or come to
// be there. It would keep a share that nobody uses for as long as the lease lives. So
// the same incarnation is registered again, not another: its life has not begun, for
// nothing is issued before the listing that is the answer.
func (p *membership) attemptOf(l *lease) (a *incarnation, again bool) {
	if p.attempt != nil && p.attempt.lease == l.id {
		p.attempt.value.Attempt++ // no two write the same value
		return p.attempt, true
	}
	i := p.newIncarnation(short(p.s.o.Name)+"."+rand.Text(), l)
	p.attempt = &i
	return &i, false
}

// written reads what was found under the key of an incarnation.
func (i *incarnation) written(r *etcdserverpb.ResponseOp) error {
	kv := keyIn(r)
	if kv.Lease != int64(i.lease) {
		return fmt.Errorf("its lease is %x, not %x", kv.Lease, int64(i.lease))
	}
	i.value, i.created, i.keyAt = quota.Instance{ID: i.id}, kv.CreateRevision, kv.CreateRevision
	return json.Unmarshal(kv.Value, (*protocol.Incarnation)(&i.value))
}

// announcedStart returns from when this instance shall take part, far enough ahead
// that all others know by then, and how many others there are.
func (p *membership) announcedStart(ctx context.Context) (from time.Time, others int64, err error) {
	r, err := p.s.kv.Txn(ctx).Then(clientv3.OpGet(p.s.keys.Policy(p.provider)), p.countInstances()).Commit()
	if err != nil {
		return from, 0, classify(ctx, "read the policy of "+p.provider, err)
	}
	others = r.Responses[1].GetResponseRange().Count
	if st := stored(p.provider, keyIn(r.Responses[0])); st.Revision != 0 && st.Problem == nil {
		from = startAmong(int(others)+1, p.s.o.Clock.Wall(), &st.Policy)
	}
	return from, others, nil
}

// duplicates has the first membership of this process in each provider of all clusters and
// prefixes, to find a second one, of another session. That is legal, and most often a
// mistake: each instance has a share of its own, and an idle one wastes it.
var duplicates sync.Map

// noteRegistered notes that the membership is registered, and warns once if another
// session has an instance of the provider.
func (p *membership) noteRegistered(cluster uint64) {
	found, _ := duplicates.LoadOrStore(fmt.Sprint(cluster, p.s.keys.Provider(p.provider)), p)
	first, ok := found.(*membership)
	if !ok || first == p {
		return
	}
	name := func(p *membership) string { return fmt.Sprintf("%s (%s)", p.s.o.Name, p.current().id) }
	first.duplicate.Do(func() {
		p.s.o.Logger.Warn("this process has two instances of one provider, by two sessions; each has a share of its own, also while it is idle: use one session",
			"provider", p.provider, "first", name(first), "second", name(p))
	})
}

// noteClosed notes that the membership is closed.
func (p *membership) noteClosed() {
	duplicates.Range(func(key, _ any) bool {
		duplicates.CompareAndDelete(key, p)
		return true
	})
}
