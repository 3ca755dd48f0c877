package dashboard

import (
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// state is what the page shows beside the charts. Times are milliseconds since
// the Unix epoch; what is not known is null.
type state struct {
	Now       int64      `json:"now"`
	Etcd      etcdState  `json:"etcd"`
	Notes     []string   `json:"notes"`
	Providers []live.Row `json:"providers"`
	Detail    *detail    `json:"detail,omitempty"`
}

// etcdState says whether etcd answers, and since when.
type etcdState struct {
	OK     bool   `json:"ok"`
	Since  int64  `json:"since"`
	Error  string `json:"error,omitempty"`
	Denied bool   `json:"denied"` // the dashboard's user may not read
}

type detail struct {
	Provider    string       `json:"provider"`
	Revision    int64        `json:"revision"`
	Policy      *policyState `json:"policy"` // null: none is set, or it cannot be read
	Bucket      float64      `json:"bucket"` // length of a point, seconds
	SumOfShares int64        `json:"sum_of_shares"`
	Troubles    []string     `json:"troubles"`
	Gone        bool         `json:"gone"` // neither policy nor instances
	Columns     []string     `json:"columns"`
	Instances   [][]any      `json:"instances"` // by Columns: there may be a thousand
	Events      []live.Event `json:"events"`
}

type policyState struct {
	Revision int64               `json:"revision"`
	Author   string              `json:"author"`
	Reason   string              `json:"reason"`
	Time     time.Time           `json:"time"`
	Limits   string              `json:"limits"`
	Mode     string              `json:"mode"`
	Next     []announced         `json:"next"`
	Fields   []change.Difference `json:"fields"`
}

type announced struct {
	From   time.Time `json:"from"`
	Limits string    `json:"limits"`
}

// instancesAtMost bounds what a page is sent each second, whatever lies in etcd.
const instancesAtMost = 5000

var columns = func() (names []string) {
	for _, c := range live.Instances {
		names = append(names, c.Name)
	}
	return names
}()

// detailOf returns a provider as of the last look; reports grow older since.
func detailOf(p *live.Provider, now time.Time) *detail {
	f := p.Fleet
	d := &detail{
		Provider: f.Provider, Revision: f.Revision, Policy: policyOf(&f.Policy, p.At), Bucket: p.Bucket().Seconds(),
		Troubles: slices.Clone(p.Status.Troubles), Columns: columns, SumOfShares: p.Status.SumOfShares, Instances: [][]any{}, Events: append([]live.Event{}, p.Events...),
		Gone: f.Policy.Revision == 0 && len(f.Instances) == 0,
	}
	for i := range f.Instances[:min(len(f.Instances), instancesAtMost)] {
		d.Instances = append(d.Instances, p.Line(&f.Instances[i], now))
	}
	if n := len(f.Instances); n > instancesAtMost {
		d.Troubles = append(d.Troubles, fmt.Sprintf("of %d instances the first %d are shown", n, instancesAtMost))
	}
	return d
}

func policyOf(s *coordinator.Stored, now time.Time) *policyState {
	if s.Revision == 0 || s.Problem != nil {
		return nil
	}
	p := change.Current(s.Policy, now).WithDefaults()
	out := &policyState{
		Revision: s.Revision, Author: p.Author, Reason: p.Reason, Time: p.Time, Limits: quota.FormatLimits(p.Limits), Mode: string(p.Mode), Next: []announced{},
		Fields: slices.DeleteFunc(change.Diff(nil, &p), func(d change.Difference) bool { return d.Field == "limits" || d.Field == "mode" }),
	}
	for _, n := range p.Next {
		out.Next = append(out.Next, announced{n.From, quota.FormatLimits(n.Limits)})
	}
	return out
}
