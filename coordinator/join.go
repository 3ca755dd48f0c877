package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session"
)

// Registrations and listings go in batches, one after the other, so that what a session
// has under way at etcd does not grow with its providers. A failed one is tried again after
// the session's back-off.
const (
	// batchJoins bounds the memberships of a batch: each takes four operations of a
	// transaction.
	batchJoins = etcdcall.MaxOps / 4
	// leastPage is how many keys of a provider a full batch reads at least.
	leastPage = 64
	// mostAlone bounds the memberships that list page by page at once.
	mostAlone = 4
)

// joining is a membership in a batch.
type joining struct {
	*session.Joining
	p    *membership
	more bool // there are more keys than were listed with the batch's, or they are too large for that
}

// signal has a channel hold one.
func signal(one chan<- struct{}) {
	select {
	case one <- struct{}{}:
	default:
	}
}

// join registers and lists memberships until Close.
func (s *Session) join() {
	var wait backoff
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		again := false
		select {
		case <-s.ctx.Done():
			return
		case <-s.joins:
		case <-retry.C:
			again = true
		}
		for {
			l, batch, failing := s.nextBatch(again)
			if len(batch) == 0 {
				if failing {
					retry.Reset(jitter(wait.longer()))
				}
				break
			}
			if again = false; s.joinBatch(l, batch) {
				wait.reset()
			}
		}
	}
}

// nextBatch takes the next memberships, which do not end before their part in the batch does.
func (s *Session) nextBatch(again bool) (l session.Lease, batch []*joining, failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, failing := s.mu.NextBatch(batchJoins, again)
	for _, j := range next {
		p := s.mu.memberships[j.Member.Provider]
		p.parts.Add(1)
		batch = append(batch, &joining{Joining: j, p: p})
	}
	return s.mu.Lease(), batch, failing
}

// joinBatch registers and lists a batch. It returns false if all have failed.
func (s *Session) joinBatch(l session.Lease, batch []*joining) (ok bool) {
	for _, j := range batch {
		if j.Fresh {
			j.Incarnation = j.p.attemptOf(l)
		}
	}
	err := s.registerAll(l, batch)
	if len(batch) > 1 && errors.Is(err, ErrPermission) { // of one of them
		for _, j := range batch {
			j.Err = s.registerAll(l, []*joining{j})
		}
		err = nil
	}
	for _, j := range batch {
		j.Err = cause.Together(err, j.Err)
		ok = ok || j.Err == nil
		if j.Err == nil && j.more {
			s.alone(j)
		} else {
			s.finish(j)
		}
	}
	return ok
}

// alone has a membership of a batch list its keys by itself, a few at a time.
func (s *Session) alone(j *joining) {
	s.wg.Go(func() {
		select {
		case s.few <- struct{}{}:
			j.All, j.Listing, j.Err = j.p.list(j.p.ctx, j.Listing)
			<-s.few
		case <-j.p.ctx.Done():
			j.Err = j.p.ctx.Err()
		}
		s.finish(j)
	})
}

// registerAll writes the keys of a batch, with their first reports, and lists what each
// provider has then, in one transaction. A key that is found is that of an attempt whose
// answer was lost; it is listed.
func (s *Session) registerAll(l session.Lease, batch []*joining) error {
	ctx, done := s.bounded(s.ctx)
	defer done()
	if err := s.announceStarts(ctx, batch); err != nil {
		return err
	}
	batch = slices.DeleteFunc(slices.Clone(batch), func(j *joining) bool { return j.Err != nil })
	// This ends: what a transaction finds in place of what it expected is expected next. Of a membership that
	// is so at most twice: others came before the first, and its key is there already.
	for len(batch) > 0 {
		left, err := s.commitJoins(ctx, l, batch)
		if etcdcall.TooLarge(err) && !batch[0].more { // the answer is lost
			for _, j := range batch {
				j.more = true
			}
			continue
		}
		if err != nil {
			return err
		}
		batch = left
	}
	return nil
}

