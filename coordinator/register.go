package coordinator

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session"
)

// lives is the condition that the key of an incarnation is still there.
func lives(i *session.Incarnation) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(i.Key), "=", i.Created)
}

// putKey is the operation that writes the key of an incarnation.
func putKey(i *session.Incarnation, o ...clientv3.OpOption) (clientv3.Op, error) {
	b, err := json.Marshal(protocol.Incarnation(i.Value))
	return clientv3.OpPut(i.Key, string(b), o...), err
}

// current returns the incarnation in force.
func (p *membership) current() session.Incarnation {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.Own()
}

// newIncarnation returns this process as a new incarnation under a lease.
func (p *membership) newIncarnation(l session.Lease) session.Incarnation {
	s := p.s
	id := short(s.o.Name) + "." + rand.Text()
	return session.Incarnation{ID: id, Key: s.keys.Instance(p.Provider, id), Lease: l.ID, Value: protocol.Instance{
		ID: id, Name: s.o.Name, Host: s.host, PID: os.Getpid(), Version: buildinfo.Version(),
		Started: s.started,
	}}
}

// attemptOf returns the next attempt to register under a lease. If the answer of the one
// before has not come, its key may be there, or come to be there. It would keep a share that
// nobody uses for as long as the lease lives. So the same incarnation is registered again,
// not another: its life has not begun, for nothing is issued before the listing that is the
// answer.
func (p *membership) attemptOf(l session.Lease) session.Incarnation {
	if p.attempt != nil && p.attempt.Lease == l.ID {
		p.attempt.Value.Attempt++ // no two write the same value
		return *p.attempt
	}
	i := p.newIncarnation(l)
	p.attempt = &i
	return i
}

// readWritten reads what was found under the key of an incarnation.
func readWritten(i *session.Incarnation, kv *mvccpb.KeyValue) error {
	if kv.Lease != i.Lease {
		return fmt.Errorf("its lease is %x, not %x", kv.Lease, i.Lease)
	}
	i.Value, i.Created = protocol.Instance{ID: i.ID}, kv.CreateRevision
	return json.Unmarshal(kv.Value, (*protocol.Incarnation)(&i.Value))
}

// duplicates has the first membership of this process in each provider of all clusters and
// prefixes, to find a second one, of another session. That is legal, and most often a
// mistake: each instance has a share of its own, and an idle one wastes it.
var duplicates sync.Map

// noteRegistered notes that the membership is registered, and warns once if another
// session has an instance of the provider.
func (p *membership) noteRegistered(cluster uint64) {
	found, _ := duplicates.LoadOrStore(fmt.Sprint(cluster, p.s.keys.Provider(p.Provider)), p)
	first, ok := found.(*membership)
	if !ok || first == p {
		return
	}
	name := func(p *membership) string { return fmt.Sprintf("%s (%s)", p.s.o.Name, p.current().ID) }
	first.duplicate.Do(func() {
		p.s.o.Logger.Warn("this process has two instances of one provider, by two sessions; each has a share of its own, also while it is idle: use one session",
			"provider", p.Provider, "first", name(first), "second", name(p))
	})
}

// noteClosed notes that the membership is closed.
func (p *membership) noteClosed() {
	duplicates.Range(func(key, _ any) bool {
		duplicates.CompareAndDelete(key, p)
		return true
	})
}
