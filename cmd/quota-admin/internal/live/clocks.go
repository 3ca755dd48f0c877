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

// clockDifference is what the dates of an instance's reports say of its clock.
type clockDifference struct {
	ahead   time.Duration // by the newest report; negative: behind
	reports int           // in a row
}

// seeClock takes a report that may be new, at a look that follows the one at before; 0 if
// there was none. A new report was written between the two looks, whatever its date is.
func (t *track) seeClock(now, before int64, r *protocol.Report) {
	if t.last.Time.IsZero() || !r.Time.After(t.last.Time) {
		return
	}
	ahead, at := time.Duration(0), r.Time.UnixNano()
	switch {
	case at > now+int64(clockSlack):
		ahead = time.Duration(at - now)
	case at < before-int64(clockSlack):
		ahead = time.Duration(at - before)
	}
	if ahead == 0 || ahead > 0 != (t.clock.ahead > 0) {
		t.clock.reports = 0
	}
	t.clock.ahead = ahead
	if ahead != 0 {
		t.clock.reports++
	}
}

// clockTrouble names an instance whose clock differs from this host's, and how many more do;
// "" if none does.
func (c *meter) clockTrouble(f *protocol.Fleet) string {
	var differ []string
	for _, i := range f.Instances {
		if c.tracks[i.Instance.ID].clock.reports >= clockReports {
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
