package httplimit

import (
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
	// Key tells whose permits a request takes; default RemoteIP. Requests with
	// the same key share the limits, those with an empty one too.
	Key func(*http.Request) string
	// MaxKeys bounds the memory: beyond it, the key that was seen the longest ago
	// is forgotten, and starts anew when it comes back. Default DefaultMaxKeys.
	MaxKeys int
	// Cost, Name and Refuse are as in Options; the default name is "client".
	Cost   func(*http.Request) int64
	Name   string
	Refuse RefuseFunc
}

// PerKey returns middleware that gives every key limits of its own, all of which
// must admit a request: quota.ParseLimits("500/2s,2000/10s,10000/1m"). Windows
// are aligned to the clock, as everywhere, so a key can use up two windows around
// an edge; a second, longer limit bounds that.
//
// The counts are in this process's memory and no other server knows them: n
// servers behind a balancer admit up to n times the limits. Where a client's
// limit must hold over all servers, divide it by their number, route each client
// to one server, or open a limiter for that client and use Handler.
//
// Keys should be what a stranger cannot invent: an address or an authenticated
// name. Whoever can choose the key chooses the limit, and can make PerKey forget
// others by sending many.
func PerKey(limits []quota.Limit, o KeyOptions) (func(http.Handler) http.Handler, error) {
	if err := (quota.Policy{Limits: limits}).WithDefaults().Validate(); err != nil {
		return nil, fmt.Errorf("httplimit: PerKey: %w", err)
	}
	if o.MaxKeys < 0 {
		return nil, fmt.Errorf("httplimit: PerKey: MaxKeys is %d: at least 1 key must be remembered, 0 means %d", o.MaxKeys, DefaultMaxKeys)
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.Key == nil {
		o.Key = RemoteIP
	}
	if o.Name == "" {
		o.Name = "client"
	}
	name, err := newPolicyName(o.Name)
	if err != nil {
		return nil, err
	}
	keys, err := newKeyed(slices.Clone(limits), o.MaxKeys)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	wall := func() int64 { return began.UnixNano() + int64(time.Since(began)) } // never goes back
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cost := costOf(o.Cost, r)
			if cost <= 0 {
				next.ServeHTTP(w, r)
				return
			}
			uses, ok := keys.take(o.Key(r), cost, wall())
			name.addFields(w.Header(), uses)
			if ok {
				next.ServeHTTP(w, r)
				return
			}
			f := refusal{status: http.StatusTooManyRequests, err: errKey, name: o.Name, uses: uses, cost: cost, respond: o.Refuse}
			f.answer(w, r)
		})
	}, nil
}

// errKey is given to KeyOptions.Refuse.
var errKey = fmt.Errorf("httplimit: the client's own limit: %w", consumer.ErrLimited)

// RemoteIP returns the address of the connection's other end: all of an IPv4
// address, and the first 64 bits of an IPv6 one, of which a single client has all
// the rest. Behind a proxy that is the proxy's address; fields like
// X-Forwarded-For are not looked at, because anybody can send them.
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

// keyed holds the tallies of the keys that were seen last.
type keyed struct {
	limits []quota.Limit

	mu      sync.Mutex
	tallies *simplelru.LRU[string, tally] // guarded by mu
}

func newKeyed(limits []quota.Limit, most int) (*keyed, error) {
	lru, err := simplelru.NewLRU[string, tally](most, nil)
	if err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return &keyed{limits: limits, tallies: lru}, nil
}

// take takes n permits of the key's limits, all or none, at the wall-clock
// instant wall, and returns what the limits have left.
func (k *keyed) take(key string, n, wall int64) ([]use, bool) {
	if len(key) > sha256.Size {
		sum := sha256.Sum256([]byte(key)) // a header may hold a megabyte
		key = "sha256:" + string(sum[:])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.tallies.Get(key)
	if !ok {
		t = make(tally, len(k.limits))
		k.tallies.Add(key, t)
	}
	return t.take(k.limits, n, wall)
}

// tally is what one key has used: an element for every limit.
type tally []struct{ index, used int64 }

func (t tally) take(limits []quota.Limit, n, wall int64) ([]use, bool) {
	ok := true
	uses := make([]use, len(limits))
	for i, l := range limits {
		w := quota.WindowAt(l.Window, wall)
		if w.Index > t[i].index {
			t[i].index, t[i].used = w.Index, 0
		}
		uses[i] = use{l, l.Permits - t[i].used, time.Duration(w.End() - wall)}
		ok = ok && n <= uses[i].left
	}
	for i := range uses {
		if ok {
			t[i].used += n
			uses[i].left -= n
		}
	}
	return uses, ok
}
