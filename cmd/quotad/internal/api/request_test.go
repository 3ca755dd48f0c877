package api

import (
	"testing"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// No body makes a request that is out of bounds.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `{"provider":"p","permits":3,"max_wait":0.25}`, `{"provider":"p","max_wait":1e300}`, `{"provider":"p"} x`, `{"provider":"p","class":"critical"}`, `{"provider":"p","class":"gold"}`, `{"provider":"p","key":"a"}`, `{"provider":"p","key":"\n"}`, `{"used":5}`, `{"used":-0}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseRequest(body)
		if err == nil && (quota.ValidateProvider(r.provider) != nil || r.permits < 1 || r.permits > quota.MaxPermits || r.maxWait < 0 || r.maxWait > maxWaitBound || newProvider().turns[r.class] == nil || r.key != "" && protocol.ValidateKey(r.key) != nil) {
			t.Errorf("%q: %+v", body, r)
		}
		if used, err := parseUsed(body, 5); err == nil && (used < 0 || used > 5) {
			t.Errorf("%q: used %d", body, used)
		}
	})
}
