package httplimit

import "github.com/quotient-limiter/quotient/internal/ratefields"

// For the tests of this package.
var (
	RetryAfter = retryAfter
	Seconds    = ratefields.Seconds
)
