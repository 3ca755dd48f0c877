package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
)

// This file is Options.StateDir: docs/protocol.md section 12 has the rule and its
// proof. If anything is missing or odd, the process joins as a new instance.

func (p *membership) openState() {
	o := &p.s.o
	if o.StateDir == "" {
		return
	}
	f, before, why := openState(o.StateDir, p.s.keys.Provider(p.provider), p.provider, o.Clock)
	if before != nil {
		if id, ok := keys.IncarnationIn(p.s.keys.Instances(p.provider), p.s.keys.Instance(p.provider, before.ID)); !ok || id != before.ID {
			before, why = nil, fmt.Errorf("%q is no incarnation", before.ID)
		}
	}
	switch {
	case f == nil:
		o.Logger.Warn("the state file cannot be used: joining as a new instance, which the next process here cannot continue",
			"provider", p.provider, "error", why)
	case before == nil:
		o.Logger.Info("no instance to continue, joining as a new one", "provider", p.provider, "because", why)
	}
	if p.state, p.before = f, before; before != nil {
		p.begin, _ = before.Begin(f.host)
	}
}

// continueBefore continues the instance of the process before, or joins as a new one.
func (p *membership) continueBefore(j *joining, l *lease) {
	var resumed bool
	if j.m, resumed, j.err = p.resume(p.ctx, l); j.err != nil {
		return
	}
	if !resumed {
		j.m.incarnation, j.again = p.attemptOf(l)
		if j.err = p.s.registerAll(l, []*joining{j}); j.err == nil && (j.more || j.storm) {
			j.listPages()
		}
		return
	}
	if j.fresh = false; j.m.begin.Revision != 0 {
		j.between, j.err = p.between(j.m.begin.Revision, j.m.revision)
	}
	if j.err != nil {
		j.m, j.err = listing{incarnation: j.m.incarnation}, nil
	}
	if j.all, j.m, j.err = p.list(p.ctx, j.m); j.m.begin.Revision == 0 {
		j.between = nil
	}
	if j.err == nil {
		p.s.o.Logger.Info("continues the instance of the process before", "provider", p.provider, "instance", j.m.id, "revision", j.m.asOf())
	}
}

// between returns the events after a revision, up to another: the session's watch has
// passed them.
func (p *membership) between(after, to int64) (keys []view.Key, err error) {
	w := p.s.newStream(p.ctx, after+1)
	defer w.close()
	overdue := time.AfterFunc(defaultTimeout, w.end)
	defer overdue.Stop()
	p.s.wg.Go(func() {
		for w.ctx.Err() == nil { // until it has caught up it gives no answer
			_ = w.RequestProgress(w.ctx)
			sleep(w.ctx, askAgain)
		}
	})
	w.open(p.s.keys.Provider(p.provider))
	for {
		r, ok := w.next()
		if !ok {
			return nil, errors.New("coordinator: the watch of the time before has ended")
		}
		if err := r.Err(); err != nil {
			return nil, err
		}
		for _, e := range r.Events {
			if e.Kv.ModRevision > to {
				return keys, nil
			}
			keys = append(keys, p.parse(e.Kv, e.Type == clientv3.EventTypeDelete))
		}
		if r.IsProgressNotify() && r.Header.Revision >= to {
			return keys, nil
		}
	}
}

// askAgain is the time between two questions how far a watch of the past is.
const askAgain = 50 * time.Millisecond

// resume continues the instance of the process before: it takes the key over to this
// process's lease and writes the report, on the condition that the key is as that
// process wrote it. If it is not, or the store was put back, ok is false, and that
// instance is removed.
func (p *membership) resume(ctx context.Context, l *lease) (m listing, ok bool, err error) {
	b := p.before
	if b == nil {
		return m, false, nil
	}
	m = listing{incarnation: p.newIncarnation(b.ID, l)}
	m.created, m.value.From, m.continued = b.Created, b.From, true
	attempt := m.incarnation
	p.attempt = &attempt // should no answer come
	r, ok, err := p.takeOver(ctx, &m)
	switch {
	case err != nil:
		return m, false, classify(ctx, "continue "+b.ID, err)
	case !ok:
		p.before, p.attempt = nil, nil // no ID is written twice
		p.s.o.Logger.Info("the instance of the process before cannot be continued, joining as a new one", "provider", p.provider,
			"instance", b.ID, "because", "its key in etcd has changed or is gone, or etcd was restored")
		return m, false, nil
	}
	m.revision, m.cluster = r.Header.Revision, r.Header.ClusterId
	m.keyAt, m.begin = m.revision, p.begin
	b.Key = m.revision // should the listing fail
	return m, true, nil
}

// takeOver writes the key and the report of the process before, if the key is as that
// process wrote it and the store is the one that it followed. Otherwise it removes them.
func (p *membership) takeOver(ctx context.Context, m *listing) (r *clientv3.TxnResponse, ok bool, err error) {
	report := p.s.keys.Report(p.provider, m.id)
	text, err := p.reportNow()
	if err != nil {
		return nil, false, err
	}
	put, err := m.putKey(clientv3.WithLease(m.lease))
	if err != nil {
		return nil, false, err
	}
	r, err = p.s.kv.Txn(ctx).If(is(m.key, p.before.Key)).
		Then(put, clientv3.OpPut(report, string(text), clientv3.WithLease(m.lease))).Commit()
	if err != nil || r.Succeeded && p.before.Of(r.Header.ClusterId, r.Header.Revision) {
		return r, err == nil, err
	}
	_, err = p.s.kv.Txn(ctx).If(m.lives()).
		Then(clientv3.OpDelete(m.key), clientv3.OpDelete(report)).Commit()
	return r, false, err
}

// checkpointLocked begins the checkpoint of an incarnation, or after a gap.
func (p *membership) checkpointLocked(m listing) {
	p.checkpoint = view.Checkpoint{ID: p.id, Cluster: m.cluster, Created: p.created, Key: p.keyAt, From: p.value.From}
	if m.begin.Revision != 0 {
		p.checkpoint.Positions = []view.Position{m.begin}
	}
}

// keep writes how far this instance is into the state file, once the watch has told its key.
func (p *membership) keep() {
	p.mu.Lock()
	if p.stage != following || p.state == nil || p.silent || p.until != 0 || p.line.Position() < p.created {
		p.mu.Unlock()
		return
	}
	position := max(p.line.Position(), p.listed)
	now, err := hostNow(p.s.o.Clock)
	c := &p.checkpoint
	if q := p.policy; q != nil {
		c.Reach = int64(q.Settle + protocol.LongestWindow(q) + 2*q.ClockError)
	}
	c.Note(view.Position{At: now, Revision: position})
	written := *c
	p.mu.Unlock()
	if err == nil {
		err = p.state.write(&written)
	}
	if failed := err != nil; p.unkept.Swap(failed) != failed && failed {
		p.s.o.Logger.Warn("the state file cannot be written: the next process here joins as a new instance", "provider", p.provider, "error", err)
	}
}

// closeState gives the state file back, when nothing is issued any more.
func (p *membership) closeState() {
	if err := p.state.close(); err != nil {
		p.s.o.Logger.Warn("the state file cannot be cleared, it stays locked until this process ends", "provider", p.provider, "error", err)
	}
}
