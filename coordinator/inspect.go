package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// Fleet is a provider's policy, its instances and their reports, all at one
// revision.
type Fleet struct {
	Provider string
	Revision int64
	// Policy is as stored; its Revision is 0 where none is set.
	Policy Stored
	// Level is nil where none is set, or where it cannot be read.
	Level *protocol.Level
	// Throttle is nil where none is set, or where it cannot be read.
	Throttle *protocol.Throttle
	// Budgets are the limits of more than a minute, with the permits of the running
	// windows that nobody has taken; empty if they cannot be read.
	Budgets []protocol.BudgetUse
	// Instances are sorted by name and incarnation.
	Instances []InstanceStatus
	// Left are the instances that left with a debt within the last hour, sorted likewise:
	// name, incarnation and last report.
	Left []InstanceStatus
}

// View returns the fleet as its instances see it. A policy that cannot be used
// is left out, as by an instance that has just joined.
func (f *Fleet) View() protocol.View {
	v := protocol.View{Revision: f.Revision, Level: f.Level, Throttle: f.Throttle}
	if f.Policy.Revision != 0 && f.Policy.Problem == nil {
		p := f.Policy.Policy
		v.Policy, v.PolicyRevision = &p, f.Policy.Revision
	}
	for _, s := range f.Instances {
		v.Instances = append(v.Instances, s.Instance)
	}
	return v
}

// InstanceStatus is one live instance as shown to operators.
type InstanceStatus struct {
	Instance quota.Instance
	// Share is its share of the shortest limit's window that runs now, by the
	// view; ShareKnown is false without a policy in force, or without a short limit.
	Share      int64
	ShareKnown bool
	// Report is the instance's newest report, or nil.
	Report *quota.Report
	// Problem is the reason why its key or report cannot be read, or the key cannot be an
	// instance's own; nil if there is none.
	Problem error

	// The revisions of both keys as read, for the next answer.
	keyRevision, reportRevision int64
	problemOfKey                error
}

// Fleet returns a provider's policy, live instances and reports. With an earlier answer
// for the provider, which it does not change, it decodes only keys written since: for
// callers that observe a large fleet once a second. earlier may be nil.
func (a *Admin) Fleet(ctx context.Context, provider string, earlier *Fleet) (Fleet, error) {
	known := map[string]*InstanceStatus{}
	if earlier != nil {
		for i := range earlier.Instances {
			known[earlier.Instances[i].Instance.ID] = &earlier.Instances[i]
		}
	}
	f := Fleet{Provider: provider, Policy: Stored{Provider: provider}}
	if err := quota.ValidateProvider(provider); err != nil {
		return f, err
	}
	at := map[string]int{} // of an incarnation in f.Instances
	revision, err := a.each(ctx, a.keys.Provider(provider), 0, nil, func(kv *mvccpb.KeyValue) {
		if key := string(kv.Key); key == a.keys.Policy(provider) {
			f.Policy = stored(provider, kv)
		} else if key == a.keys.Level(provider) {
			if l, err := protocol.ReadLevel(kv.Value); err == nil {
				f.Level = l
			}
		} else if key == a.keys.Throttle(provider) {
			f.Throttle, _ = protocol.ReadThrottle(kv.Value)
		} else if id, ok := keys.IncarnationIn(a.keys.Instances(provider), key); ok {
			at[id] = len(f.Instances)
			f.Instances = append(f.Instances, instanceOf(id, kv, known[id]))
		}
	})
	if err == nil {
		_, err = a.each(ctx, a.keys.Reports(provider), revision, nil, func(kv *mvccpb.KeyValue) {
			if id, ok := keys.IncarnationIn(a.keys.Reports(provider), string(kv.Key)); ok {
				if i, ok := at[id]; ok {
					f.Instances[i].takeReport(kv, known[id])
				} else if r, err := readReport(kv.Value); err == nil && r.State == quota.StateClosed && r.Debt > 0 {
					f.Left = append(f.Left, InstanceStatus{Instance: quota.Instance{ID: id, Name: r.Name}, Report: &r})
				}
			}
		})
	}
	if err == nil {
		err = a.budgets(ctx, &f)
	}
	if err != nil {
		return Fleet{}, classify(ctx, "look at "+provider, err)
	}
	f.Revision = revision
	f.share(time.Now().UnixNano())
	for _, all := range [][]InstanceStatus{f.Instances, f.Left} {
		slices.SortFunc(all, func(x, y InstanceStatus) int {
			return cmp.Or(strings.Compare(x.Instance.Name, y.Instance.Name), strings.Compare(x.Instance.ID, y.Instance.ID))
		})
	}
	return f, nil
}

