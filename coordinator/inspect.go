package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// InstanceStatus is one live instance as operators see it.
type InstanceStatus struct {
	Instance quota.Instance
	// Share is its share of the shortest limit's window that runs now, by the
	// view; ShareKnown is false without a policy in force.
	Share      int64
	ShareKnown bool
	// Report is what the instance last told of itself, or nil.
	Report *quota.Report
	// Problem is why its key or its report cannot be read, or nil.
	Problem error
}

// View returns a provider's policy and live instances at one revision. What
// cannot be read is left out.
func (a *Admin) View(ctx context.Context, provider string) (quota.View, error) {
	v, _, _, err := a.inspect(ctx, provider)
	return v, err
}

// Instances returns a provider's live instances, sorted by name and
// incarnation, with their shares and reports, all at one revision.
func (a *Admin) Instances(ctx context.Context, provider string) ([]InstanceStatus, error) {
	view, problems, reports, err := a.inspect(ctx, provider)
	if err != nil {
		return nil, err
	}
	var shares map[string]int64
	if w, ok := runningWindow(view.Policy); ok {
		if _, s, ok := share.Of(&view, w, nil); ok {
			shares = s
		}
	}
	var all []InstanceStatus
	for _, i := range view.Instances {
		s := InstanceStatus{Instance: i, Problem: problems[i.ID]}
		s.Share, s.ShareKnown = shares[i.ID], shares != nil
		if raw, ok := reports[i.ID]; ok {
			var r quota.Report
			if err := json.Unmarshal(raw, &r); err != nil {
				s.Problem = fmt.Errorf("its report cannot be read: %w", err)
			} else {
				s.Report = &r
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y InstanceStatus) int {
		return cmp.Or(strings.Compare(x.Instance.Name, y.Instance.Name), strings.Compare(x.Instance.ID, y.Instance.ID))
	})
	return all, nil
}

// runningWindow returns the shortest limit's window that runs now.
func runningWindow(p *quota.Policy) (quota.Window, bool) {
	if p == nil {
		return quota.Window{}, false
	}
	now := time.Now().UnixNano()
	limits := p.LimitsAt(now)
	if len(limits) == 0 {
		return quota.Window{}, false
	}
	return quota.WindowAt(limits[0].Window, now), true
}

// inspect reads all that lies under a provider, and its reports, at one
// revision.
func (a *Admin) inspect(ctx context.Context, provider string) (v quota.View, problems map[string]error, reports map[string][]byte, err error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return v, nil, nil, err
	}
	c, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	r, err := a.client.Txn(c).Then(
		clientv3.OpGet(a.keys.provider(provider), clientv3.WithPrefix()),
		clientv3.OpGet(a.keys.reports(provider), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return v, nil, nil, classify(ctx, "look at "+provider, err)
	}
	v.Revision = r.Header.Revision
	problems, reports = map[string]error{}, map[string][]byte{}
	for _, kv := range r.Responses[0].GetResponseRange().Kvs {
		key := string(kv.Key)
		if key == a.keys.policy(provider) {
			if s := stored(provider, kv.Value, kv.ModRevision); s.Problem == nil {
				v.Policy, v.PolicyRevision = &s.Policy, s.Revision
			}
			continue
		}
		if key == a.keys.level(provider) {
			var l quota.Level
			if json.Unmarshal(kv.Value, &l) == nil && l.Validate() == nil {
				v.Level = &l
			}
			continue
		}
		id, ok := incarnationOf(key)
		if !ok || !strings.HasPrefix(key, a.keys.instances(provider)) {
			continue
		}
		i := quota.Instance{ID: id}
		if err := json.Unmarshal(kv.Value, &i); err != nil {
			i, problems[id] = quota.Instance{ID: id}, fmt.Errorf("its key cannot be read: %w", err)
		}
		v.Instances = append(v.Instances, i)
	}
	for _, kv := range r.Responses[1].GetResponseRange().Kvs {
		if id, ok := incarnationOf(string(kv.Key)); ok {
			reports[id] = kv.Value
		}
	}
	return v, problems, reports, nil
}

// Watch calls f with a provider's policy, now and after every change, until ctx
// ends or f returns false. After a Delete, f gets Revision 0. It returns the
// error that ended it, or nil.
func (a *Admin) Watch(ctx context.Context, provider string, f func(Stored) bool) error {
	s, _, revision, err := a.read(ctx, provider)
	if err != nil {
		return err
	}
	c, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	watch := a.client.Watch(c, a.keys.policy(provider), clientv3.WithRev(revision+1))
	if !f(s) {
		return nil
	}
	for r := range watch {
		if err := r.Err(); err != nil {
			return classify(ctx, "watch the policy of "+provider, err)
		}
		for _, e := range r.Events {
			s := Stored{Provider: provider}
			if e.IsCreate() || e.IsModify() {
				s = stored(provider, e.Kv.Value, e.Kv.ModRevision)
			}
			if !f(s) {
				return nil
			}
		}
	}
	return classify(ctx, "watch the policy of "+provider, ctx.Err())
}
