package coordinator

import (
	"fmt"
	"maps"
	"sync"
)

// duplicates are the providers of which this process has an instance, to find a second
// one, of another session. That is legal, and most often a mistake: each instance
// has a share of its own, and an idle one wastes it.
var duplicates = struct {
	sync.Mutex
	first map[providerKey]*duplicate
}{first: map[providerKey]*duplicate{}}

// providerKey names a provider among all clusters and prefixes.
type providerKey struct {
	cluster uint64
	folder  string
}

// duplicate is the first instance of a provider.
type duplicate struct {
	membership *membership
	name       string
	told       bool // of a second one
}

// noteRegistered notes that the membership is registered as an incarnation, and warns once
// if another session has an instance of the provider.
func (p *membership) noteRegistered(cluster uint64, id string) {
	k := providerKey{cluster, p.s.keys.Provider(p.provider)}
	own := &duplicate{membership: p, name: fmt.Sprintf("%s (%s)", p.s.o.Name, id)}
	duplicates.Lock()
	defer duplicates.Unlock()
	first := duplicates.first[k]
	switch {
	case first == nil || first.membership == p:
		duplicates.first[k] = own
	case !first.told:
		first.told = true
		p.s.o.Logger.Warn("this process has two instances of one provider, by two sessions; each has a share of its own, also while it is idle: use one session",
			"provider", p.provider, "first", first.name, "second", own.name)
	}
}

// noteClosed notes that the membership is closed.
func (p *membership) noteClosed() {
	duplicates.Lock()
	defer duplicates.Unlock()
	maps.DeleteFunc(duplicates.first, func(_ providerKey, d *duplicate) bool { return d.membership == p })
}
