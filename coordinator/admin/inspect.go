package admin

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
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// Fleet is a provider's policy and its live instances, all at one revision.
type Fleet struct {
	Provider string
	Revision int64
	// Policy is as stored; its Revision is 0 where none is set.
	Policy Stored
	// Instances are sorted by name and ID. To a name that several have, the end of each ID is
	// added, as in "web-1 (7QXA)".
	Instances []InstanceStatus
}

// InstanceStatus is one live instance of a provider.
type InstanceStatus struct {
	// ID is the incarnation: no two instances ever have the same.
	ID            string
	Name, Version string
	// Started is when its session began, by its host's clock.
	Started time.Time
	// Share is its share of the shortest limit's window that runs now; ShareKnown is
	// false without a policy in force, or without a limit of at most quota.MaxWindow.
	Share      int64
	ShareKnown bool
	// Reported is the time of its newest report; zero if there is none. State is the
	// limiter's state then. Used and Refused count permits since the limiter was opened, and
	// Waiting is the number of callers that waited at that time.
	Reported               time.Time
	State                  quota.State
	Used, Refused, Waiting int64
	// Problem is a fault that it reports, or the reason why its key or report cannot be
	// read; nil if there is none.
	Problem error
}

// Fleet returns a provider's policy and live instances; without a policy that is no error.
// Observe makes the instances report often.
func (a *Client) Fleet(ctx context.Context, provider string) (Fleet, error) {
	found, err := feed.Inside(a).Fleet(ctx, provider)
	f := Fleet{Provider: found.Provider, Revision: found.Revision, Policy: Stored(found.Policy)}
	for _, i := range found.Instances {
		s := InstanceStatus{
			ID: i.Instance.ID, Name: i.Instance.Name, Version: i.Instance.Version, Started: i.Instance.Started,
			Share: i.Share, ShareKnown: i.ShareKnown, Problem: i.Problem,
		}
		if r := i.Report; r != nil {
			s.Reported, s.State, s.Used, s.Refused, s.Waiting = r.Time, r.State, r.Used, r.Refused, r.Waiting
			if s.Problem == nil && r.Problem != "" {
				s.Problem = errors.New(r.Problem)
			}
		}
		f.Instances = append(f.Instances, s)
	}
	return f, err
}

type inspected = feed.Cover[protocol.Inspector]

// inspector implements protocol.Inspector.
type inspector Client

// Fleet implements protocol.Inspector.
func (i *inspector) Fleet(ctx context.Context, provider string) (protocol.Fleet, error) {
	a := (*Client)(i)
	f := protocol.Fleet{Provider: provider, Policy: protocol.Stored{Provider: provider}}
	if err := quota.ValidateProvider(provider); err != nil {
		return f, err
	}
	at := map[string]int{} // of an incarnation in f.Instances
	revision, err := a.each(ctx, a.keys.Instances(provider), 0, nil, func(kv *mvccpb.KeyValue) {
		if id, ok := keys.IncarnationIn(a.keys.Instances(provider), string(kv.Key)); ok {
			at[id] = len(f.Instances)
			f.Instances = append(f.Instances, instanceOf(id, kv))
		}
	})
	var r *clientv3.TxnResponse
	if err == nil {
		r, err = a.kv.Txn(ctx).Then(clientv3.OpGet(a.keys.Policy(provider), clientv3.WithRev(revision)), clientv3.OpGet(a.keys.Throttle(provider), clientv3.WithRev(revision))).Commit()
	}
	if err == nil {
		f.Policy = protocol.Stored(stored(provider, etcdcall.KeyIn(r.Responses[0])))
		f.Throttle, _ = protocol.ReadThrottle(etcdcall.KeyIn(r.Responses[1]).Value)
		_, err = a.each(ctx, a.keys.Reports(provider), revision, nil, func(kv *mvccpb.KeyValue) {
			if id, ok := keys.IncarnationIn(a.keys.Reports(provider), string(kv.Key)); ok {
				if i, ok := at[id]; ok {
					takeReport(&f.Instances[i], kv)
				} else if r, err := protocol.ReadReport(kv.Value); err == nil && r.State == quota.StateClosed && r.Debt > 0 {
					f.Left = append(f.Left, protocol.InstanceStatus{Instance: protocol.Instance{ID: id, Name: r.Name}, Report: &r})
				}
			}
		})
	}
	if err == nil {
		err = a.budgets(ctx, &f)
	}
	if err != nil {
		return protocol.Fleet{}, classify(ctx, "look at "+provider, err)
	}
	f.Revision = revision
	divide(&f, time.Now().UnixNano())
	for _, all := range [][]protocol.InstanceStatus{f.Instances, f.Left} {
		slices.SortFunc(all, func(x, y protocol.InstanceStatus) int {
			return cmp.Or(strings.Compare(x.Instance.Name, y.Instance.Name), strings.Compare(x.Instance.ID, y.Instance.ID))
		})
		tellApart(all)
	}
	return f, nil
}

// Registered implements protocol.Inspector.
func (i *inspector) Registered(ctx context.Context) (providers []string, err error) {
	a := (*Client)(i)
	_, err = a.each(ctx, a.keys.Provider(""), 0, a.keys.AfterMany, func(kv *mvccpb.KeyValue) {
		_, provider := a.keys.Of(string(kv.Key))
		if quota.ValidateProvider(provider) == nil && strings.HasPrefix(string(kv.Key), a.keys.Instances(provider)) {
			providers = append(providers, provider)
		}
	})
	slices.Sort(providers)
	return slices.Compact(providers), classify(ctx, "list the providers of instances", err)
}

