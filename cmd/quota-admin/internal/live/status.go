package live

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// Status is a provider's instances in numbers.
type Status struct {
	// Limit is the shortest in force, which shares are of; nil if none is.
	Limit          *quota.Limit
	Mode           quota.Mode
	Instances      int
	Applied        int // that reported the policy that is set
	SumOfShares    int64
	PolicyRevision int64 // 0: none that can be used
	Problem        string
	// Troubles says what is wrong with instances, and what they say themselves: one line
	// for all that have the same. It is never nil, so that it is a list in JSON.
	Troubles []string
}

// StatusOf sums up what was read.
func StatusOf(f *coordinator.Fleet, now time.Time) Status {
	s := Status{Instances: len(f.Instances)}
	if f.Policy.Problem != nil {
		s.Problem = format.OneLine(f.Policy.Problem)
	} else if s.PolicyRevision = f.Policy.Revision; s.PolicyRevision != 0 {
		s.Mode = f.Policy.Policy.Mode
		if limits := f.Policy.Policy.LimitsAt(now.UnixNano()); len(limits) > 0 {
			s.Limit = &limits[0]
		}
	}
	for _, i := range f.Instances {
		s.SumOfShares += i.Share
		if i.Report != nil && s.PolicyRevision != 0 && i.Report.PolicyRevision == s.PolicyRevision {
			s.Applied++
		}
	}
	s.Troubles = append([]string{}, s.troubles(f)...)
	return s
}

// Line is the status in one line.
func (s *Status) Line() string {
	total := "no policy in force"
	if s.Limit != nil {
		total = "total " + s.Limit.String()
		if s.Mode != quota.ModeEnforce {
			total += " (mode " + format.Clean(string(s.Mode)) + ")"
		}
	}
	line := fmt.Sprintf("%s, %s, sum of shares %d", total, format.Count(s.Instances, "instance"), s.SumOfShares)
	if s.PolicyRevision != 0 && s.Instances > 0 {
		line += fmt.Sprintf(", policy revision %d applied by %d of %d", s.PolicyRevision, s.Applied, s.Instances)
	}
	return line
}

// Beyond says that the shares, as read, sum to more than the limit; "" if they do
// not.
func (s *Status) Beyond() string {
	if s.Limit == nil || s.SumOfShares <= s.Limit.Permits {
		return ""
	}
	return fmt.Sprintf("shares sum to %d, more than the total of %d: somebody wrote into etcd by hand; see doctor", s.SumOfShares, s.Limit.Permits)
}

// troublesAtMost bounds the lines, whatever lies in etcd.
const troublesAtMost = 100

func (s *Status) troubles(f *coordinator.Fleet) (lines []string) {
	var order []string // as first met, so that lines do not change places
	who, others := map[string][]string{}, 0
	found := func(id, text string) {
		if who[text] == nil && len(order) == troublesAtMost {
			others++
			return
		}
		if who[text] == nil {
			order = append(order, text)
		}
		who[text] = append(who[text], id)
	}
	for _, i := range f.Instances {
		if i.Problem != nil {
			found(i.Instance.ID, format.OneLine(i.Problem))
		}
		if i.Report != nil && i.Report.Problem != "" {
			found(i.Instance.ID, "it says: "+i.Report.Problem)
		}
	}
	if line := s.Beyond(); line != "" {
		lines = append(lines, line)
	}
	for _, text := range order {
		subject := "instance " + who[text][0]
		if n := len(who[text]); n > 1 {
			subject += fmt.Sprintf(" and %d more", n-1)
		}
		lines = append(lines, subject+": "+text)
	}
	if others > 0 {
		lines = append(lines, fmt.Sprintf("%s more with other troubles", format.Count(others, "instance")))
	}
	return lines
}
