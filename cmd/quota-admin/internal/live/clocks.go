package live

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

const (
	// clockSlack is by how much an instance's clock may seem to differ from this host's: a
	// report is dated before it is written, and read after that.
	clockSlack = time.Second
	// clockReports are the reports in a row that must say the same. After a hold-up at etcd
	// one comes late.
	clockReports = 3
)

// Clock is what the dates of an instance's reports say of its clock.
type Clock struct {
	last    time.Time     // the date of the newest report
	ahead   time.Duration // by that one; negative: behind
	reports int           // in a row that say so
	seen    bool          // one that tells was seen
}

// See takes a report that may be new, at a look that follows the one at before; 0 if
// there was none. A new report was written between the two looks, whatever its date is.
func (c *Clock) See(now, before int64, r *protocol.Report) {
	first := c.last.IsZero()
	if !r.Time.After(c.last) {
		return
	}
	c.last = r.Time
	ahead, at := time.Duration(0), r.Time.UnixNano()
	switch {
	case first: // it may be old
		c.seen = max(at-now, now-at) <= int64(clockSlack)
		return
	case at > now+int64(clockSlack):
		ahead = time.Duration(at - now)
	case at < before-int64(clockSlack):
		ahead = time.Duration(at - before)
	}
	if ahead == 0 || ahead > 0 != (c.ahead > 0) {
		c.reports = 0
	}
	c.seen, c.ahead = true, ahead
	if ahead != 0 {
		c.reports++
	}
}

// Told reports whether enough reports were seen to say by how much the clock differs from
// this host's: 0 if it does not, negative if it is behind.
func (c *Clock) Told() (ahead time.Duration, told bool) {
	if c.reports >= clockReports {
		return c.ahead, true
	}
	return 0, c.seen && c.reports == 0
}

// clockTrouble names an instance whose clock differs from this host's, and how many more do;
// "" if none does.
func (c *meter) clockTrouble(f *protocol.Fleet) string {
	var differ []string
	for _, i := range f.Instances {
		if by, _ := c.tracks[i.Instance.ID].clock.Told(); by != 0 {
			differ = append(differ, i.Instance.ID)
		}
	}
	if len(differ) == 0 {
		return ""
	}
	how, by := "ahead of", c.tracks[differ[0]].clock.ahead
	if by < 0 {
		how, by = "behind", -by
	}
	return fmt.Sprintf("%s: its clock is %v %s this host's: see doctor --ntp", subjectOf(differ), by.Round(100*time.Millisecond), how)
}