// tellApart adds to names that several instances have, as processes of one host do, the end of each
// incarnation. The instances are sorted by name.
func tellApart(all []protocol.InstanceStatus) {
	for len(all) > 0 {
		name := all[0].Instance.Name
		n := slices.IndexFunc(all, func(s protocol.InstanceStatus) bool { return s.Instance.Name != name })
		if n < 0 {
			n = len(all)
		}
		for i := range all[:n] {
			if id := all[i].Instance.ID; n > 1 && name != "" {
				all[i].Instance.Name = fmt.Sprintf("%s (%s)", name, id[max(0, len(id)-endOfID):])
			}
		}
		all = all[n:]
	}
}

// endOfID is how many characters of an incarnation tell instances apart: one pair in a million has
// the same.
const endOfID = 4

// budgets fills in the budgets, and the long limits of keys that a restore withholds, unless the
// role lacks their folder.
func (a *Client) budgets(ctx context.Context, f *protocol.Fleet) error {
	if f.Policy.Problem != nil {
		return nil //nolint:nilerr // the fleet tells the problem
	}
	now := time.Now().UnixNano()
	gets := []clientv3.Op{clientv3.OpGet(a.keys.BudgetMark(f.Provider))}
	var all []protocol.BudgetUse
	for _, b := range protocol.BudgetsAt(&f.Policy.Policy, now) {
		all = append(all, protocol.BudgetUse{Budget: b, Left: b.Permits})
		gets = append(gets, clientv3.OpGet(a.keys.BudgetTotal(f.Provider, b.Name(), b.TotalStart())))
	}
	ofKeys := protocol.KeyBudgetsAt(&f.Policy.Policy, now)
	if len(all)+len(ofKeys) == 0 {
		return nil
	}
	r, err := a.kv.Txn(ctx).Then(gets...).Commit()
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return nil
	}
	if err != nil {
		return err
	}
	kv := etcdcall.KeyIn(r.Responses[0])
	mark := escrow.ReadMark(kv.Value, kv.ModRevision, r.Header.ClusterId)
	for i := range all {
		found := escrow.Purse{Part: all[i].Part()}
		kv := etcdcall.KeyIn(r.Responses[1+i])
		found.Read(kv.Value, kv.ModRevision, mark.Seen(all[i].Since(), false))
		found.Forget(now)
		total := found.Total()
		all[i].Taken, all[i].Back = found.Out(), total.Back(&all[i].Budget)
		all[i].Left, all[i].Withheld, all[i].Resumes = found.Left(all[i].Permits), found.Withheld(), found.Resumes(&all[i].Budget)
	}
	f.Budgets = all
	for _, b := range ofKeys {
		if s := mark.Seen(b.Since(), true); s.Lost != "" {
			f.KeysWithheld = append(f.KeysWithheld, protocol.BudgetUse{Budget: b, Withheld: s.Lost, Resumes: s.Resumes(&b)})
		}
	}
	return nil
}

// divide fills in the shares of the shortest limit's window that runs now.
func divide(f *protocol.Fleet, now int64) {
	v := f.View()
	if v.Policy == nil {
		return
	}
	limits := protocol.LimitsAt(v.Policy, now)
	if len(limits) == 0 || protocol.Free(limits[0]) {
		return
	}
	_, shares, ok := share.Of(&v, quota.WindowAt(limits[0].Window, now))
	for i := range f.Instances {
		f.Instances[i].Share, f.Instances[i].ShareKnown = shares[f.Instances[i].Instance.ID], ok
	}
}

// instanceOf reads an instance's key as instances do: one that cannot be read
// takes part with the defaults.
func instanceOf(id string, kv *mvccpb.KeyValue) (s protocol.InstanceStatus) {
	var err error
	s.Instance, err = protocol.ReadInstance(id, kv.Value)
	switch {
	case err != nil:
		s.Instance = protocol.Instance{ID: id}
		s.Problem = fmt.Errorf("its key %q cannot be read, it takes part all the same: %w", kv.Key, err)
	case kv.Lease == 0:
		s.Problem = fmt.Errorf("its key %q has no lease: no instance wrote it, and it takes part until it is deleted", kv.Key)
	}
	return s
}

func takeReport(s *protocol.InstanceStatus, kv *mvccpb.KeyValue) {
	r, err := protocol.ReadReport(kv.Value)
	switch {
	case err == nil:
		s.Report = &r
	case s.Problem == nil:
		s.Problem = fmt.Errorf("its report cannot be read: %w", err)
	}
}

// each calls f with the keys under a prefix, at a revision, 0 for the newest, and returns
// it. after is as in eachKey.
func (a *Client) each(ctx context.Context, prefix string, revision int64, after func(key string) string, f func(*mvccpb.KeyValue)) (int64, error) {
	err := etcdcall.EachKey(prefix, func(from string, o ...clientv3.OpOption) (*pb.RangeResponse, error) {
		r, err := a.kv.Get(ctx, from, append(o, clientv3.WithRev(revision))...)
		if err == nil && revision == 0 {
			revision = r.Header.Revision
		}
		return (*pb.RangeResponse)(r), err
	}, after, f)
	return revision, err
}
