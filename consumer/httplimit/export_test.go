package httplimit

// For the tests of this package.
var (
	RetryAfter = retryAfter
	Seconds    = seconds
	NewKeyed   = newKeyed
	Take       = (*keyed).take
)
