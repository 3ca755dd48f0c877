package peer

import "testing"

func TestLabel(t *testing.T) {
	t.Parallel()
	for benchmark, want := range map[string]string{
		"redis_rate_GCRA":     "redis_rate GCRA",
		"redis rate GCRA":     "redis_rate GCRA",
		"x-time-rate_Allow":   "x/time/rate Allow",
		"juju_ratelimit_Wait": "juju ratelimit Wait",
	} {
		if got := Label(benchmark); got != want {
			t.Errorf("%s is shown as %q, want %q", benchmark, got, want)
		}
	}
}
