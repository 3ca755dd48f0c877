package protocol

import (
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// AnnounceAhead is how long a commit and its delivery by the watches may take.
const AnnounceAhead = 200 * time.Millisecond

// FirstWindow returns the instant from which an instance that announces itself at the
// instant now (both in wall time) takes part: all others have settled by then.
func FirstWindow(now int64, p *quota.Policy) time.Time {
	return boundary(now+int64(p.Settle+2*p.ClockError+AnnounceAhead), p)
}

// LastWindow returns the instant until which an instance serves that announces its
// end at the instant now: all others know of it by then. Where they do not grow at
// once by an announced end, they have settled by then.
func LastWindow(now int64, p *quota.Policy) time.Time {
	if Shaped(p) {
		return FirstWindow(now, p)
	}
	return boundary(now+int64(2*p.ClockError+AnnounceAhead), p)
}

// boundary returns the first start of a window of the longest limit that is not
// before an instant: windows of all limits start there.
func boundary(at int64, p *quota.Policy) time.Time {
	longest := int64(LongestWindow(p))
	return time.Unix(0, (at+longest-1)/longest*longest).UTC()
}

// LongestWindow returns the longest window of which instances have shares, announced ones and
// those of keys included; 0 if there are none.
func LongestWindow(p *quota.Policy) (longest time.Duration) {
	all := append([]quota.LimitChange{{Limits: Short(p)}}, p.Next...)
	if of := OfKeys(p); of != nil {
		all = append(all, quota.LimitChange{Limits: Short(of)})
	}
	for _, c := range all {
		for _, l := range c.Limits {
			longest = max(longest, l.Window)
		}
	}
	return longest
}
