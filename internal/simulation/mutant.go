package simulation

import (
	"github.com/quotient-limiter/quotient/internal/safeguard"
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
	// DemandOfNow claims by the demand of now, not by that at the level's revision.
	DemandOfNow
	// NewcomersClaim lets who had reported nothing claim by what it reports now.
	NewcomersClaim
	// LostForgotten takes a report whose answer was lost as not written.
	LostForgotten
	// MixedRevisions works a level out from reports that are newer than it says.
	MixedRevisions
	// LateLevel writes a level long after the reports were read.
	LateLevel
	// LostUnseen goes on claiming by a report that a restore took back.
	LostUnseen
	// ReturnedTwice takes one permit back twice.
	ReturnedTwice
	// SlowClocks has clocks that are off by more than the policy says.
	SlowClocks
)

// Mutant is a history's rule broken on purpose. Each seems harmless, and each
// breaks the sum; a simulation that does not catch one of them checks too
// little.
type Mutant struct {
	Name  string
	Off   safeguard.Set // switched off in the real code
	Does  Trick
	Share quota.ShareRule // of most policies; chance if empty
	Shape quota.Shape     // of most policies; fixed windows if empty
	Kind  Kind            // the histories in which it shows
	// Led is what the histories are given more of, where it would take many.
	Led  []action
	Rare bool // it takes a thousand histories, or thousands
	// Otherwise says that it shows in something else than a sum.
	Otherwise bool
}

// Mutants returns all mutants.
func Mutants() []Mutant {
	return []Mutant{
		{Name: "AnchorNow", Off: safeguard.AnchorAtStart},
		{Name: "Coalesce", Off: safeguard.EveryRevision, Led: []action{doHang, doStall, doPolicy, doQuit}},
		{Name: "GapKeepsHistory", Off: safeguard.GapRestarts, Led: []action{doCompact, doEndWatch, doHang, doPolicy}},
		{Name: "SameID", Does: SameID},
		{Name: "JoinAtOnce", Off: safeguard.JoinWaits},
		{Name: "DatedByArrival", Does: DatedByArrival, Rare: true},
		{Name: "ReadWithoutPosition", Off: safeguard.PositionReached},
		{Name: "KeptAliveProves", Does: KeptAliveProves},
		{Name: "ProgressProves", Does: ProgressProves, Led: []action{doAlone, doPolicy}},
		{Name: "SameCountProves", Does: SameCountProves, Led: []action{doHang, doHang, doHang, doJoin, doQuit, doQuit}, Rare: true},
		{Name: "HeaderIsPosition", Does: HeaderIsPosition, Led: []action{doEndWatch, doHang, doLag, doPolicy}, Rare: true},
		{Name: "CreatedIsPosition", Does: CreatedIsPosition},
		{Name: "NoProof", Off: safeguard.ProofEnds},
		{Name: "TimerEndsProof", Off: safeguard.ComparedInReading, Led: []action{doStall, doPolicy}},
		{Name: "MonotonicOnly", Off: safeguard.WallAge, Led: []action{doSleep, doPolicy}, Rare: true},
		{Name: "ClocksParted", Off: safeguard.ClocksTogether, Led: []action{doSleep, doPolicy}, Rare: true},
		{Name: "OldEvent", Off: safeguard.NewerOnly, Led: []action{doEndWatch, doPolicy}},
		{Name: "TwoWatches", Off: safeguard.NewerOnly, Does: TwoWatches},
		{Name: "ListedWhenSent", Does: ListedWhenSent, Rare: true},
		{Name: "HoldGrows", Off: safeguard.HoldFreezes, Kind: Hold, Rare: true},
		{Name: "BackwardsUnseen", Off: safeguard.BackwardsIsGap | safeguard.OvertakenWaits, Kind: Restore},
		{Name: "SilenceUndoubted", Off: safeguard.DoubtIsChecked, Kind: Restore, Rare: true},
		{Name: "OwnLostUnseen", Off: safeguard.OwnIsKept, Does: LostUnseen, Kind: Restore, Rare: true},
		{Name: "WitnessFromDoubt", Off: safeguard.WitnessBefore, Kind: Restore, Led: []action{doHang, doJoin, doJoin}, Rare: true},
		{Name: "ToldOtherwise", Off: safeguard.ToldTheSame, Kind: Restore, Rare: true},
		{Name: "Ceil", Off: safeguard.Floor},
		{Name: "WindowBack", Off: safeguard.WindowsForward},
		{Name: "HalfGuard", Off: safeguard.WholeGuard, Rare: true},
		{Name: "LengthsTogether", Off: safeguard.LengthsApart},
		{Name: "RemovedForgotten", Off: safeguard.RemovedBinds},
		{Name: "NotWholeWindow", Off: safeguard.WholeWindow},
		{Name: "LoweredAtOnce", Does: LoweredAtOnce, Kind: Timing, Rare: true},
		{Name: "SlowClocks", Does: SlowClocks},
		{Name: "DemandOfNow", Does: DemandOfNow, Share: quota.ShareDemand},
		{Name: "NewcomersClaim", Does: NewcomersClaim, Share: quota.ShareDemand},
		{Name: "LostForgotten", Does: LostForgotten, Share: quota.ShareDemand, Rare: true},
		{Name: "MixedRevisions", Does: MixedRevisions, Share: quota.ShareDemand, Rare: true},
		{Name: "LateLevel", Does: LateLevel, Share: quota.ShareDemand, Kind: Restore, Rare: true},
		{Name: "LostUnseen", Does: LostUnseen, Share: quota.ShareDemand, Kind: Restore},
		{Name: "ReturnedLate", Off: safeguard.ReturnsInWindow},
		{Name: "ReturnedTwice", Does: ReturnedTwice},
		{Name: "DrainUnheard", Off: safeguard.DrainShuts, Otherwise: true},
		{Name: "StopUnheard", Off: safeguard.StopIsStrict, Kind: Switch},
		{Name: "GuardStill", Off: safeguard.GuardFollows},
		{Name: "ClockAlarmUnheard", Off: safeguard.ClockAlarm, Kind: Measured, Led: []action{doSetClock, doPolicy, doQuit}},
		{Name: "StandingStillIssues", Off: safeguard.NotBeforeStart, Kind: Measured, Led: []action{doSetClock, doPolicy, doQuit}},
		{Name: "GrowthAtOnce", Off: safeguard.GrowthHeld, Shape: quota.ShapeSliding},
		{Name: "BucketGrowsAtOnce", Off: safeguard.GrowthHeld, Shape: quota.ShapeBucket},
		{Name: "RotatedRemainders", Off: safeguard.GrowthHeld | safeguard.TurnHeld, Shape: quota.ShapeSliding},
		{Name: "SkewIgnored", Off: safeguard.SkewReached, Shape: quota.ShapeSliding},
		{Name: "SpanForgotten", Off: safeguard.SpanWhole, Shape: quota.ShapeSliding},
		{Name: "BucketRefilled", Off: safeguard.BucketContinues, Shape: quota.ShapeBucket},
		{Name: "WarmAboveShare", Off: safeguard.WarmBelow, Shape: quota.ShapeSliding},
		{Name: "ClaimsUnscaled", Off: safeguard.ClaimsScale, Share: quota.ShareDemand},
	}
}

// off is what is switched off in the real code.
func (w *world) off() safeguard.Set {
	if w.mutant == nil {
		return 0
	}
	return w.mutant.Off
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
