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
)

// incarnation is this process as one instance of a provider.
type incarnation struct {
	id      string
	key     string // in etcd; empty while there is none
	lease   clientv3.LeaseID
	created int64             // revision at which it registered; 0 before
	value   protocol.Instance // as written there
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

// current returns the incarnation in force.
func (p *membership) current() incarnation {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.incarnation
}

// newIncarnation returns this process as a new incarnation under a lease.
func (p *membership) newIncarnation(l *lease) incarnation {
	s := p.s
	id := short(s.o.Name) + "." + rand.Text()
	return incarnation{id: id, key: s.keys.Instance(p.provider, id), lease: l.id, value: protocol.Instance{
		ID: id, Name: s.o.Name, Host: s.host, PID: os.Getpid(), Version: buildinfo.Version(),
		Started: s.started,
	}}
}

// attemptOf returns the next attempt to register under a lease. If the answer of the one
// before has not come, its key may be there, or come to be there. It would keep a share that
// nobody uses for as long as the lease lives. So the same incarnation is registered again,
// not another: its life has not begun, for nothing is issued before the listing that is the
// answer.
func (p *membership) attemptOf(l *lease) incarnation {
	if p.attempt != nil && p.attempt.lease == l.id {
		p.attempt.value.Attempt++ // no two write the same value
		return *p.attempt
	}
	i := p.newIncarnation(l)
	p.attempt = &i
	return i
}

// written reads what was found under the key of an incarnation.
func (i *incarnation) written(kv *mvccpb.KeyValue) error {
	if kv.Lease != int64(i.lease) {
		return fmt.Errorf("its lease is %x, not %x", kv.Lease, int64(i.lease))
	}
	i.value, i.created = protocol.Instance{ID: i.id}, kv.CreateRevision
	return json.Unmarshal(kv.Value, (*protocol.Incarnation)(&i.value))
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
