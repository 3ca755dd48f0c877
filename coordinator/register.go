package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// attempt is a registration that was sent and whose answer has not come: the key
// may be there, or may come to be there, and would keep a share that nobody uses
// for as long as the lease lives. So the same incarnation is registered again,
// not another: its life has not begun, for nothing is issued before the listing
// that is the answer.
type attempt struct {
	lease clientv3.LeaseID
	id    string
}

// register makes a new incarnation, or finds the one whose answer was lost, and
// starts the history.
func (p *place) register(ctx context.Context, l *lease) error {
	s := p.s
	from, err := p.announcedStart(ctx)
	if err != nil {
		return err
	}
	id, again := p.attemptOf(l)
	key := s.keys.instance(p.provider, id)
	i := quota.Instance{
		ID: id, Name: s.o.Name, Host: s.host[:min(len(s.host), quota.MaxNameBytes)], PID: os.Getpid(), Version: Version,
		Weight: max(1, s.o.Weight), Started: s.started, From: from,
	}
	value, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("coordinator: register: %w", err)
	}
	sent := s.o.Clock.Now()
	put, list := clientv3.OpPut(key, string(value), clientv3.WithLease(l.id)), clientv3.OpGet(s.keys.provider(p.provider), clientv3.WithPrefix())
	c, done := s.bounded(ctx)
	defer done()
	r, err := s.client.Txn(c).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(put, list).Else(list).Commit()
	if err != nil {
		return classify(ctx, "register as an instance of "+p.provider, err)
	}
	kvs, created := r.Responses[len(r.Responses)-1].GetResponseRange().Kvs, r.Header.Revision
	if !r.Succeeded {
		if created, err = written(kvs, key, l, &i); err != nil || !again {
			return errors.Join(fmt.Errorf("coordinator: register: %s is there already", key), err)
		}
	}
	p.attempt = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.id, p.value, p.created, p.listed = key, id, i, created, created
	p.listLocked(sent, r.Header.Revision, r.Header.ClusterId, kvs)
	return nil
}

// attemptOf returns the incarnation to register under a lease, and whether that
// was tried before.
func (p *place) attemptOf(l *lease) (id string, again bool) {
	if p.attempt != nil && p.attempt.lease == l.id {
		return p.attempt.id, true
	}
	p.s.mu.Lock()
	p.s.mu.openings++
	id = fmt.Sprintf("%s.%x.%d", short(p.s.o.Name), int64(l.id), p.s.mu.openings)
	p.s.mu.Unlock()
	p.attempt = &attempt{l.id, id}
	return id, false
}

// written finds the instance under its key in a listing, and returns the key's
// create revision.
func written(kvs []*mvccpb.KeyValue, key string, l *lease, into *quota.Instance) (created int64, err error) {
	for _, kv := range kvs {
		if string(kv.Key) != key {
			continue
		}
		if kv.Lease != int64(l.id) {
			return 0, fmt.Errorf("its lease is %x, not %x", kv.Lease, int64(l.id))
		}
		found := quota.Instance{ID: into.ID}
		if err := json.Unmarshal(kv.Value, &found); err != nil {
			return 0, err
		}
		*into = found
		return kv.CreateRevision, nil
	}
	return 0, errors.New("it is not listed")
}

// announcedStart returns from when this instance shall take part: far enough
// ahead that all others know by then.
func (p *place) announcedStart(ctx context.Context) (time.Time, error) {
	c, done := p.s.bounded(ctx)
	defer done()
	r, err := p.s.client.Get(c, p.s.keys.policy(p.provider))
	if err != nil {
		return time.Time{}, classify(ctx, "read the policy of "+p.provider, err)
	}
	if len(r.Kvs) == 0 {
		return time.Time{}, nil
	}
	st := stored(p.provider, r.Kvs[0].Value, r.Kvs[0].ModRevision)
	if st.Problem != nil {
		return time.Time{}, nil
	}
	return firstWindow(p.s.o.Clock.Wall(), &st.Policy), nil
}
