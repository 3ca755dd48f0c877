package measure

import (
	"maps"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// TestAWithheldLimitIsShown: the alert needs the metric, of long windows only.
func TestAWithheldLimitIsShown(t *testing.T) {
	t.Parallel()
	s := consumer.Status{Limits: []consumer.LimitUse{
		{Limit: quota.Limit{Permits: 10, Window: time.Second}},
		{Limit: quota.Limit{Permits: 20, Window: time.Hour}, Withheld: "etcd was restored from a backup"},
		{Limit: quota.Limit{Permits: 30, Window: 24 * time.Hour}},
	}}
	got := map[string]float64{}
	for _, m := range All {
		if m.Name == "quotient_limit_withheld" {
			m.Read(&s, func(v float64, label string) { got[label] = v })
		}
	}
	if want := map[string]float64{"h": 1, "d": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