// commitJoins sends the transaction of a batch. It returns those that are to be tried again.
func (s *Session) commitJoins(ctx context.Context, l session.Lease, batch []*joining) (left []*joining, err error) {
	var when []clientv3.Cmp
	var then, other []clientv3.Op
	limit := max(leastPage, etcdcall.PageKeys/len(batch))
	for _, j := range batch {
		when = append(when, lives(&j.Incarnation))
		none, unless := j.p.unissued(&j.Incarnation)
		other = append(append(other, clientv3.OpGet(j.Key)), unless...)
		if j.Fresh {
			put, err := putKey(&j.Incarnation, clientv3.WithLease(clientv3.LeaseID(l.ID)))
			report, err2 := json.Marshal(j.p.reportAt(s.o.Clock.Now()))
			if err := errors.Join(err, err2); err != nil {
				return nil, err
			}
			when = append(when, none...)
			then = append(then, put, clientv3.OpPut(s.keys.Report(j.p.Provider, j.ID), string(report), clientv3.WithLease(clientv3.LeaseID(l.ID))),
				clientv3.OpPut(s.keys.Issuer(j.p.Provider, j.ID), ""))
		}
		read := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(int64(limit))}
		if j.more {
			read = append(read, clientv3.WithCountOnly())
		}
		then = append(then, clientv3.OpGet(s.keys.Provider(j.p.Provider), read...))
	}
	r, err := s.kv.Txn(ctx).If(when...).Then(then...).Else(other...).Commit()
	if etcdcall.TooLarge(err) {
		return nil, err
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) { // whoever renews it finds that out at once
		signal(s.renewals)
		return nil, session.ErrLease
	}
	if err != nil {
		return nil, classify(ctx, "register as an instance of "+batch[0].p.Provider+others(len(batch)-1), err)
	}
	if !r.Succeeded {
		for n := len(r.Responses) / len(batch); len(batch) > 0; batch = batch[1:] {
			if j := batch[0]; j.found(r.Responses[:n]) {
				left = append(left, j)
			}
			r.Responses = r.Responses[n:]
		}
		return left, nil
	}
	var revived []clientv3.Op
	responses := r.Responses
	for _, j := range batch {
		j.Revision, j.Cluster = r.Header.Revision, r.Header.ClusterId
		if j.Fresh {
			j.Created = j.Revision
			responses = responses[3:]
		}
		listed := responses[0].GetResponseRange()
		responses = responses[1:]
		for _, kv := range listed.Kvs {
			j.All, revived = append(j.All, s.parse(j.p.Provider, kv, false)), append(revived, deletesRevived(&j.Listing, kv)...)
		}
		j.more = j.more || listed.More
	}
	if len(revived) > 0 {
		_, err = s.kv.Txn(ctx).Then(revived...).Commit()
	}
	return nil, err
}

// others says how many providers a message does not name.
func others(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d other providers", n)
}

// found takes what a transaction has found in place of what it expected: the key, and whether
// there are others, as unissued names them. It reports whether to try again.
func (j *joining) found(all []*etcdserverpb.ResponseOp) (again bool) {
	kv, others := etcdcall.KeyIn(all[0]), all[1].GetResponseRange().Count+all[2].GetResponseRange().Count > 0
	switch {
	case !j.Fresh && kv.CreateRevision != j.Created:
		j.Err = session.ErrGone
	case !j.Fresh:
	case kv.ModRevision > 0: // the same, of an attempt for something new
		if err := readWritten(&j.Incarnation, kv); err != nil {
			j.Err = cause.Together(fmt.Errorf("coordinator: register: %s is there already", j.Key), err)
		}
		j.Fresh = false
	case others && j.Value.First:
		j.Value.First, j.Value.From = false, j.Start
	case others: // its key was there, and is gone
		j.Err = session.ErrGone
	}
	return j.Err == nil
}

// countInstances asks how many instances a provider has.
func (s *Session) countInstances(provider string) clientv3.Op {
	return clientv3.OpGet(s.keys.Instances(provider), clientv3.WithPrefix(), clientv3.WithCountOnly())
}

// announceStarts sets from when each of a batch that registers shall take part, far enough
// ahead that all others know by then. Without others it may be the first.
func (s *Session) announceStarts(ctx context.Context, batch []*joining) error {
	var ops []clientv3.Op
	for _, j := range batch {
		if j.Fresh {
			ops = append(ops, clientv3.OpGet(s.keys.Policy(j.p.Provider)), s.countInstances(j.p.Provider))
		}
	}
	if len(ops) == 0 {
		return nil
	}
	r, err := s.kv.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return classify(ctx, "read the policy of "+batch[0].p.Provider+others(len(batch)-1), err)
	}
	responses := r.Responses
	for _, j := range batch {
		if !j.Fresh {
			continue
		}
		e := session.Admission{Joining: j.Joining, Keys: responses[1].GetResponseRange().Count}
		kv := etcdcall.KeyIn(responses[0])
		if st := protocol.ReadStored(j.p.Provider, kv.Value, kv.ModRevision); st.Revision != 0 && st.Problem == nil {
			e.Policy = &st.Policy
		}
		s.step(e)
		responses = responses[2:]
	}
	return nil
}

// finish ends a membership's part in a batch.
func (s *Session) finish(j *joining) {
	p := j.p
	defer p.parts.Done()
	p.carry(j.Err == nil && p.attempt != nil) // before the first view, by which callers that wait are judged
	s.mu.Lock()
	if j.Err == nil || errors.Is(j.Err, session.ErrGone) {
		p.attempt = nil
	}
	s.stepLocked(session.JoinEnded{Joining: j.Joining})
	registered := p.Follows()
	s.mu.Unlock()
	if registered {
		p.lend()
		p.noteRegistered(j.Cluster)
		signal(s.newcomers)
	} else {
		signal(s.joins) // for a retry, or to list again
	}
}
