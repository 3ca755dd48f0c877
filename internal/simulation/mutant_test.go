package simulation

import (
	"github.com/quotient-limiter/quotient/quota"
)

// Trick is a mistake in the shell around the pure core, or an assumption that
// does not hold.
type Trick uint32

// The tricks.
const (
	// SameID gives a restarted instance its old incarnation's ID.
	SameID Trick = 1 << iota
	// DatedByArrival dates a proof by the answer, not by the question.
	DatedByArrival
	// KeptAliveProves takes an answer that a lagging member gives by itself,
	// such as a kept-alive lease, as a proof.
	KeptAliveProves
	// ProgressProves takes a progress notification alone as a proof.
	ProgressProves
	// SameCountProves takes an equal number of keys and an equal highest
	// revision as a proof.
	SameCountProves
	// HeaderIsPosition takes the header of events as the watch's position.
	HeaderIsPosition
	// CreatedIsPosition takes the header of the answer that a watch was created.
	CreatedIsPosition
	// TwoWatches learns policy and instances by two streams.
	TwoWatches
	// ListedWhenSent dates a listing by the question.
	ListedWhenSent
	// LoweredAtOnce lets operators lower the settle time below the freshness
	// that instances may still go by.
	LoweredAtOnce
	// LostUnseen does not notice that a restore took its report back.
	LostUnseen
	// ReturnedTwice takes one permit back twice.
	ReturnedTwice
	// RunsBack lets corrected time, and windows, run back.
	RunsBack
	// TimerRings ends a proof by a timer.
	TimerRings
	// EndBeforeUse says that nothing is issued in windows that were used.
	EndBeforeUse
	// EndBySetClock says by the operating system's clock from when on.
	EndBySetClock
	// BoundWhenAnswered obeys the own end from when it is known to be written.
	BoundWhenAnswered
	// OnlyStopped continues the incarnation of a process that was only stopped.
	OnlyStopped
	// PresentView begins the history of a process that continues another with the
	// present view, and says that it has held it as long as that did.
	PresentView
	// EndTooSoon lets a process that continues another seal its end at once.
	EndTooSoon
	// SlowClocks has clocks that are off by more than the policy says.
	SlowClocks
)

// Mutant is a rule broken on purpose: by a mistake in the shell, by a patch of the
// real code that the tests apply under the mutant's name, or by both. Each seems
// harmless, and each breaks the sum; a simulation that does not catch one of them
// checks too little.
type Mutant struct {
	Name  string
	Does  Trick
	Share quota.ShareRule // of most policies; chance if empty
	Shape quota.Shape     // of most policies; fixed windows if empty
	Kind  Kind            // the histories in which it shows
	// Led is what the histories are given more of, where it would take many.
	Led []action
	// Otherwise says that it shows in something else than a sum.
	Otherwise bool
}

