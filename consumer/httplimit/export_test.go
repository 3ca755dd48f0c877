package httplimit

// For the tests of this package.
var (
	RetryAfter = retryAfter
	Seconds    = seconds
	Stated     = stated
	NewKeyed   = newKeyed
	Take       = (*keyed).take
)