// budgets fills in the budgets, unless the role lacks their folder.
func (a *Admin) budgets(ctx context.Context, f *Fleet) error {
	var gets []clientv3.Op
	var all []protocol.BudgetUse
	for _, b := range protocol.BudgetsAt(&f.Policy.Policy, time.Now().UnixNano()) {
		all = append(all, protocol.BudgetUse{Budget: b, Left: b.Permits})
		gets = append(gets, clientv3.OpGet(a.keys.BudgetTotal(f.Provider, b.Name(), b.Start)))
	}
	if len(all) == 0 || f.Policy.Problem != nil {
		return nil //nolint:nilerr // the fleet tells the problem
	}
	r, err := a.kv.Txn(ctx).Then(gets...).Commit()
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range all {
		found := escrow.Found{Cluster: r.Header.ClusterId}
		kv := keyIn(r.Responses[i])
		if found.TotalRevision = kv.ModRevision; kv.ModRevision != 0 {
			if found.Total, err = escrow.Decode[escrow.Total](kv.Value); err != nil {
				return nil //nolint:nilerr // instances take nothing of it either
			}
		}
		all[i].Left, all[i].Withheld = escrow.Rule{Limit: all[i].Permits}.Left(&found), found.Withheld()
	}
	f.Budgets = all
	return nil
}

// share fills in the shares of the shortest limit's window that runs now.
func (f *Fleet) share(now int64) {
	v := f.View()
	if v.Policy == nil {
		return
	}
	limits := v.Policy.LimitsAt(now)
	if len(limits) == 0 || protocol.Free(limits[0]) {
		return
	}
	_, shares, ok := share.Of(&v, quota.WindowAt(limits[0].Window, now))
	for i := range f.Instances {
		f.Instances[i].Share, f.Instances[i].ShareKnown = shares[f.Instances[i].Instance.ID], ok
	}
}

// instanceOf reads an instance's key as instances do: one that cannot be read
// takes part with the defaults. known is an earlier reading, or nil.
func instanceOf(id string, kv *mvccpb.KeyValue, known *InstanceStatus) InstanceStatus {
	if known != nil && known.keyRevision == kv.ModRevision {
		return InstanceStatus{Instance: known.Instance, Problem: known.problemOfKey, problemOfKey: known.problemOfKey, keyRevision: kv.ModRevision}
	}
	i, err := protocol.ReadInstance(id, kv.Value)
	s := InstanceStatus{Instance: i, keyRevision: kv.ModRevision}
	switch {
	case err != nil:
		s.Instance = quota.Instance{ID: id, Weight: 1}
		s.Problem = fmt.Errorf("its key %q cannot be read, it takes part all the same: %w", kv.Key, err)
	case kv.Lease == 0:
		s.Problem = fmt.Errorf("its key %q has no lease: no instance wrote it, and it takes part until it is deleted", kv.Key)
	}
	s.problemOfKey = s.Problem
	return s
}

func (s *InstanceStatus) takeReport(kv *mvccpb.KeyValue, known *InstanceStatus) {
	s.reportRevision = kv.ModRevision
	if known != nil && known.Report != nil && known.reportRevision == kv.ModRevision {
		s.Report = known.Report
		return
	}
	r, err := readReport(kv.Value)
	switch {
	case err == nil:
		s.Report = &r
	case s.Problem == nil:
		s.Problem = fmt.Errorf("its report cannot be read: %w", err)
	}
}

// each calls f with the keys under a prefix, at a revision, 0 for the newest, and returns
// it. after is as in eachKey.
func (a *Admin) each(ctx context.Context, prefix string, revision int64, after func(key string) string, f func(*mvccpb.KeyValue)) (int64, error) {
	n := 0
	err := eachKey(prefix, clientv3.GetPrefixRangeEnd(prefix), func(from string, o ...clientv3.OpOption) (*pb.RangeResponse, error) {
		if n > maxInstances {
			return nil, fmt.Errorf("there are more than %d keys", maxInstances)
		}
		r, err := a.kv.Get(ctx, from, append(o, clientv3.WithRev(revision))...)
		if err == nil && revision == 0 {
			revision = r.Header.Revision
		}
		return (*pb.RangeResponse)(r), err
	}, after, func(kv *mvccpb.KeyValue) { n++; f(kv) })
	return revision, err
}
