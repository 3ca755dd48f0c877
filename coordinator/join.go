package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
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
	// joinTries bounds the transactions of a batch that finds keys it did not expect.
	joinTries = 3
	// mostAlone bounds the memberships that list page by page at once.
	mostAlone = 4
)

// stage says what a membership needs.
type stage int

const (
	toRegister stage = iota
	toList           // its key is there
	following
)

// joining is a membership in a batch.
type joining struct {
	p     *membership
	m     listing    // of the key that is to be written, or is there
	fresh bool       // the key is to be written
	from  time.Time  // its beginning, if it is not the first
	all   []view.Key // listed
	more  bool       // there are more keys, or they are too large to be listed with others
	err   error

	// Session.mu guards these:
	early    [][]view.Key // events since the batch began, by the watch's answers
	line     *line        // the membership's when it did
	gen      int          // the line's then
	position int64        // the line's then
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

func (s *Session) nextBatch(again bool) (l *lease, batch []*joining, failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch, failing = s.mu.nextBatch(again)
	for _, j := range batch {
		j.p.parts.Add(1)
	}
	return s.mu.lease, batch, failing
}

// joinBatch registers and lists a batch. It returns false if all have failed.
func (s *Session) joinBatch(l *lease, batch []*joining) (ok bool) {
	for _, j := range batch {
		if j.fresh {
			j.m.incarnation = j.p.attemptOf(l)
		}
	}
	err := s.registerAll(l, batch)
	if len(batch) > 1 && errors.Is(err, ErrPermission) { // of one of them
		for _, j := range batch {
			j.err = s.registerAll(l, []*joining{j})
		}
		err = nil
	}
	for _, j := range batch {
		j.err = errors.Join(err, j.err)
		ok = ok || j.err == nil
		if j.err == nil && j.more {
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
			j.all, j.m, j.err = j.p.list(j.p.ctx, j.m)
			<-s.few
		case <-j.p.ctx.Done():
			j.err = j.p.ctx.Err()
		}
		s.finish(j)
	})
}

// registerAll writes the keys of a batch, with their first reports, and lists what each
// provider has then, in one transaction. A key that is found is that of an attempt whose
// answer was lost; it is listed.
func (s *Session) registerAll(l *lease, batch []*joining) error {
	ctx, done := s.bounded(s.ctx)
	defer done()
	if err := s.announceStarts(ctx, batch); err != nil {
		return err
	}
	batch = slices.DeleteFunc(slices.Clone(batch), func(j *joining) bool { return j.err != nil })
	for try := 0; len(batch) > 0; try++ {
		if try == joinTries {
			return fmt.Errorf("coordinator: register: another program writes keys under %s: give it another prefix (Options.Prefix, --prefix)", s.keys.Provider(""))
		}
		left, err := s.commitJoins(ctx, l, batch)
		if etcdcall.TooLarge(err) { // the answer is lost
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
func (s *Session) commitJoins(ctx context.Context, l *lease, batch []*joining) (left []*joining, err error) {
	var when []clientv3.Cmp
	var then, other []clientv3.Op
	limit := max(leastPage, etcdcall.PageKeys/len(batch))
	for _, j := range batch {
		when = append(when, j.m.lives())
		none, unless := j.p.unissued(&j.m.incarnation)
		other = append(append(other, clientv3.OpGet(j.m.key)), unless...)
		if j.fresh {
			put, err := j.m.putKey(clientv3.WithLease(l.id))
			report, err2 := json.Marshal(j.p.reportAt(s.o.Clock.Now()))
			if err := errors.Join(err, err2); err != nil {
				return nil, err
			}
			when = append(when, none...)
			then = append(then, put, clientv3.OpPut(s.keys.Report(j.p.provider, j.m.id), string(report), clientv3.WithLease(l.id)),
				clientv3.OpPut(s.keys.Issuer(j.p.provider, j.m.id), ""))
		}
		read := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(int64(limit))}
		if j.more {
			read = append(read, clientv3.WithCountOnly())
		}
		then = append(then, clientv3.OpGet(s.keys.Provider(j.p.provider), read...))
	}
	r, err := s.kv.Txn(ctx).If(when...).Then(then...).Else(other...).Commit()
	if etcdcall.TooLarge(err) {
		return nil, err
	}
	if err != nil {
		return nil, classify(ctx, "register as an instance of "+batch[0].p.provider+others(len(batch)-1), err)
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
		j.m.revision, j.m.cluster = r.Header.Revision, r.Header.ClusterId
		if j.fresh {
			j.m.created = j.m.revision
			responses = responses[3:]
		}
		listed := responses[0].GetResponseRange()
		responses = responses[1:]
		for _, kv := range listed.Kvs {
			j.all, revived = append(j.all, j.p.parse(kv, false)), append(revived, j.m.revived(kv)...)
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
	case !j.fresh && kv.CreateRevision != j.m.created:
		j.err = errGone
	case !j.fresh:
	case kv.ModRevision > 0: // the same, of an attempt for something new
		if err := j.m.written(kv); err != nil {
			j.err = errors.Join(fmt.Errorf("coordinator: register: %s is there already", j.m.key), err)
		}
		j.fresh = false
	case others && j.m.value.First:
		j.m.value.First, j.m.value.From = false, j.from
	case others: // its key was there, and is gone
		j.err = errGone
	}
	return j.err == nil
}

// announceStarts sets from when each of a batch that registers shall take part, far enough
// ahead that all others know by then. Without others it may be the first.
func (s *Session) announceStarts(ctx context.Context, batch []*joining) error {
	var ops []clientv3.Op
	for _, j := range batch {
		if j.fresh {
			ops = append(ops, clientv3.OpGet(s.keys.Policy(j.p.provider)), j.p.countInstances())
		}
	}
	if len(ops) == 0 {
		return nil
	}
	r, err := s.kv.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return classify(ctx, "read the policy of "+batch[0].p.provider+others(len(batch)-1), err)
	}
	responses := r.Responses
	for _, j := range batch {
		if !j.fresh {
			continue
		}
		e := admitted{joining: j, others: responses[1].GetResponseRange().Count}
		kv := etcdcall.KeyIn(responses[0])
		if st := protocol.ReadStored(j.p.provider, kv.Value, kv.ModRevision); st.Revision != 0 && st.Problem == nil {
			e.policy = &st.Policy
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
	p.carry() // before the first view, by which callers that wait are judged
	s.mu.Lock()
	s.stepLocked(joined{j})
	registered := p.stage == following
	s.mu.Unlock()
	if registered {
		p.lend()
		p.noteRegistered(j.m.cluster)
		signal(s.newcomers)
	} else {
		signal(s.joins) // for a retry, or to list again
	}
}
