package moves

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// A refusal that names no time, as while the provider is paused, still makes an answer that a client can obey.
func TestAKeyOfAPausedProvider(t *testing.T) {
	second := []quota.Limit{{Permits: 10, Window: time.Second}}
	limiter, err := consumer.Open(t.Context(), consumer.Fixed(quota.Policy{Limits: second, Keys: quota.Keys{Limits: second}, Mode: quota.ModePause}), "api", consumer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	if err := Key(t.Context(), limiter, "customer"); err == nil || err.Error() != "too many requests: again in 1s" {
		t.Error(err)
	}
}
