package httplimit

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// DefaultMaxKeys is how many keys PerKey remembers, at about 200 bytes each
// and the key.
const DefaultMaxKeys = 65536

// KeyOptions of PerKey. The zero value limits by the client's address.
type KeyOptions struct {
	// Key returns the key of a request; default RemoteIP. Requests with the same
	// key share the limits; so do those with an empty one.
	Key func(*http.Request) string
	// MaxKeys bounds the memory. Beyond it, the least recently used key is
	// forgotten; it has its whole limit when it comes back. Default DefaultMaxKeys.
	MaxKeys int
	// Cost, Name and Refuse are as in Options; the default name is "client".
	Cost   func(*http.Request) int64
	Name   string
	Refuse RefuseFunc
}

// PerKey returns middleware that limits each key by itself. All of the limits must
// admit a request: quota.ParseLimits("500/2s,2000/10s,10000/1m"). Windows are
// aligned to the clock, so a key can use two windows around an edge. A second, longer
// limit bounds that.
//
// The counts are in the memory of this process: n servers behind a balancer admit up to
// n times the limits. If a client's limit must hold over all servers, divide it by
// their number. Or route each client to one server, or use Handler with a limiter for
// that client.
//
// A key must be something that a client cannot invent: an address or an authenticated
// name. A client that chooses its key chooses its limit, and by sending many keys it
// makes PerKey forget others.
func PerKey(limits []quota.Limit, o KeyOptions) (func(http.Handler) http.Handler, error) {
	if err := (quota.Policy{Limits: limits}).WithDefaults().Validate(); err != nil {
		return nil, fmt.Errorf("httplimit: PerKey: %w", err)
	}
	if o.MaxKeys < 0 {
		return nil, fmt.Errorf("httplimit: PerKey: MaxKeys is %d: at least 1 key must be remembered, 0 means %d", o.MaxKeys, DefaultMaxKeys)
	}
	if o.Key == nil {
		o.Key = RemoteIP
	}
	keys := newKeyed(slices.Clone(limits), cmp.Or(o.MaxKeys, DefaultMaxKeys))
	began := time.Now()
	wall := func() int64 { return began.UnixNano() + int64(time.Since(began)) } // never goes back
	return middleware(Options{Cost: o.Cost, Name: cmp.Or(o.Name, "client"), Refuse: o.Refuse}, func(r *http.Request, cost int64) refusal {
		uses, ok := keys.take(o.Key(r), cost, wall())
		if ok {
			return refusal{uses: uses}
		}
		return refusal{status: http.StatusTooManyRequests, err: errKey, uses: uses}
	})
}

// errKey is given to KeyOptions.Refuse.
var errKey = fmt.Errorf("httplimit: the client's own limit: %w", consumer.ErrLimited)

// RemoteIP returns the address of the connection's other end: all of an IPv4 address, and
// the first 64 bits of an IPv6 one, because a single client controls the rest. Behind a
// proxy that is the proxy's address; fields such as X-Forwarded-For are ignored, because
// clients can forge them.
func RemoteIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host // a socket of another kind
	}
	if address = address.Unmap().WithZone(""); address.Is4() {
		return address.String()
	}
	network, _ := address.Prefix(64) // fits every IPv6 address
	return network.String()
}

// counts holds the permits that one key has used, by limit.
type counts []struct{ index, used int64 }

// keyed holds the counts of the most recently used keys.
type keyed struct {
	limits []quota.Limit

	mu     sync.Mutex
	counts *simplelru.LRU[string, counts] // guarded by mu
}

func newKeyed(limits []quota.Limit, most int) *keyed {
	lru, _ := simplelru.NewLRU[string, counts](most, nil) // fails for a size below 1 only
	return &keyed{limits: limits, counts: lru}
}

// take takes n permits of the key's limits, all or none, at the wall-clock
// instant wall, and returns what the limits have left.
func (k *keyed) take(key string, n, wall int64) ([]consumer.LimitUse, bool) {
	if len(key) > sha256.Size {
		sum := sha256.Sum256([]byte(key)) // a header may hold a megabyte
		key = "sha256:" + string(sum[:])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.counts.Get(key)
	if !ok {
		t = make(counts, len(k.limits))
		k.counts.Add(key, t)
	}
	uses, now, enough := make([]consumer.LimitUse, len(k.limits)), time.Now(), true
	for i, l := range k.limits {
		w := quota.WindowAt(l.Window, wall)
		if w.Index > t[i].index {
			t[i].index, t[i].used = w.Index, 0
		}
		uses[i] = consumer.LimitUse{Limit: l, Left: l.Permits - t[i].used, End: now.Add(time.Duration(w.End() - wall))}
		enough = enough && n <= uses[i].Left
	}
	for i := range uses {
		if enough {
			t[i].used += n
			uses[i].Left -= n
		}
	}
	return uses, enough
}
