// Package cause has the words for what decides that a call gets no permits. Errors, metrics, answers
// over HTTP, logs, Status.Problem, top, doctor and quotad read them here, so that all of them call a
// cause by one name.
package cause

import (
	"cmp"

	"github.com/quotient-limiter/quotient/quota"
)

// Cause is what a cause is called.
type Cause struct {
	// Reason is that of consumer.LimitError, and the label of metrics, there with "_" for blanks.
	Reason string
	// Title is that of the answer over HTTP (RFC 9457).
	Title string
	// Word is what top, doctor and the log call the instance: its state, but for a debt.
	Word string
	// Limit says that a limit decided, or the calls ahead in the queue, so that to come later
	// helps. Otherwise the instance's state decided.
	Limit bool
}

// PaysDebt is the Word of a debt. The state of the instance is active.
const PaysDebt = "pays a debt"

const (
	spent = "The quota for such requests is used up"
	away  = "Temporarily unavailable"
)

// All are the causes, by their reasons.
var All = []Cause{
	{"share spent", spent, string(quota.StateActive), true},
	{"debt", "The quota is reserved for earlier requests", PaysDebt, true},
	{"queue", "Too many requests are waiting", string(quota.StateActive), true},
	{"kept", spent, string(quota.StateActive), true},
	{"pacing", spent, string(quota.StateActive), true},
	{"in flight", "Too many requests are under way", string(quota.StateActive), true},
	{"joining", "Not ready yet", string(quota.StateJoining), false},
	{"pause", "The provider asked for a pause", string(quota.StatePausing), false},
	{"paused", "The provider is paused", string(quota.StatePaused), false},
	{"too large", spent, string(quota.StateActive), true},
	{"queue full", "Too many requests are waiting", string(quota.StateActive), true},
	{"closed", away, string(quota.StateClosed), false},
	{"no policy", "No limit is set", string(quota.StateJoining), false},
	{"stale", away, string(quota.StateStale), false},
}

// Of returns the cause with a reason. One that is not known is temporary.
func Of(reason string) Cause {
	for _, c := range All {
		if c.Reason == reason {
			return c
		}
	}
	return Cause{Reason: reason, Title: away}
}

// Word is what an instance in a state and with a debt is called.
func Word(state quota.State, debt int64) string {
	if state == quota.StateActive && debt > 0 {
		return PaysDebt
	}
	return cmp.Or(string(state), string(quota.StateClosed))
}

// Says is what doctor and quotad say of an instance: its Word, and its problem if it has one.
func Says(state quota.State, debt int64, problem string) string {
	word := Word(state, debt)
	if word != PaysDebt {
		word = "is " + word
	}
	if problem != "" {
		word += ": " + problem
	}
	return word
}
