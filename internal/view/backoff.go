package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// KnownBackoff is what was seen of a provider's back-off. It outlives gaps: the key counts
// once for each of its revisions, so a pause is bounded from when it was first seen.
type KnownBackoff struct {
	protocol.Backoff       // as AsksIn has read it
	Revision         int64 // of the key; 0 if there is none
	told             int64 // up to here the key was seen
}

// Event takes a key from the watch, and reports whether the back-off has changed.
func (a *KnownBackoff) Event(k *Key, read func(value []byte) protocol.Backoff) (news bool) {
	if k.Kind != Backoff || k.Revision <= a.told {
		return false
	}
	a.see(k, read)
	return true
}

// List takes the key from a listing as of a revision, and reports whether the back-off
// has changed.
func (a *KnownBackoff) List(revision int64, all []Key, read func(value []byte) protocol.Backoff) (news bool) {
	k := &Key{Deleted: true}
	if i := slices.IndexFunc(all, func(k Key) bool { return k.Kind == Backoff }); i >= 0 {
		k = &all[i]
	}
	if news = k.Revision != a.Revision; news {
		a.see(k, read)
	}
	a.told = revision
	return news
}

func (a *KnownBackoff) see(k *Key, read func(value []byte) protocol.Backoff) {
	a.told, a.Revision, a.Backoff = k.Revision, k.Revision, read(k.Value)
	if k.Deleted {
		a.Revision = 0
	}
}

// AsksIn reads a back-off. An unreadable value does not count, nor an ask by a
// stranger, nor the part of an ask after latest.
func (t *Tracker) AsksIn(value []byte, latest time.Time) (b protocol.Backoff, err error) {
	if len(value) == 0 {
		return b, nil
	}
	b, err = protocol.ReadBackoff(value)
	b.Asks = slices.DeleteFunc(b.Asks, func(a protocol.Ask) bool {
		if t.Has(a.By) {
			return false
		}
		err = fmt.Errorf("%q is no instance", a.By)
		return true
	})
	for i := range b.Asks {
		if b.Asks[i].Until.After(latest) {
			b.Asks[i].Until = latest
		}
	}
	return b, err
}
