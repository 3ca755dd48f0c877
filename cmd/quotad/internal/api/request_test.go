package api

import (
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// What is no number, or one that no number holds, is shown with the bounds of its field.
func TestWhatIsNoNumberIsShown(t *testing.T) {
	for body, want := range map[string]string{
		`{"provider":"p","permits":1` + strings.Repeat("0", 400) + `}`: "permits: 1" + strings.Repeat("0", 39) + "... given, must be a whole number from 1 to 1000000000000",
		`{"provider":"p","settle_within":"NaN"}`:                       `settle_within: "NaN" given, must be a number of seconds from 0 to 120`,
		`{"provider":"p","settle_within":null}`:                        "settle_within: null given, must be a number of seconds from 0 to 120",
		`{"provider":"p","max_wait":"soon"}`:                           `max_wait: "soon" given, must be a number of seconds from 0 to 60`,
	} {
		if _, err := parseRequest([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%.60s: %v, want %s", body, err, want)
		}
	}
}

// No body makes a request that is out of bounds.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `{"provider":"p","permits":3,"max_wait":0.25}`, `{"provider":"p","max_wait":1e300}`, `{"provider":"p"} x`, `{"provider":"p","class":"critical"}`, `{"provider":"p","class":"gold"}`, `{"provider":"p","label":"l"}`, `{"provider":"p","label":"\n"}`, `{"provider":"p","key":"a"}`, `{"provider":"p","key":"\n"}`, `{"wants":[{"provider":"p"},{"provider":"q","permits":3}],"settle_within":60}`, `{"provider":"p","partial":true}`, `{"used":[5,0]}`, `{"used":5}`, `{"used":-0}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseRequest(body)
		if err == nil && (len(r.wants) == 0 || len(r.wants) > maxWants || r.maxWait < 0 || r.maxWait > maxWaitBound || r.settleWithin < 0 || r.settleWithin > maxSettle || r.class != consumer.Critical && r.class != consumer.Default && r.class != consumer.Sheddable || r.label != "" && protocol.ValidateLabel(r.label) != nil) {
			t.Errorf("%q: %+v", body, r)
		}
		for _, w := range r.wants {
			if err == nil && (quota.ValidateProvider(w.provider) != nil || w.permits < 1 || w.permits > quota.MaxPermits || w.key != "" && protocol.ValidateKey(w.key) != nil) {
				t.Errorf("%q: %+v", body, w)
			}
		}
		if used, err := parseUsed(body, 2); err == nil && (len(used) != 2 || min(used[0], used[1]) < 0 || max(used[0], used[1]) > quota.MaxPermits) {
			t.Errorf("%q: used %d", body, used)
		}
	})
}
