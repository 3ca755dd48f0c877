package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
)

// mark is a write of this instance's report, which nobody but operators follows. A history
// begins with everything under the provider as it was at that revision. It is read page by
// page, each on the condition that the report is still that one: so all pages are of one
// line of revisions, however long it takes, and a page that fails is asked for again by
// itself. etcd can write meanwhile.
type mark struct {
	incarnation
	newest   int64 // revision of the newest report, as far as is known
	revision int64 // the same, if everything is listed as of that; 0 if another is to be written
	report   []byte
	cluster  uint64
	sent     clock.Instant // when the report was sent
	begin    view.Position // where the history begins, if that is before the mark
}

func (m *mark) asOf() int64 {
	if m.begin.Revision != 0 {
		return m.begin.Revision
	}
	return m.revision
}

// made notes that the report of the mark was written.
func (m *mark) made(r *clientv3.TxnResponse) {
	m.newest, m.revision, m.cluster = r.Header.Revision, r.Header.Revision, r.Header.ClusterId
}

// errMoved says that a mark's report is not the newest any more, or that the store
// was put back to before it.
var errMoved = errors.New("this instance's report has changed meanwhile")

// list reads everything under the provider as it was at the mark. If there is none
// yet, or if that is no longer to be had, it makes one, which it returns.
func (p *membership) list(ctx context.Context, m mark) ([]view.Key, mark, error) {
	var wait backoff
	for {
		var all []view.Key
		var err error
		if m.revision == 0 {
			err = p.touch(ctx, &m)
		}
		if err == nil {
			all, err = p.pages(ctx, m)
		}
		if err == nil || !outdated(err) {
			return all, m, err
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

// pages reads one page after the other, and keeps the pages read: an etcd that
// answers late, because a large fleet joins at once, must not repeat them all. It deletes
// earlier incarnations under this lease, which a restored backup has again: their shares
// would be lost as long as the lease lives.
func (p *membership) pages(ctx context.Context, m mark) (all []view.Key, err error) {
	var revived []clientv3.Op
	folder := p.s.keys.Provider(p.provider)
	err = eachKey(folder, clientv3.GetPrefixRangeEnd(folder), func(from string, o ...clientv3.OpOption) (*pb.RangeResponse, error) {
		if err := p.tooMany(len(all)); err != nil {
			return nil, err
		}
		for wait := (backoff{}); ; {
			r, err := p.page(ctx, m, clientv3.OpGet(from, append(o, clientv3.WithRev(m.asOf()))...))
			if err == nil || outdated(err) || tooLarge(err) || ctx.Err() != nil {
				return r, err
			}
			p.trouble(classify(ctx, "list "+p.provider, err))
			if !wait.sleep(ctx) {
				return nil, ctx.Err()
			}
		}
	}, nil, func(kv *mvccpb.KeyValue) {
		all = append(all, p.parse(kv, false))
		if kv.Lease == int64(m.lease) && string(kv.Key) != m.key {
			revived = append(revived, clientv3.OpDelete(string(kv.Key)))
		}
	})
	if err == nil && len(revived) > 0 {
		_, err = p.s.kv.Txn(ctx).Then(revived...).Commit()
	}
	return all, err
}

// tooMany returns an error if a provider has more keys than an instance keeps.
func (p *membership) tooMany(n int) error {
	if n <= maxInstances {
		return nil
	}
	return fmt.Errorf("coordinator: %s has more than %d keys: they are not followed until they are fewer", p.provider, maxInstances)
}

func (p *membership) page(ctx context.Context, m mark, get clientv3.Op) (*pb.RangeResponse, error) {
	r, err := p.s.kv.Txn(ctx).
		If(is(p.s.keys.Report(p.provider, m.id), m.revision)).
		Then(get).Commit()
	if err != nil {
		return nil, err
	}
	if !r.Succeeded {
		return nil, errMoved
	}
	return r.Responses[0].GetResponseRange(), nil
}

// touch writes the report of a mark, on the condition that the newest is the one
// that it knows: so none that was sent before can be committed after it. If that
// fails it finds out which is the newest.
func (p *membership) touch(ctx context.Context, m *mark) error {
	report, err := p.reportNow()
	if err != nil {
		return err
	}
	m.sent, m.report, m.begin = p.s.o.Clock.Now(), report, view.Position{}
	key := p.s.keys.Report(p.provider, m.id)
	r, err := p.s.kv.Txn(ctx).
		If(m.lives(), is(key, m.newest)).
		Then(clientv3.OpPut(key, string(report), clientv3.WithLease(m.lease))).
		Else(clientv3.OpGet(m.key, clientv3.WithKeysOnly()), clientv3.OpGet(key, clientv3.WithKeysOnly())).Commit()
	if err != nil {
		return classify(ctx, "list "+p.provider, err)
	}
	if !r.Succeeded {
		if keyIn(r.Responses[0]).CreateRevision != m.created {
			return errGone
		}
		m.newest = keyIn(r.Responses[1]).ModRevision
		return errMoved
	}
	m.made(r)
	return nil
}

func (p *membership) reportNow() ([]byte, error) {
	r := p.sink.Report(p.s.o.Clock.Now())
	r.Name = p.s.o.Name
	b, err := json.Marshal(&r)
	if err != nil {
		return nil, fmt.Errorf("coordinator: report: %w", err)
	}
	return b, nil
}

// listIfNeeded starts the history anew, under the same incarnation, after a gap.
func (p *membership) listIfNeeded(ctx context.Context) error {
	p.mu.Lock()
	relist, m := p.relist, mark{incarnation: p.incarnation, newest: p.reports.Newest()}
	p.mu.Unlock()
	if !relist {
		return nil
	}
	all, m, err := p.list(ctx, m)
	if err != nil {
		return err
	}
	p.s.o.Logger.Warn("history has a gap, starting anew", "provider", p.provider, "revision", m.revision)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listLocked(m, all)
	return nil
}
