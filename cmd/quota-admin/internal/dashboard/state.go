package dashboard

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// state is what the page shows beside the charts. Times are milliseconds since
// the Unix epoch; what is not known is null.
type state struct {
	Now       int64         `json:"now"`
	Etcd      etcdState     `json:"etcd"`
	Notes     []string      `json:"notes"`
	Providers []providerRow `json:"providers"`
	Detail    *detail       `json:"detail,omitempty"`
}

// etcdState says whether etcd answers, and since when.
type etcdState struct {
	OK    bool   `json:"ok"`
	Since int64  `json:"since"`
	Error string `json:"error,omitempty"`
}

// providerRow is a line of the table of providers.
type providerRow struct {
	Provider  string   `json:"provider"`
	Limits    string   `json:"limits"`
	Rate      *float64 `json:"rate"` // of the shortest limit, permits per second
	Mode      string   `json:"mode"`
	Instances int      `json:"instances"`
	Applied   int      `json:"applied"`
	Issued    *float64 `json:"issued"`  // per second, of the chart's last point
	Refused   *float64 `json:"refused"` // per second
	Shadowed  float64  `json:"shadowed"`
	Waiting   int64    `json:"waiting"`
	Troubles  int      `json:"troubles"`
	Problem   string   `json:"problem,omitempty"`
}

// detail is one provider in full.
type detail struct {
	Provider    string         `json:"provider"`
	Revision    int64          `json:"revision"`
	Policy      *policyState   `json:"policy"` // null: none is set, or it cannot be read
	Bucket      float64        `json:"bucket"` // length of a point, seconds
	SumOfShares int64          `json:"sum_of_shares"`
	Troubles    []string       `json:"troubles"`
	Gone        bool           `json:"gone"` // neither policy nor instances
	Columns     []string       `json:"columns"`
	Instances   [][]any        `json:"instances"` // by Columns: there may be a thousand
	Lost        []lostInstance `json:"lost"`
}

// policyState is what is set, in words.
type policyState struct {
	Revision int64               `json:"revision"`
	Author   string              `json:"author"`
	Reason   string              `json:"reason"`
	Time     time.Time           `json:"time"`
	Limits   string              `json:"limits"`
	Mode     string              `json:"mode"`
	MaxStep  float64             `json:"max_step"`
	Next     []announced         `json:"next"`
	Fields   []change.Difference `json:"fields"`
}

type announced struct {
	From   time.Time `json:"from"`
	Limits string    `json:"limits"`
}

// lostInstance was there until a moment ago.
type lostInstance struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	At          int64  `json:"at"`
	Left        bool   `json:"left"` // it had announced its end
}

// columns are those of detail.Instances.
var columns = []string{"name", "incarnation", "host", "version", "share", "state", "used", "refused", "shadowed", "waiting", "policy", "clock", "source", "proof", "age", "from", "until", "problem"}

func policyOf(s *coordinator.Stored, now time.Time) *policyState {
	if s.Revision == 0 || s.Problem != nil {
		return nil
	}
	p := change.Current(s.Policy, now).WithDefaults()
	out := &policyState{
		Revision: s.Revision, Author: p.Author, Reason: p.Reason, Time: p.Time, Limits: quota.FormatLimits(p.Limits),
		Mode: string(p.Mode), MaxStep: p.MaxStep, Next: []announced{},
		Fields: slices.DeleteFunc(change.Diff(nil, &p), func(d change.Difference) bool {
			return d.Field == "limits" || d.Field == "mode" || d.Old == "" && d.New == ""
		}),
	}
	if out.MaxStep == 0 {
		out.MaxStep = quota.DefaultMaxStep
	}
	for _, n := range p.Next {
		out.Next = append(out.Next, announced{n.From, quota.FormatLimits(n.Limits)})
	}
	return out
}

// milliseconds returns t for the page, nil for the zero time.
func milliseconds(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// round keeps what people read of a rate, and answers short.
func round(f float64) float64 { return math.Round(f*10) / 10 }
