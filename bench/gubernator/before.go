// Package gubernator has the lines of docs/compare.md that call gubernator, so that they compile.
package gubernator

import (
	"context"
	"errors"
	"time"

	"github.com/gubernator-io/gubernator/v2"
)

// tooMany is the answer of the program to a customer who has to wait so long.
func tooMany(time.Duration) error { return errors.New("too many requests") }

// Ask limits each customer by gubernator.
func Ask(ctx context.Context, client gubernator.V1Client, customer string) error {
	answer, err := client.GetRateLimits(ctx, &gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{{
		Name: "api", UniqueKey: customer, Hits: 1, Limit: 10, Duration: gubernator.Second,
	}}})
	if err == nil && answer.Responses[0].Status == gubernator.Status_OVER_LIMIT {
		return tooMany(time.Until(time.UnixMilli(answer.Responses[0].ResetTime)))
	}
	return err
}
