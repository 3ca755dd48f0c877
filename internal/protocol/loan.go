package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// Note is a loan or an ask of some windows. One instance writes it to another.
//
// As a loan it says how many permits the writer, the host, has issued for the reader, the guest, to
// use. They count at the host. As an ask it says how many permits the guest lacks.
type Note struct {
	// Windows are those in which the writer counts, shortest first. The permits may be used
	// while they run.
	Windows []quota.Window `json:"windows"`
	// Permits are numbers by key, each at least 1. The key "" is the provider. A loan has the sum of
	// what the host has lent to the guest in exactly these windows. An ask is in permits for a
	// key, and in thousandths for the provider, since it may be for a sample.
	Permits map[string]int64 `json:"permits"`

	// The fields below belong to the provider's number.

	// Poor, in an ask, are the permits that the guest lacks to its fair share, and Critical those
	// that its critical calls lack, both in thousandths and among those asked for.
	Poor     int64 `json:"poor,omitempty"`
	Critical int64 `json:"critical,omitempty"`
	// Edge, in an ask, is what a large call that stands wants of each host at the next edge of
	// the shortest window, in thousandths and at most what is asked for.
	Edge int64 `json:"edge,omitempty"`
	// Sample, in an ask, says which hosts are asked, if not one.
	Sample
}

// Sample names a part of all hosts without a list of them.
type Sample struct {
	Salt uint64 `json:"salt,omitempty"`
	Part uint64 `json:"part,omitempty"` // of 2^32; 0 if one host is asked
}

// Rank orders the hosts with these hashes by chance: a sample is those of the lowest ranks.
func (s Sample) Rank(hash uint64) uint64 { return Mix(hash ^ s.Salt) }

// Has reports whether the host with this hash is in the sample.
func (s Sample) Has(hash uint64) bool { return s.Rank(hash)>>32 < s.Part }

// Whole rounds an amount of thousandths for the host with this hash: down, or up with the
// chance of its fraction.
func (s Sample) Whole(thousandths int64, hash uint64) int64 {
	return (thousandths + int64(Mix(hash^Mix(s.Salt))%1000)) / 1000
}

// Request is an ask and whom it is for; Host is empty if it is for a sample.
type Request struct {
	Host string
	Note
}

const (
	// MostAsked bounds the keys of one ask, in bytes by NoteBytes.
	MostAsked = 8 << 10
	// mostJoined bounds the keys of notes that are joined, in bytes by NoteBytes.
	mostJoined = 2 * MostAsked
	// mostRead bounds a message that is read, in bytes.
	mostRead = 16 * MostAsked
	// mostNotes bounds the notes of a message. An instance counts its provider in some windows
	// and its keys in others, or in the same.
	mostNotes = 2
	// mostWindows bounds the windows of a note. A policy has at most eight, and a change of policy
	// has both.
	mostWindows = 64
)

// NoteBytes bounds what a key takes of a note: its name, its number and punctuation.
func NoteBytes(name string) int {
	text, _ := json.Marshal(name) // a string always has a text
	return len(text) + 24
}

// JoinNote returns the message with a note added. A message is what an instance tells
// another at a time. A note of the same windows is joined with the new one: of a key the newer number
// counts, and keys of the older note are left out where both have no room. A note of earlier windows
// of the same lengths is dropped, and the oldest note if there are more than two.
func JoinNote(message []Note, n Note) []Note {
	var all []Note
	for _, before := range message {
		switch {
		case slices.Equal(before.Windows, n.Windows):
			n = n.joined(before)
		case !slices.EqualFunc(before.Windows, n.Windows, func(a, b quota.Window) bool { return a.Length == b.Length }):
			all = append(all, before)
		}
	}
	all = append(all, n)
	return all[max(0, len(all)-mostNotes):]
}

// joined returns a note and the one before it of the same windows as one.
func (n Note) joined(before Note) Note {
	all, size := maps.Clone(n.Permits), 0
	for name := range all {
		size += NoteBytes(name)
	}
	if _, there := all[""]; !there { // the fields of the provider go with its number
		n = before
	}
	for _, name := range slices.Sorted(maps.Keys(before.Permits)) {
		if _, there := all[name]; there {
			continue
		}
		if size += NoteBytes(name); size > mostJoined {
			break
		}
		all[name] = before.Permits[name]
	}
	n.Permits = all
	return n
}

// ReadNotes reads a message. Nothing in it is trusted but one thing: that a host has issued the permits
// of a loan is not checked, since the consumers of a provider trust each other with its limit. A
// message of an earlier form, which is no list, is refused.
func ReadNotes(value []byte) (message []Note, err error) {
	if len(value) > mostRead {
		return nil, fmt.Errorf("message: %d bytes, at most %d are read", len(value), mostRead)
	}
	if err := json.Unmarshal(value, &message); err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	var errs problems
	errs.add(len(message) == 0 || len(message) > mostNotes, "message: %d notes, it must have 1 to %d", len(message), mostNotes)
	for _, n := range message {
		n.check(&errs)
	}
	return message, errors.Join(errs...)
}

func (n Note) check(errs *problems) {
	errs.add(len(n.Windows) == 0 || len(n.Windows) > mostWindows, "note: %d windows, it must name 1 to %d", len(n.Windows), mostWindows)
	for _, w := range n.Windows {
		errs.add(w.Length < quota.MinWindow || w.Length > quota.MaxWindow, "note: a window of %v, it must be of %v to %v", w.Length, quota.MinWindow, quota.MaxWindow)
	}
	for name, permits := range n.Permits {
		most := quota.MaxPermits
		if name == "" {
			most *= 2000
		}
		errs.add(name != "" && ValidateKey(name) != nil || permits < 1 || permits > most, "note: %d permits of %q, they must be 1 to %d", permits, name[:min(len(name), 64)], most)
	}
	for _, part := range []int64{n.Poor, n.Critical, n.Edge} {
		errs.add(part < 0 || part > n.Permits[""], "note: %d permits are %d poor, %d critical, %d at the edge: each must be 0 to all of them", n.Permits[""], n.Poor, n.Critical, n.Edge)
	}
}
