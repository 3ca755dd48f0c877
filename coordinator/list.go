package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// mark is a write of this instance's report: nobody else writes it, and nobody but
// operators follows it. A history begins with everything under the provider as it
// was at that revision. It is read page by page, each on the condition that the
// report is still that one: so all pages are of one line of revisions, however long
// it takes, and a page that fails is asked for again by itself. Nor is etcd kept from
// its writes meanwhile, on which everybody's linearizable reads wait.
type mark struct {
	id       string
	key      string // the instance's
	lease    clientv3.LeaseID
	created  int64 // revision of the key's first write
	newest   int64 // revision of the newest report, as far as is known
	revision int64 // the same, if everything is listed as of that; 0 if another is to be written
	demand   int64 // that it tells
	cluster  uint64
	sent     clock.Instant // when the report was sent
}

// pageKeys bounds one page, to about 100 kB.
const pageKeys = 250

// errMoved says that a mark's report is not the newest any more, or that the store
// was put back to before it.
var errMoved = errors.New("this instance's report has changed meanwhile")

// list reads everything under the provider as it was at the mark. If there is none
// yet, or if that is no longer to be had, it makes one, which it returns.
func (p *place) list(ctx context.Context, m mark) ([]*mvccpb.KeyValue, mark, error) {
	var wait backoff
	for {
		var kvs []*mvccpb.KeyValue
		var err error
		if m.revision == 0 {
			err = p.touch(ctx, &m)
		}
		if err == nil {
			kvs, err = p.pages(ctx, m)
		}
		if err == nil || !outdated(err) {
			return kvs, m, err
		}
		if m.revision = 0; !wait.sleep(ctx) {
			return nil, m, ctx.Err()
		}
	}
}

// outdated reports whether an error of pages says that it needs another mark.
func outdated(err error) bool {
	return errors.Is(err, errMoved) || errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev)
}

// pages reads one page after the other. What it has read it keeps: an etcd that
// answers late, because a large fleet joins at once, must not do all of it again.
func (p *place) pages(ctx context.Context, m mark) (kvs []*mvccpb.KeyValue, err error) {
	var wait backoff
	from, end := p.s.keys.provider(p.provider), clientv3.GetPrefixRangeEnd(p.s.keys.provider(p.provider))
	for {
		page, more, err := p.page(ctx, m, from, end)
		if err != nil {
			if outdated(err) || ctx.Err() != nil {
				return nil, err
			}
			p.trouble(classify(ctx, "list "+p.provider, err))
			if !wait.sleep(ctx) {
				return nil, ctx.Err()
			}
			continue
		}
		wait.reset()
		if kvs = append(kvs, page...); !more {
			return kvs, nil
		}
		from = string(page[len(page)-1].Key) + "\x00"
	}
}

// page reads one page.
func (p *place) page(ctx context.Context, m mark, from, end string) (kvs []*mvccpb.KeyValue, more bool, err error) {
	c, done := p.s.bounded(ctx)
	defer done()
	r, err := p.s.client.Txn(c).
		If(clientv3.Compare(clientv3.ModRevision(p.s.keys.report(p.provider, m.id)), "=", m.revision)).
		Then(clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithRev(m.revision), clientv3.WithLimit(pageKeys))).
		Commit()
	if err != nil {
		return nil, false, err
	}
	if !r.Succeeded {
		return nil, false, errMoved
	}
	got := r.Responses[0].GetResponseRange()
	return got.Kvs, got.More && len(got.Kvs) > 0, nil
}

// touch writes the report of a mark, on the condition that the newest is the one
// that it knows: so none that was sent before can be committed after it. If that
// fails it finds out which is the newest.
func (p *place) touch(ctx context.Context, m *mark) error {
	put, demand, err := p.reportNow(m.id, m.lease)
	if err != nil {
		return err
	}
	m.sent, m.demand = p.s.o.Clock.Now(), demand
	c, done := p.s.bounded(ctx)
	defer done()
	report := p.s.keys.report(p.provider, m.id)
	r, err := p.s.client.Txn(c).
		If(clientv3.Compare(clientv3.CreateRevision(m.key), "=", m.created), clientv3.Compare(clientv3.ModRevision(report), "=", m.newest)).
		Then(put).
		Else(clientv3.OpGet(m.key, clientv3.WithKeysOnly()), clientv3.OpGet(report, clientv3.WithKeysOnly())).Commit()
	if err != nil {
		return classify(ctx, "list "+p.provider, err)
	}
	if !r.Succeeded {
		if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) == 0 || kvs[0].CreateRevision != m.created {
			return errGone
		}
		m.newest = 0
		for _, kv := range r.Responses[1].GetResponseRange().Kvs {
			m.newest = kv.ModRevision
		}
		return errMoved
	}
	m.newest, m.revision, m.cluster = r.Header.Revision, r.Header.Revision, r.Header.ClusterId
	return nil
}

// reportNow returns the write of a report of this instant, and the demand in it.
func (p *place) reportNow(id string, l clientv3.LeaseID) (put clientv3.Op, demand int64, err error) {
	r := p.sink.Report(p.s.o.Clock.Now())
	r.Name = p.s.o.Name
	b, err := json.Marshal(&r)
	if err != nil {
		return put, 0, fmt.Errorf("coordinator: report: %w", err)
	}
	return clientv3.OpPut(p.s.keys.report(p.provider, id), string(b), clientv3.WithLease(l)), r.Demand, nil
}

// listIfNeeded starts the history anew, under the same incarnation, after a gap.
func (p *place) listIfNeeded(ctx context.Context) error {
	p.mu.Lock()
	relist, m := p.relist, mark{id: p.id, key: p.key, lease: p.lease, created: p.created, newest: p.published.Newest()}
	p.mu.Unlock()
	if !relist {
		return nil
	}
	kvs, m, err := p.list(ctx, m)
	if err != nil {
		return err
	}
	p.s.o.Logger.Warn("history has a gap, starting anew", "provider", p.provider, "revision", m.revision)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listLocked(m, kvs)
	return nil
}
