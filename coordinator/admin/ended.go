package admin

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// life is what is known of when an instance's key was deleted: after the revision there, and by the
// revision gone. No incarnation registers twice, so there is one such deletion.
type life struct {
	id, key     string
	there, gone int64
}

// between returns at most n revisions that divide the rest evenly, in order. There are none if there is the last
// revision with the key.
func (l *life) between(n int64) (all []int64) {
	rest := l.gone - l.there
	n = min(n, rest-1)
	for i := range n {
		all = append(all, l.there+rest*(i+1)/(n+1))
	}
	return all
}

// lastValuesAtOnce is how many instances' keys are read at once. Somebody may have written values as large as
// etcd takes.
const lastValuesAtOnce = 16

// Ended implements protocol.Inspector. It asks at which revisions between the two a key was there, closer and closer,
// by transactions that only count: etcd answers these by its index. A watch from the first revision on would have
// etcd read all that was written since, by anybody, and hold up writes meanwhile.
func (i *inspector) Ended(ctx context.Context, provider string, there, gone int64, ids []string) (map[string]protocol.Instance, error) {
	a := (*Client)(i)
	all := make([]life, len(ids))
	for n, id := range ids {
		all[n] = life{id, a.keys.Instance(provider, id), there, gone}
	}
	ended := make(map[string]protocol.Instance, len(ids))
	err := a.narrow(ctx, all)
	for chunk := range slices.Chunk(all, lastValuesAtOnce) {
		var r *clientv3.TxnResponse
		var gets []clientv3.Op
		for _, l := range chunk {
			gets = append(gets, clientv3.OpGet(l.key, clientv3.WithRev(l.there)))
		}
		if err == nil {
			r, err = a.kv.Txn(ctx).Then(gets...).Commit()
		}
		if err != nil {
			break
		}
		for n, l := range chunk {
			if kv := etcdcall.KeyIn(r.Responses[n]); kv.ModRevision != 0 {
				ended[l.id] = instanceOf(l.id, kv).Instance
			}
		}
	}
	if etcdcall.Kind(err) == nil && ctx.Err() == nil {
		err = nil // the revisions are compacted, or of another store than this one; or a value is too large
	}
	return ended, classify(ctx, "look for the ends of instances of "+provider, err)
}

// narrow finds the last revision of each key.
func (a *Client) narrow(ctx context.Context, all []life) error {
	for chunk := range slices.Chunk(all, etcdcall.MaxOps) {
		for {
			var gets []clientv3.Op
			asked := make([][]int64, len(chunk))
			for n := range chunk {
				asked[n] = chunk[n].between(int64(etcdcall.MaxOps / len(chunk)))
				for _, at := range asked[n] {
					gets = append(gets, clientv3.OpGet(chunk[n].key, clientv3.WithRev(at), clientv3.WithCountOnly()))
				}
			}
			if len(gets) == 0 {
				break
			}
			r, err := a.kv.Txn(ctx).Then(gets...).Commit()
			if err != nil {
				return err
			}
			for n := range chunk {
				l, responses := &chunk[n], r.Responses[:len(asked[n])]
				r.Responses = r.Responses[len(asked[n]):]
				for k, at := range asked[n] {
					if responses[k].GetResponseRange().Count == 0 {
						l.gone = at
						break
					}
					l.there = at
				}
			}
		}
	}
	return nil
}
