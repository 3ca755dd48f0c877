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
	p.state, p.before = f, before
}

// continues reports whether a membership that registers is to continue an instance.
func (j *joining) continues() bool { return j.fresh && j.p.before != nil }

// resume begins where the process before was whose key is written now, if the store is the
// one that it followed.
func (j *joining) resume(ctx context.Context) {
	b, f := j.p.before, j.p.state
	if !b.Of(j.m.cluster, j.m.revision) {
		j.abandon(ctx, "etcd was restored")
		return
	}
	b.Key = j.m.revision // should the listing fail
	j.m.begin, _ = b.Begin(f.host)
	j.m.since = f.locked.Mono - (f.host - j.m.begin.At)
	j.more = true
}

// abandon removes the instance of the process before. The membership is in the next batch
// again, and joins as new.
func (j *joining) abandon(ctx context.Context, why string) {
	p, own := j.p, j.m
	_, err := p.s.kv.Txn(ctx).If(own.lives()).
		Then(clientv3.OpDelete(own.key), clientv3.OpDelete(p.s.keys.Report(p.provider, own.id))).Commit()
	if j.m, j.more = (listing{}), false; err != nil {
		j.err = classify(ctx, "remove "+own.id, err)
		return
	}
	p.before, p.attempt = nil, nil // no ID is written twice
	p.s.o.Logger.Info("the instance of the process before cannot be continued, joining as a new one", "provider", p.provider, "instance", own.id, "because", why)
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

// keep writes how far this instance is into the state file, once the watch has told its key.
func (p *membership) keep() {
	p.s.mu.Lock()
	if p.stage != following || p.state == nil || p.silent || p.until != 0 || p.line.Position() < p.created {
		p.s.mu.Unlock()
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
	p.s.mu.Unlock()
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
