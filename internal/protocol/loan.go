package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// Note is a loan or an ask of some windows. One instance writes it to another. The key "" is the
// provider.
type Note struct {
	// Windows are those in which the writer counts, shortest first. The permits may be used
	// while they run.
	Windows []quota.Window `json:"windows"`
	// Permits make the note a loan. They are numbers by key, each at least 1: the sum of what the
	// writer, the host, has issued for the reader, the guest, to use in exactly these windows. They
	// count at the host.
	Permits map[string]int64 `json:"permits,omitempty"`
	// Needs make the note an ask: what the writer, the guest, lacks, by key.
	Needs map[string]Need `json:"needs,omitempty"`
}

// OfSample reports whether the note asks a sample of all hosts, for any key.
func (n Note) OfSample() bool {
	for _, need := range n.Needs {
		if need.Part > 0 {
			return true
		}
	}
	return false
}

// Need is what a guest asks one host for, or each host of a sample. Its numbers are in thousandths of
// a permit, since each host of a sample is asked for a small part.
type Need struct {
	Permits int64 `json:"permits"`
	// Poor are those of Permits that the guest lacks to its fair share, and Critical those that
	// its critical calls lack.
	Poor     int64 `json:"poor,omitempty"`
	Critical int64 `json:"critical,omitempty"`
	// Sure says that the guest will use what it is lent: callers wait, or many calls come. Otherwise it
	// expects a call or two, which may not come.
	Sure bool `json:"sure,omitempty"`
	// Large says that large calls of the guest wait for some of Permits.
	Large bool `json:"large,omitempty"`
	// Edge is what a large call that stands wants of each host at the next edge of the shortest
	// window, at most Permits.
	Edge int64 `json:"edge,omitempty"`
	// Sample says which hosts are asked, if not one.
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

// Request is a note and the host it is for; Host is empty if it is an ask of a sample.
type Request struct {
	Host string
	Note
}

const (
	// MostAsked bounds the keys of one ask, in bytes by NeedBytes.
	MostAsked = 16 << 10
	// mostJoined bounds the keys of notes that are joined, in bytes.
	mostJoined = 2 * MostAsked
	// mostRead bounds a message that is read, in bytes.
	mostRead = 8 * MostAsked
	// mostNotes bounds the notes of a message. An instance counts its provider in some windows
	// and its keys in others, or in the same.
	mostNotes = 2
	// mostWindows bounds the windows of a note. A policy has at most eight, and a change of policy
	// has both.
	mostWindows = 64
)

// NeedBytes returns what a key takes of an ask: its name, its need and punctuation.
func NeedBytes(name string, n Need) int { return bytesOf(name, n) }

// MostNeedBytes returns the most that a key takes of an ask.
func MostNeedBytes(name string) int {
	return bytesOf(name, Need{mostNeeded, mostNeeded, mostNeeded, true, true, mostNeeded, Sample{math.MaxUint64, 1 << 32}})
}

// bytesOf returns what a key takes of a note.
func bytesOf[T any](name string, of T) int {
	key, _ := json.Marshal(name) // texts and numbers always have a text
	value, _ := json.Marshal(of)
	return len(key) + len(value) + len(":,")
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
	n.Permits = joined(n.Permits, before.Permits)
	n.Needs = joined(n.Needs, before.Needs)
	return n
}

// joined returns what is said by key and what was said before, as far as there is room.
func joined[T any](said, before map[string]T) map[string]T {
	if len(before) == 0 {
		return said
	}
	all, size := make(map[string]T, len(said)+len(before)), 0
	for name, of := range said {
		all[name] = of
		size += bytesOf(name, of)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, there := all[name]; there {
			continue
		}
		if size += bytesOf(name, before[name]); size > mostJoined {
			break
		}
		all[name] = before[name]
	}
	return all
}

// Parts goes over a note in parts of at most so many keys, by names.
func (n Note) Parts(most int) iter.Seq[Note] {
	return func(yield func(Note) bool) {
		for part := range parts(n.Permits, most) {
			if !yield(Note{Windows: n.Windows, Permits: part}) {
				return
			}
		}
		for part := range parts(n.Needs, most) {
			if !yield(Note{Windows: n.Windows, Needs: part}) {
				return
			}
		}
	}
}

func parts[T any](all map[string]T, most int) iter.Seq[map[string]T] {
	return func(yield func(map[string]T) bool) {
		for names := range slices.Chunk(slices.Sorted(maps.Keys(all)), most) {
			part := make(map[string]T, len(names))
			for _, name := range names {
				part[name] = all[name]
			}
			if !yield(part) {
				return
			}
		}
	}
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
		errs.add(badName(name) || permits < 1 || permits > quota.MaxPermits, "note: %d permits of %q, they must be 1 to %d", permits, name[:min(len(name), 64)], quota.MaxPermits)
	}
	for name, need := range n.Needs {
		errs.add(badName(name) || need.Permits < 1 || need.Permits > mostNeeded, "note: %d thousandths of %q, they must be 1 to %d", need.Permits, name[:min(len(name), 64)], mostNeeded)
		for _, part := range []int64{need.Poor, need.Critical, need.Edge} {
			errs.add(part < 0 || part > need.Permits, "note: %d thousandths are %d poor, %d critical, %d at the edge: each must be 0 to all of them", need.Permits, need.Poor, need.Critical, need.Edge)
		}
	}
}

// mostNeeded bounds a need, in thousandths: twice what a limit can be.
const mostNeeded = 2000 * quota.MaxPermits

func badName(name string) bool { return name != "" && ValidateKey(name) != nil }
