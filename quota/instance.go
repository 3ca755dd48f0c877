package quota

import "time"

// Instance is one incarnation of a consumer process, as its key in etcd says.
type Instance struct {
	// ID is the incarnation: never used twice, also not by the same process.
	// It is the last part of the key, not in the value.
	ID      string `json:"-"`
	Name    string `json:"name"` // chosen by the operator or the host name; not unique
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"`
	Weight  int64  `json:"weight"` // at least 1; zero means 1
	// Attempt is how often it was tried before to write this: an answer may have
	// been lost. No two attempts write the same value.
	Attempt int       `json:"attempt,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// From is when the instance begins to take part: it has a share of the
	// windows that start at or after it. Zero: all.
	From time.Time `json:"from,omitzero"`
	// Until is when it ends: it has no share of the windows that start at or
	// after it. Zero: it has not announced its end.
	Until time.Time `json:"until,omitzero"`
	// Borrows says that it uses permits that others lend it until From.
	Borrows bool `json:"borrows,omitempty"`
	// Seal shows that the incarnation itself wrote Until. Nobody else can make it.
	Seal string `json:"seal,omitempty"`
}

// State is what a limiter is doing.
type State string

// The states of a limiter.
const (
	// StateJoining has no share yet: it waits until the others have settled,
	// for a policy, or for etcd; Report.Problem says which.
	StateJoining State = "joining"
	// StateActive enforces its share.
	StateActive State = "active"
	// StateStale cannot prove its view recent; the policy's outage rule is in
	// force.
	StateStale State = "stale"
	// StateDraining issues nothing because the provider said so.
	StateDraining State = "draining"
	// StatePaused issues nothing because the policy says so.
	StatePaused State = "paused"
	// StateClosed issues nothing, for good.
	StateClosed State = "closed"
)

// Report is what an instance tells operators about itself. Under ShareDemand
// the instance that works out the level reads it too.
type Report struct {
	Schema         int           `json:"schema"`
	Name           string        `json:"name"`
	State          State         `json:"state"`
	Revision       int64         `json:"revision"`        // newest revision applied
	PolicyRevision int64         `json:"policy_revision"` // of the policy applied
	Window         time.Duration `json:"-"`               // length of the shortest limit's window
	Total          int64         `json:"total"`           // of the shortest limit
	Share          int64         `json:"share"`           // of the shortest limit, this window
	Instances      int           `json:"instances"`
	Used           int64         `json:"used"` // permits issued since the start
	// WindowStart is when the shortest limit's window began that ran at Time, and
	// UsedBefore is Used without what was issued in it. From two reports follows
	// what was issued in whole windows, which Used alone does not tell: it may
	// hold a part of one. Zero where no limit is in force.
	WindowStart time.Time `json:"window_start,omitzero"`
	UsedBefore  int64     `json:"used_before,omitempty"`
	Refused     int64     `json:"refused"` // since the start
	// Shadowed are the refusals since the start that shadow mode let pass; they
	// are not among Refused.
	Shadowed int64 `json:"shadowed,omitempty"`
	Waiting  int64 `json:"waiting"`
	// Demand is what the instance's callers ask for, in permits per 1,000
	// seconds: issued, refused and waiting together, smoothed. Under
	// ShareDemand the instance's claim depends on it.
	Demand      int64     `json:"demand"`
	ClockError  string    `json:"clock_error"`            // a duration, or "unknown"
	ClockSource string    `json:"clock_source,omitempty"` // "ntp", "kernel" or "system"
	ProofAge    string    `json:"proof_age"`              // a duration, or "none"
	Problem     string    `json:"problem,omitempty"`
	Time        time.Time `json:"time"`
}
