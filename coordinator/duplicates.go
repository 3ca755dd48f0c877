package coordinator

import (
	"fmt"
	"sync"
)

// duplicates are the providers of which this process has an instance, to find a second
// one, of another session. That is legal, and most often a mistake: each instance
// has a share of its own, and an idle one wastes it.
var duplicates = struct {
	sync.Mutex
	first map[providerKey]instance
	told  map[providerKey]bool
}{first: map[providerKey]instance{}, told: map[providerKey]bool{}}

// providerKey names a provider among all clusters and prefixes.
type providerKey struct {
	cluster uint64
	folder  string
}

// instance is an instance of this process.
type instance struct {
	membership *membership
	id         string
}

func (t instance) String() string { return fmt.Sprintf("%s (%s)", t.membership.s.o.Name, t.id) }

// noteRegistered notes that the membership is registered, and warns once if another session
// has an instance of the provider.
func (p *membership) noteRegistered(cluster uint64, id string) {
	k, own := providerKey{cluster, p.s.keys.Provider(p.provider)}, instance{p, id}
	duplicates.Lock()
	defer duplicates.Unlock()
	first, found := duplicates.first[k]
	switch {
	case !found || first.membership == p:
		duplicates.first[k] = own
	case !duplicates.told[k]:
		duplicates.told[k] = true
		p.s.o.Logger.Warn("this process has two instances of one provider, by two sessions; each has a share of its own, also while it is idle: use one session",
			"provider", p.provider, "first", first.String(), "second", own.String())
	}
}

// noteClosed notes that the membership is closed.
func (p *membership) noteClosed() {
	duplicates.Lock()
	defer duplicates.Unlock()
	for k, first := range duplicates.first {
		if first.membership == p {
			delete(duplicates.first, k)
		}
	}
}
