package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

func TestRemoteIPIgnoresWhatAnybodyCanSend(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"192.0.2.1:4711":              "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:4711": "2001:db8:1:2::/64",
		"[::ffff:192.0.2.1]:4711":     "192.0.2.1",
		"[fe80::1%eth0]:4711":         "fe80::/64",
		"@":                           "@",
		"192.0.2.1":                   "192.0.2.1",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = from
		for _, field := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP"} {
			r.Header.Set(field, "203.0.113.9")
		}
		if got := httplimit.RemoteIP(r); got != want {
			t.Errorf("%s: got %s, want %s", from, got, want)
		}
	}
}

// Each key gets what a naive count of its own would give it.
func TestPerKeyAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limits := []quota.Limit{{Permits: 3, Window: time.Second}, {Permits: 5, Window: 4 * time.Second}}
		keys := httplimit.NewKeyed(limits, 10)
		type call struct {
			key  string
			wall int64
			n    int64
		}
		var admitted []call
		wall := int64(1e18)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			wall += rapid.Int64Range(0, int64(700*time.Millisecond)).Draw(t, "pause")
			c := call{rapid.SampledFrom([]string{"a", "b", strings.Repeat("c", 99)}).Draw(t, "key"), wall, rapid.Int64Range(1, 3).Draw(t, "n")}
			want := true
			for _, l := range limits {
				sum := c.n
				for _, before := range admitted {
					if before.key == c.key && quota.WindowAt(l.Window, before.wall) == quota.WindowAt(l.Window, c.wall) {
						sum += before.n
					}
				}
				want = want && sum <= l.Permits
			}
			_, got := httplimit.Take(keys, c.key, c.n, c.wall)
			if got != want {
				t.Fatalf("%+v: admitted %v, want %v", c, got, want)
			}
			if got {
				admitted = append(admitted, c)
			}
		}
	})
}

func TestPerKeyForgetsTheOldest(t *testing.T) {
	t.Parallel()
	keys := httplimit.NewKeyed(limits(t, "1/1m"), 2)
	var got []bool
	for _, key := range []string{"a", "b", "a", "b", "c", "a", "b"} {
		_, ok := httplimit.Take(keys, key, 1, 1e18)
		got = append(got, ok)
	}
	// c pushed a out, and a, come back, pushed b out.
	if want := []bool{true, true, false, false, true, true, true}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
