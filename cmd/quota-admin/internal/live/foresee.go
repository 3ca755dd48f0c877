package live

import (
	"fmt"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Foresee says what a limit would have refused of what was asked for in the points; "" if
// they tell nothing. It compares point by point: calls that wait, and those that come again
// after a refusal, would have changed what was asked for.
func Foresee(points []Point, length time.Duration, limit quota.Limit) string {
	most, known, asked, refused, would := float64(limit.Permits)/limit.Window.Seconds(), 0, 0.0, 0.0, 0.0
	for _, p := range points {
		if p.Total == nil {
			continue
		}
		known++
		demand := *p.Total + p.Refused
		asked, refused, would = asked+demand, refused+p.Refused, would+max(0, demand-most)
	}
	if known == 0 || asked == 0 {
		return ""
	}
	permits := func(perSecond float64) string {
		return strconv.FormatFloat(perSecond*length.Seconds(), 'f', 0, 64)
	}
	return fmt.Sprintf("Of %s permits asked for in the last %v that this dashboard knows, %s were refused; %v would have refused about %s, if callers had asked for the same.",
		permits(asked), time.Duration(known)*length, permits(refused), limit, permits(would))
}
