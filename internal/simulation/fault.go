package simulation

// Fault is a rule broken on purpose. Each seems harmless, and each breaks the
// sum; a simulation that does not catch one of them checks too little.
type Fault int

// The faults.
const (
	None Fault = iota
	// AnchorNow looks back from now instead of from the window's start.
	AnchorNow
	// Coalesce applies the revisions that arrive together as one view.
	Coalesce
	// GapKeepsHistory keeps the old views when a gap is bridged by a listing.
	GapKeepsHistory
	// SameID gives a restarted instance its old incarnation's ID.
	SameID
	// JoinAtOnce lets a joiner use its share without waiting.
	JoinAtOnce
	// ProofByArrival dates a proof by the answer, not by the question.
	ProofByArrival
	// ProofWithoutPosition takes a linearizable read alone as a proof.
	ProofWithoutPosition
	// ProofByAnyAnswer takes an answer that a lagging member gives by itself,
	// such as a kept-alive lease, as a proof.
	ProofByAnyAnswer
	// TimerFlag lets a timer switch freshness off, which a process that wakes
	// has not run yet.
	TimerFlag
	// MonoOnly takes a proof's age by the monotonic clock alone.
	MonoOnly
	// SleepUnseen goes on by a clock that lost a suspension's time.
	SleepUnseen
	// OldEvent applies an event again that came before.
	OldEvent
	// TwoWatches learns policy and instances by two streams.
	TwoWatches
	// NoProof never asks how recent the view is.
	NoProof
	// SlowClocks has clocks that are off by more than the policy says.
	SlowClocks
	// NewestSettle forgets a longer settle time with the view that had it.
	NewestSettle
	// SettleAtOnce lets operators lower the settle time below the freshness
	// that instances may still go by.
	SettleAtOnce
	// HoldGrows goes on growing while stale.
	HoldGrows
)

var faultNames = [...]string{"None", "AnchorNow", "Coalesce", "GapKeepsHistory", "SameID", "JoinAtOnce",
	"ProofByArrival", "ProofWithoutPosition", "ProofByAnyAnswer", "TimerFlag", "MonoOnly", "SleepUnseen", "OldEvent",
	"TwoWatches", "NoProof", "SlowClocks", "NewestSettle", "SettleAtOnce", "HoldGrows"}

// String returns the fault's name as it is spelled in Go.
func (f Fault) String() string { return faultNames[f] }

// Kind is a family of histories.
type Kind int

// The kinds.
const (
	// Stop has outage rule stop, one timing for all of the history, and every
	// trouble there is. The exact bound holds for each window.
	Stop Kind = iota
	// Timing is Stop with changes of the settle time and the freshness.
	Timing
	// Hold has outage rule hold and a total outage that does not end.
	Hold
	// Calm has nothing but joins, leaves and changes of limits that are
	// announced in time, and nobody is late: nothing may be lost.
	Calm
)

var kindNames = [...]string{"Stop", "Timing", "Hold", "Calm"}

// String returns the kind's name as it is spelled in Go.
func (k Kind) String() string { return kindNames[k] }
