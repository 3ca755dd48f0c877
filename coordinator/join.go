package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
)

// Registrations and listings go in batches, one after the other, so that what a session
// has under way at etcd does not grow with its providers. A failed one is tried again after
// the session's back-off.
const (
	// batchJoins bounds the memberships of a batch: each takes four operations of a
	// transaction.
	batchJoins = maxOps / 4
	// leastPage is how many keys of a provider a full batch reads at least.
	leastPage = 64
	// joinTries bounds the transactions of a batch that finds keys it did not expect.
	joinTries = 3
	// mostAlone bounds the memberships that list page by page at once, or continue a
	// process's instance.
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
	p            *membership
	m            listing    // of the key that is to be written, or is there
	fresh, again bool       // the key is to be written; an answer was lost before
	before       int64      // how many others there were
	from         time.Time  // its beginning, if it is not the first
	all, between []view.Key // listed; the events between a history's beginning and the listing
	storm, more  bool       // very many others have joined meanwhile; there are more keys
	err          error
}

// wake has the session look for memberships that need something.
func (s *Session) wake() {
	select {
	case s.joins <- struct{}{}:
	default:
	}
}

// join registers and lists memberships until Close.
func (s *Session) join() {
	var wait backoff
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.joins:
		case <-retry.C:
			s.tryAgain()
		}
		for {
			l, err := s.awaitLease(s.ctx)
			if err != nil {
				return
			}
			batch := s.nextBatch()
			if len(batch) == 0 {
				break
			}
			if s.joinBatch(l, batch) {
				wait.reset()
			}
		}
		if s.failing() {
			retry.Reset(jitter(wait.longer()))
		}
	}
}

// tryAgain has those tried again that have failed.
func (s *Session) tryAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mu.memberships {
		p.failed = false
	}
}

// failing reports whether a membership waits to be tried again.
func (s *Session) failing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mu.memberships {
		if p.failed {
			return true
		}
	}
	return false
}

// nextBatch takes memberships that need something. Each has a line that has begun, whose
// events are kept for it from now on: before anything of it is written.
func (s *Session) nextBatch() (batch []*joining) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.allLocked() {
		if p.stage == following || p.busy || p.line == nil || !p.line.begun || p.failed || p.silent {
			continue
		}
		p.busy, p.failed, p.early, p.gen, p.attached = true, false, nil, p.line.gen, p.line.Position()
		p.parts.Add(1)
		batch = append(batch, &joining{p: p, fresh: p.stage == toRegister, m: listing{incarnation: p.incarnation}})
		if len(batch) == batchJoins {
			break
		}
	}
	return batch
}

// joinBatch registers and lists a batch. It returns false if all have failed.
func (s *Session) joinBatch(l *lease, batch []*joining) (ok bool) {
	var together []*joining
	for _, j := range batch {
		j.p.opened.Do(j.p.openState)
		if j.fresh && j.p.before != nil {
			s.alone(j, func() { j.p.continueBefore(j, l) })
			ok = true
			continue
		}
		if j.fresh {
			j.m.incarnation, j.again = j.p.attemptOf(l)
		}
		together = append(together, j)
	}
	if len(together) == 0 {
		return ok
	}
	err := s.registerAll(l, together)
	if len(together) > 1 && (errors.Is(err, ErrPermission) || tooLarge(err)) { // of one of them
		for _, j := range together {
			j.err = s.registerAll(l, []*joining{j})
		}
		err = nil
	}
	for _, j := range together {
		if j.err = errors.Join(err, j.err); j.err == nil && (j.more || j.storm) {
			ok = true
			s.alone(j, j.listPages)
		} else {
			ok = ok || j.err == nil
			s.finish(j)
		}
	}
	return ok
}

