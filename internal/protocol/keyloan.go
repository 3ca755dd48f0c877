package protocol

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// KeyPermits are numbers of permits by key. As a loan it is the sums of what one instance,
// the host, has lent to another, the guest, in exactly these windows. As an ask it is what a
// guest lacks.
type KeyPermits struct {
	// Windows are those in which the sender counts keys, shortest first.
	Windows []quota.Window `json:"windows"`
	// Permits are at least 1 for each key.
	Permits map[string]int64 `json:"permits"`
}

const (
	// MaxKeyPermitBytes bounds the keys of one ask.
	MaxKeyPermitBytes = 8 << 10
	// mostJoined bounds the keys of messages that are written as one, in bytes of names and
	// numbers. readKeyPermits bounds what is read.
	mostJoined     = 2 * MaxKeyPermitBytes
	readKeyPermits = 16 * MaxKeyPermitBytes
)

// KeyPermitBytes bounds what a key takes of a message: its name, its number and
// punctuation.
func KeyPermitBytes(name string) int {
	text, _ := json.Marshal(name) // a string always has a text
	return len(text) + 24
}

// Join returns what a message and the one before it say together: of a key the newer number.
// Keys of the one before are left out where both have no room. Messages of other windows
// are not joined.
func (n KeyPermits) Join(before KeyPermits) KeyPermits {
	if len(n.Windows) == 0 || !slices.Equal(n.Windows, before.Windows) {
		return n
	}
	all, size := maps.Clone(n.Permits), 0
	for name := range all {
		size += KeyPermitBytes(name)
	}
	for _, name := range slices.Sorted(maps.Keys(before.Permits)) {
		if _, there := all[name]; there {
			continue
		}
		if size += KeyPermitBytes(name); size > mostJoined {
			break
		}
		all[name] = before.Permits[name]
	}
	return KeyPermits{n.Windows, all}
}

// ReadKeyPermits reads a loan or an ask. That a host has issued the permits is not checked:
// the consumers of a provider trust each other with its limit.
func ReadKeyPermits(value []byte) (n KeyPermits, err error) {
	if err = readWindows("permits of keys", value, readKeyPermits, &n, &n.Windows); err != nil {
		return n, err
	}
	var errs problems
	for name, permits := range n.Permits {
		errs.add(ValidateKey(name) != nil || permits <= 0 || permits > quota.MaxPermits, "permits of keys: %d of %q", permits, name[:min(len(name), 64)])
	}
	return n, errors.Join(errs...)
}
