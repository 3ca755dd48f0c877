package coordinator

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/internal/session/view"
)

// A history begins with a listing. It is read page by page, each on the condition that the own key is
// there: so all pages are of a store that has it, however long it takes, and a page that fails is asked
// for again by itself. etcd can write meanwhile. The first page tells the revision of all.

// errMoved says that another cluster answers than the one that the listing began with, or
// that the store was put back to before its revision.
var errMoved = errors.New("etcd was restored meanwhile")

// list reads everything under the provider, as of the present if the listing's revision is
// no longer to be had. It returns the listing as it was read.
func (p *membership) list(ctx context.Context, m session.Listing) ([]view.Key, session.Listing, error) {
	for wait := (backoff{}); ; {
		all, err := p.pages(ctx, &m)
		if err == nil || !outdated(err) {
			return all, m, err
		}
		if m = (session.Listing{Incarnation: m.Incarnation}); !wait.sleep(ctx) {
			return nil, m, ctx.Err()
		}
	}
}

// outdated reports whether an error of pages says that it needs another revision.
func outdated(err error) bool {
	return errors.Is(err, errMoved) || errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev)
}

// pages reads one page after the other, and keeps the pages read: an etcd that
// answers late, because a large fleet joins at once, must not repeat them all. It deletes
// earlier incarnations under this lease, which a restored backup has again: their shares
// would be lost as long as the lease lives.
func (p *membership) pages(ctx context.Context, m *session.Listing) (all []view.Key, err error) {
	var revived []clientv3.Op
	err = etcdcall.EachKey(p.s.keys.Provider(p.Provider), func(from string, o ...clientv3.OpOption) (*pb.RangeResponse, error) {
		for wait := (backoff{}); ; {
			r, err := p.page(ctx, m, clientv3.OpGet(from, append(o, clientv3.WithRev(m.Revision))...))
			if err == nil || outdated(err) || errors.Is(err, session.ErrGone) || etcdcall.TooLarge(err) || ctx.Err() != nil {
				return r, err
			}
			p.s.step(session.Troubled{Member: p.Member, Err: classify(ctx, "list "+p.Provider, err)})
			if !wait.sleep(ctx) {
				return nil, ctx.Err()
			}
		}
	}, nil, func(kv *mvccpb.KeyValue) {
		all = append(all, p.s.parse(p.Provider, kv, false))
		revived = append(revived, deletesRevived(m, kv)...)
	})
	if err == nil && len(revived) > 0 {
		_, err = p.s.kv.Txn(ctx).Then(revived...).Commit()
	}
	return all, err
}

// deletesRevived returns what deletes an earlier incarnation under this lease, if the key is one.
func deletesRevived(m *session.Listing, kv *mvccpb.KeyValue) []clientv3.Op {
	if kv.Lease != m.Lease || string(kv.Key) == m.Key {
		return nil
	}
	return []clientv3.Op{clientv3.OpDelete(string(kv.Key))}
}

func (p *membership) page(ctx context.Context, m *session.Listing, get clientv3.Op) (*pb.RangeResponse, error) {
	r, err := p.s.kv.Txn(ctx).If(lives(&m.Incarnation)).Then(get).Commit()
	switch {
	case err != nil:
		return nil, err
	case m.Revision == 0:
		m.Revision, m.Cluster = r.Header.Revision, r.Header.ClusterId
	case r.Header.ClusterId != m.Cluster || r.Header.Revision < m.Revision:
		return nil, errMoved
	}
	if !r.Succeeded {
		return nil, session.ErrGone
	}
	return r.Responses[0].GetResponseRange(), nil
}
