package config

import (
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

const ms = time.Millisecond

func TestWhichGuardsAreJudged(t *testing.T) {
	for _, c := range []struct {
		guard  quota.Policy
		beyond time.Duration
		want   string // of the reason why not; empty: judged
	}{
		{quota.Policy{Timing: quota.Timing{ClockError: 50 * ms}}, 0, "no guard; --guard 50ms"},
		{quota.Policy{Timing: quota.Timing{ClockError: 50 * ms, Guard: 49 * ms}}, 0, "49ms does not cover the policy's clock error of 50ms"},
		{quota.Policy{Timing: quota.Timing{ClockError: 50 * ms, Guard: 50 * ms}}, 0, ""},
		{quota.Policy{Timing: quota.Timing{ClockError: 50 * ms, Guard: 50 * ms}}, 3 * ms, "3ms further"},
	} {
		of := &Config{Settle: quota.DefaultSettle, policy: quota.Policy{Timing: quota.Timing{Guard: c.guard.Guard}}}
		if got := of.Unjudged(c.beyond); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v, %v beyond: %q", c.guard, c.beyond, got)
		}
	}
}
