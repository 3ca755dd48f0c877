// Package safeguard names the rules that keep the sum of all permits under the
// total, one by one, so that a simulation can switch each of them off in the
// real code and see that it notices.
//
// Programs never switch one off: the zero Set, which every value starts with,
// has all in force. They are asked about where views, windows and proofs
// change, never on the path of a permit.
package safeguard

// Set is the safeguards that are switched off.
type Set uint64

// The safeguards, by where they stand. Each comment says what happens without.
const (
	// AnchorAtStart: the lookback starts S before now, not before the window.
	AnchorAtStart Set = 1 << iota
	// GapRestarts: the views held before a gap still count as the history.
	GapRestarts
	// JoinWaits: a new history allows windows at once.
	JoinWaits
	// LengthsApart: one lookback, of the shortest window, serves all lengths.
	LengthsApart
	// RemovedBinds: a limit that the newest view lacks binds no more.
	RemovedBinds
	// WholeWindow: a limit whose length comes into force within a window does
	// not bind that window.
	WholeWindow
	// Floor: every participant gets the quotient rounded up.
	Floor
	// TimingRule: a policy whose S does not exceed S' as it must is obeyed.
	TimingRule
	// ClaimsScale: claims do not shrink when the total is lowered.
	ClaimsScale
	// GrowthHeld: under other shapes than fixed windows, what an instance gains
	// counts at once.
	GrowthHeld
	// TurnHeld: under those shapes the permits that do not come out even change
	// hands in every window.
	TurnHeld
	// SkewReached: the windows in reach leave the clocks' errors out.
	SkewReached

	// EveryRevision: the revisions of one answer become one view.
	EveryRevision
	// NewerOnly: an event that came before replaces the view.
	NewerOnly
	// PositionReached: a linearizable read counts before the watch has delivered
	// what it saw.
	PositionReached
	// BackwardsIsGap: a store that went back, or another cluster, is taken as
	// usual.
	BackwardsIsGap
	// DoubtIsChecked: a proof counts after a long silence as before.
	DoubtIsChecked
	// OwnIsKept: a store in doubt need not have what the instance wrote.
	OwnIsKept
	// WitnessBefore: what is told in a doubt that nobody has checked is a witness too.
	WitnessBefore
	// ToldTheSame: a store in doubt may tell something else than before.
	ToldTheSame
	// OvertakenWaits: an answer that is behind the watch counts at once.
	OvertakenWaits

	// ProofEnds: nobody looks how old the proof is.
	ProofEnds
	// WallAge: a proof's age is taken by the monotonic clock alone.
	WallAge
	// ClocksTogether: permits are issued although the clocks have parted.
	ClocksTogether
	// HoldFreezes: under hold shares go on growing while the view is stale.
	HoldFreezes
	// ComparedInReading: a timer ends the proof, not the reading that admits.
	ComparedInReading
	// WholeGuard: half of the guard is kept.
	WholeGuard
	// BucketContinues: a bucket is full again when its share changes.
	BucketContinues
	// SpanWhole: a sliding window forgets what it issued when a fixed one begins.
	SpanWhole
	// WarmBelow: a warm-up begins above the share.
	WarmBelow
	// WindowsForward: the clock is set back with the operating system's, and a
	// window that comes again is a new one.
	WindowsForward
	// ClockAlarm: permits are issued although the clock was measured to be wrong.
	ClockAlarm
	// NotBeforeStart: permits of a window are issued before it begins, while
	// corrected time stands still.
	NotBeforeStart
	// StopIsStrict: the outage rule stop is obeyed like hold.
	StopIsStrict
	// GuardFollows: a guard that follows the clock adds nothing.
	GuardFollows
	// ReturnsInWindow: a permit can be given back after its window.
	ReturnsInWindow
	// DrainShuts: permits are issued although the provider wants none.
	DrainShuts
)

// Off reports whether the safeguard is switched off.
func (s Set) Off(g Set) bool { return s&g != 0 }