// alone has a membership of a batch go on by itself, a few at a time.
func (s *Session) alone(j *joining, do func()) {
	s.wg.Go(func() {
		select {
		case s.few <- struct{}{}:
			do()
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
	for range joinTries {
		if len(batch) == 0 {
			return nil
		}
		left, err := s.commitJoins(ctx, l, batch)
		if tooLarge(err) { // the answer is lost
			for _, j := range batch {
				j.again, j.p.large = true, len(batch) == 1
			}
			if len(batch) == 1 {
				continue
			}
		}
		if err != nil {
			return err
		}
		batch = left
	}
	return errors.New("coordinator: register: others write these keys too")
}

// commitJoins sends the transaction of a batch. It returns those that are to be tried again.
func (s *Session) commitJoins(ctx context.Context, l *lease, batch []*joining) (left []*joining, err error) {
	var when []clientv3.Cmp
	var then, other []clientv3.Op
	limit := max(leastPage, pageKeys/len(batch))
	for _, j := range batch {
		when = append(when, j.m.lives())
		none, unless := j.p.unissued(&j.m.incarnation)
		other = append(append(other, clientv3.OpGet(j.m.key)), unless...)
		if j.fresh {
			put, err := j.m.putKey(clientv3.WithLease(l.id))
			report, err2 := j.p.reportNow()
			if err := errors.Join(err, err2); err != nil {
				return nil, err
			}
			when = append(when, none...)
			then = append(then, put, clientv3.OpPut(s.keys.Report(j.p.provider, j.m.id), string(report), clientv3.WithLease(l.id)),
				clientv3.OpPut(s.keys.Issuer(j.p.provider, j.m.id), ""))
		}
		read := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(int64(limit))}
		if j.p.large {
			read = append(read, clientv3.WithCountOnly())
		}
		then = append(then, clientv3.OpGet(s.keys.Provider(j.p.provider), read...))
	}
	r, err := s.kv.Txn(ctx).If(when...).Then(then...).Else(other...).Commit()
	if tooLarge(err) {
		return nil, err
	}
	if err != nil {
		return nil, classify(ctx, "register as an instance of "+batch[0].p.provider+others(len(batch)-1), err)
	}
	if !r.Succeeded {
		for n := len(r.Responses) / len(batch); len(batch) > 0; batch = batch[1:] {
			if j := batch[0]; j.found(r.Responses[:n]) == nil {
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
			j.m.created, j.m.keyAt = j.m.revision, j.m.revision
			responses = responses[3:]
		}
		listed := responses[0].GetResponseRange()
		responses = responses[1:]
		instances := listed.Count - 1
		for _, kv := range listed.Kvs {
			k := j.p.parse(kv, false)
			if k.Kind != view.Instance {
				instances--
			}
			j.all, revived = append(j.all, k), append(revived, j.m.revived(kv)...)
		}
		j.more, j.storm = listed.More || j.p.large, j.fresh && instances-j.before > stormJoins
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
// there are others, as unissued names them. It returns j.err.
func (j *joining) found(all []*etcdserverpb.ResponseOp) error {
	kv, others := keyIn(all[0]), all[1].GetResponseRange().Count+all[2].GetResponseRange().Count > 0
	switch {
	case !j.fresh && kv.CreateRevision != j.m.created:
		j.err = errGone
	case !j.fresh:
	case kv.ModRevision > 0:
		if err := j.m.written(kv); err != nil || !j.again {
			j.err = errors.Join(fmt.Errorf("coordinator: register: %s is there already", j.m.key), err)
		}
		j.fresh = false
	case others && j.m.value.First:
		j.m.value.First, j.m.value.From = false, j.from
	case others: // its key was there, and is gone
		j.err = errGone
	}
	return j.err
}

// announceStarts sets from when each of a batch that registers shall take part, far enough
// ahead that all others know by then, and how many others there are. Without others it may be
// the first.
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
		j.before = responses[1].GetResponseRange().Count
		j.err = s.seat(j.p, j.before+1)
		if st := stored(j.p.provider, keyIn(responses[0])); st.Revision != 0 && st.Problem == nil {
			j.from = startAmong(int(j.before)+1, s.o.Clock.Wall(), &st.Policy)
			j.m.value.From, j.m.value.First = j.from, j.before == 0 && !protocol.Shaped(&st.Policy) && j.p.newHere()
		}
		if j.m.value.First {
			j.m.value.From = time.Time{}
		}
		responses = responses[2:]
	}
	return nil
}

// newHere reports whether this process has not been an instance of the provider before, and
// its session has missed nothing of the store. Otherwise that nobody is there may be the
// work of a restore, which others have yet to notice.
func (p *membership) newHere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.registered && p.line != nil && p.line.gen == 0
}

// seat notes that a provider will have so many instances. It returns an error if those of
// all providers are too many then.
func (s *Session) seat(p *membership, instances int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	seats := min(instances, maxCounted)
	for _, o := range s.mu.memberships {
		if o != p {
			seats += min(max(o.seats, int64(o.tracker.Instances())), maxCounted)
		}
	}
	if p.seats = 0; seats > maxSeats && len(s.mu.memberships) > 1 {
		return fmt.Errorf("coordinator: %s: with it the providers of this session have %d instances in all, the most is %d: use fewer providers or fewer processes (docs/scaling.md)",
			p.provider, seats, maxSeats)
	}
	p.seats = instances
	return nil
}

// listPages lists the keys of a provider that has more than fit into the batch's
// transaction, or that very many have just joined.
func (j *joining) listPages() {
	if j.storm {
		if j.err = j.p.awaitCalm(j.p.ctx); j.err != nil {
			return
		}
		j.m = listing{incarnation: j.m.incarnation}
	}
	j.all, j.m, j.err = j.p.list(j.p.ctx, j.m)
}

// finish begins the history of a membership with its listing, and with the events since.
func (s *Session) finish(j *joining) {
	p := j.p
	defer p.parts.Done()
	s.mu.Lock()
	p.finishLocked(j)
	registered := p.stage == following
	s.mu.Unlock()
	if registered {
		p.lend()
		p.noteRegistered(j.m.cluster)
		p.keep()
		select {
		case s.newcomers <- struct{}{}:
		default:
		}
	} else {
		s.wake() // for a retry, or to list again
	}
}

func (p *membership) finishLocked(j *joining) {
	early := append([][]view.Key{j.between}, p.early...)
	p.busy, p.early = false, nil
	if j.err == nil || errors.Is(j.err, errGone) {
		p.attempt, p.before = nil, nil
	}
	if j.err != nil {
		if p.failed = true; errors.Is(j.err, errGone) {
			p.stage = toRegister
		}
		p.tellLocked(j.err)
		return
	}
	p.incarnation, p.opens, p.stage = j.m.incarnation, 0, toList
	if p.silent || p.gen != p.line.gen {
		return // it is closed, or a gap was found meanwhile
	}
	if j.m.cluster != p.line.Cluster() || j.m.revision < p.attached {
		p.failed = true
		p.line.gapLocked("a provider was listed in another store than the one that is watched")
		return
	}
	if p.lease != p.s.leaseLocked() {
		p.loseLocked(errLease)
		return
	}
	p.stage, p.registered = following, true
	if p.untold = 0; j.fresh {
		p.untold = p.created
	}
	p.listLocked(j.m, j.all)
	for _, keys := range early { // an event that comes again is not the same change twice
		p.takeLocked(keys)
	}
}
