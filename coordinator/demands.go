package coordinator

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quotient-limiter/quotient/quota"
)

// demands returns what the instances had reported when the level in force was
// worked out: their claims follow from that, not from what they report now. If
// etcd has compacted that revision away, the newest reports stand for it.
func (a *Admin) demands(ctx context.Context, f *Fleet) (map[string]int64, error) {
	newest := map[string]int64{}
	for _, s := range f.Instances {
		if s.Report != nil {
			newest[s.Instance.ID] = s.Report.Demand
		}
	}
	e, v := f.Level.At(time.Now().UnixNano()), f.View()
	if e == nil || v.Policy == nil || v.Policy.Share != quota.ShareDemand {
		return newest, nil
	}
	then := map[string]int64{}
	_, err := a.each(ctx, a.keys.reports(f.Provider), e.Revision, func(kv *mvccpb.KeyValue) {
		if id, ok := incarnationIn(a.keys.reports(f.Provider), string(kv.Key)); ok {
			then[id] = reportOf(kv.Value).Demand
		}
	})
	switch {
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		then, err = newest, nil
	}
	return then, err
}
