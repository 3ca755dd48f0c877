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
		guard  Guard
		beyond time.Duration
		want   string // of the reason why not; empty: judged
	}{
		{Guard{Error: 50 * ms}, 0, "no guard"},
		{Guard{Error: 50 * ms, Fixed: 49 * ms}, 0, "49ms does not cover the policy's clock error of 50ms"},
		{Guard{Error: 50 * ms, Fixed: 50 * ms}, 0, ""},
		{Guard{Error: 50 * ms, Auto: true}, 0, ""},
		{Guard{Error: 50 * ms, Auto: true}, 3 * ms, "3ms further"},
	} {
		of := &Config{Settle: quota.DefaultSettle, policy: quota.Policy{Guard: c.guard.Fixed, GuardAuto: c.guard.Auto}}
		if got := of.Unjudged(c.beyond); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v, %v beyond: %q", c.guard, c.beyond, got)
		}
	}
}