// Mutants returns all mutants.
func Mutants() []Mutant {
	return append(backoffMutants(), []Mutant{
		{Name: "AnchorNow"},
		{Name: "Coalesce", Led: []action{doHang, doStall, doPolicy, doQuit}},
		{Name: "GapKeepsHistory", Led: []action{doCompact, doEndWatch, doHang, doPolicy}},
		{Name: "SameID", Does: SameID},
		{Name: "JoinAtOnce"},
		{Name: "DatedByArrival", Does: DatedByArrival},
		{Name: "ReadWithoutPosition"},
		{Name: "KeptAliveProves", Does: KeptAliveProves},
		{Name: "ProgressProves", Does: ProgressProves, Led: []action{doAlone, doPolicy}},
		{Name: "SameCountProves", Does: SameCountProves, Led: []action{doHang, doHang, doHang, doJoin, doQuit, doQuit}},
		{Name: "HeaderIsPosition", Does: HeaderIsPosition, Led: []action{doEndWatch, doHang, doLag, doPolicy}},
		{Name: "CreatedIsPosition", Does: CreatedIsPosition},
		{Name: "NoProof"},
		{Name: "TimerEndsProof", Does: TimerRings, Led: []action{doStall, doPolicy}},
		{Name: "MonotonicOnly", Led: []action{doSleep, doPolicy}},
		{Name: "ClocksParted", Led: []action{doSleep, doPolicy}},
		{Name: "OldEvent", Led: []action{doEndWatch, doPolicy}},
		{Name: "TwoWatches", Does: TwoWatches},
		{Name: "ListedWhenSent", Does: ListedWhenSent},
		{Name: "HoldGrows", Kind: Hold},
		{Name: "BackwardsUnseen", Kind: Restore},
		{Name: "SilenceUndoubted", Kind: Restore},
		{Name: "OwnLostUnseen", Does: LostUnseen, Kind: Restore},
		{Name: "WitnessFromDoubt", Kind: Restore, Led: []action{doHang, doJoin, doJoin}},
		{Name: "ToldOtherwise", Kind: Restore},
		{Name: "Ceil"},
		{Name: "WindowBack", Does: RunsBack},
		{Name: "HalfGuard"},
		{Name: "LengthsTogether"},
		{Name: "RemovedForgotten"},
		{Name: "NotWholeWindow"},
		{Name: "LoweredAtOnce", Does: LoweredAtOnce, Kind: Timing},
		{Name: "SlowClocks", Does: SlowClocks},
		{Name: "ReturnedLate"},
		{Name: "ReturnedTwice", Does: ReturnedTwice},
		{Name: "DrainUnheard", Otherwise: true},
		{Name: "StopUnheard", Kind: Switch},
		{Name: "GuardStill"},
		{Name: "ClockAlarmUnheard", Kind: Measured, Led: []action{doSetClock, doPolicy, doQuit}},
		{Name: "StandingStillIssues", Kind: Measured, Led: []action{doSetClock, doPolicy, doQuit}},
		{Name: "GivesByOwnShare"},
		{Name: "GivesByTotal"},
		{Name: "GivesByDeletion"},
		{Name: "GivesByForgedEnd", Led: []action{doTamper, doHang}},
		{Name: "GivesByStrangersEnd", Led: []action{doTamper, doHang}},
		{Name: "EndBeforeUse", Does: EndBeforeUse},
		{Name: "EndBySetClock", Does: EndBySetClock, Led: []action{doSetClock, doQuit}},
		{Name: "BoundWhenAnswered", Does: BoundWhenAnswered, Led: []action{doLeave, doLeave, doHang, doCut}},
		{Name: "GivesToNewcomers"},
		{Name: "GivesByWeight", Share: quota.ShareWeighted, Led: []action{doTamper, doHang}},
		{Name: "GivesByTimes", Kind: Timing},
		{Name: "GivesUnlimited"},
		{Name: "GivesByPause"},
		{Name: "GivesByCut"},
		{Name: "GivesByDivision"},
		{Name: "GivesByDemands", Share: quota.ShareDemand},
		{Name: "GivesByClaims", Share: quota.ShareDemand},
		{Name: "GivesAll"},
		{Name: "PaceForgotten", Led: []action{doPace, doPace, doHang}},
		{Name: "PaceAboveLimit", Led: []action{doPace}},
		{Name: "PaceUnheard", Led: []action{doPace}},
		{Name: "LoanNotCharged", Led: []action{doJoin}},
		{Name: "LoanInAnyWindow", Led: []action{doJoin}},
		{Name: "LoanTwice", Led: []action{doJoin}},
		{Name: "GrowthAtOnce", Shape: quota.ShapeSliding},
		{Name: "BucketGrowsAtOnce", Shape: quota.ShapeBucket},
		{Name: "RotatedRemainders", Shape: quota.ShapeSliding},
		{Name: "SkewIgnored", Shape: quota.ShapeSliding},
		{Name: "SpanForgotten", Shape: quota.ShapeSliding},
		{Name: "BucketRefilled", Shape: quota.ShapeBucket},
		{Name: "WarmAboveShare", Shape: quota.ShapeSliding},
		{Name: "EndTooSoon", Does: EndTooSoon, Kind: Calm, Led: []action{doReplace, doQuit}},
		{Name: "RunningWindow", Kind: Calm, Led: []action{doReplace, doAnnounce}},
		{Name: "NextWindow", Kind: Calm, Led: []action{doReplace, doAnnounce}},
		{Name: "OnlyStopped", Does: OnlyStopped, Led: []action{doReplace}},
		{Name: "PresentView", Does: PresentView, Led: []action{doReplace, doQuit, doPolicy}},
	}...)
}

func (w *world) trick(t Trick) bool { return w.mutant != nil && w.mutant.Does&t != 0 }

// osError is how far operating systems' clocks are off in truth.
func (w *world) osError() int64 {
	if w.trick(SlowClocks) {
		return 10*w.e + 300*ms
	}
	if w.kind == Measured {
		return measuredError
	}
	return errorBound(w.e)
}
