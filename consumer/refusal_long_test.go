package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

// Where several limits are used up, a refusal names the one by which RetryAt goes, of the provider and of a key. A part of
// a sliding limit ends after 1.2 s here, before or after the second; RetryAt is when its first permits count no more.
func TestARefusalNamesTheLimitOfItsTime(t *testing.T) {
	const limits = "6/s,60/2m sliding"
	for of, keys := range map[string]string{"the provider": "", "a key": limits} {
		for begins := range 12 {
			policy := policyOf(t, limits)
			if keys != "" {
				policy = policyOf(t, "1000/s")
				policy.Keys.Limits = policyOf(t, keys).Limits
			}
			bubble(t, policy, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
				pass(time.Duration(begins) * time.Second)
				take := l.Take
				if keys != "" {
					take = l.Key("a").Take
				}
				began := time.Now()
				for range 10 {
					if _, err := take(ctx, 6, consumer.Forever); err != nil {
						t.Fatal(err)
					}
				}
				for n := range int64(2) {
					_, err := take(ctx, 1+n, 0)
					e, ok := limitError(err)
					if wait := e.RetryAt.Sub(began); !ok || wait < 2*time.Minute || wait > 2*time.Minute+3*time.Second || e.Total != 60 || e.Window.Length != 2*time.Minute ||
						!strings.Contains(err.Error(), "60/2m sliding") || !strings.Contains(err.Error(), fmt.Sprint("next at ", e.RetryAt.UTC().Format("15:04:05"))) {
						t.Errorf("%s, from %d s on: %v", of, begins, err)
					}
				}
			})
		}
	}
}
