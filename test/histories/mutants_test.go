package histories

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/quota"
	"github.com/quotient-limiter/quotient/test/mutant"
)

var (
	ledFlag   = flag.String("led", "", "the mutant by which TestHunt and TestReplay lead their histories")
	freshFlag = flag.Bool("fresh", false, "hunt mutants without the seeds of "+recordedFile)
)

// hunt is where a mutant shows: in histories of a kind that have more of something.
type hunt struct {
	name string
	kind kind
	lead
}

// when returns a hunt by dramas; of several each history has one after the other.
func when(name string, k kind, dramas ...drama) hunt { return hunt{name, k, lead{dramas: dramas}} }

var hunts = []hunt{
	when("WallUnread", faults, asleepThroughCut),
	when("WallUnreadByTry", faults, asleepThroughCut),
	when("KeyBeforeLimiter", faults, quitSlowly),
	when("FromThePresent", faults, resetThroughCut),
	when("EndBeforeUse", faults, quitSlowly),
	when("ListedLongAgo", faults, relisted),
	when("HeaderIsPosition", faults, deafThroughCut),
	when("RevivedStays", restore, revived),
	when("LeaseForGone", faults, lapsed),
	when("CompactedAgain", faults, relisted),
	when("DatedByAnswer", faults, slowThroughCut),

	// Of the rule: sections 2 to 6 of docs/proof/protocol.md.
	{"AnchorNow", faults, lead{often: []action{doPolicy, doPolicy, doJoin}}},
	when("JoinAtOnce", faults, relistedWithMore),
	when("ListedWhenSent", faults, relistedSlowly),
	{"RemovedForgotten", faults, lead{rich: true, often: []action{doChange, doChange, doChange}}},
	{"NotWholeWindow", faults, lead{rich: true, often: []action{doAnnounce, doAnnounce, doAnnounce}}},
	{"OldEvent", faults, lead{often: []action{doPolicy, doPolicy, doPolicy}}},
	{"TwoWatches", faults, lead{often: []action{doPolicy, doPolicy, doJoin, doQuit}}},
	when("SameCountProves", faults, goneUnseen),
	{"SlowClocks", faults, lead{often: []action{doPolicy, doPolicy, doJoin, doQuit}}},
	{"TimingUnchecked", faults, lead{dramas: []drama{hasty}, wide: true}},
	when("Coalesce", faults, toldTogether),
	when("GapKeepsHistory", faults, relisted),
	when("ReadWithoutPosition", faults, deafThroughCut),
	when("CreatedIsPosition", faults, behindThroughCut),
	when("ProgressProves", faults, behindThroughCut),
	when("KeptAliveProves", faults, behindThroughCut),
	when("NoProof", faults, deafThroughCut),
	when("TimerEndsProof", faults, stalledThroughCut),
	when("MonotonicOnly", faults, asleepThroughCut),
	when("ClocksParted", faults, napped),
	when("Ceil", faults),
	{"WindowBack", faults, lead{often: []action{doSetClock, doSetClock, doSetClock}}},
	when("HalfGuard", faults),
	{"LengthsTogether", faults, lead{rich: true, often: []action{doChange, doChange, doChange}}},
	when("LoweredAtOnce", timing, lowered),
	when("ReturnedLate", faults),
	when("ReturnedTwice", faults),
	{"DrainUnheard", faults, lead{often: []action{doDrain, doDrain, doDrain}}},
	when("StopUnheard", switches, deafThroughCut),
	when("HoldGrows", hold, removedBeforeOutage),
	{"ClockAlarmUnheard", measured, lead{often: []action{doSetClock, doSetClock, doPolicy, doQuit}}},
	{"StandingStillIssues", measured, lead{often: []action{doSetClock, doSetClock, doPolicy, doQuit}}},
	when("EndBySetClock", faults, quitsWithClockSet),
	when("BoundWhenAnswered", faults, leavesSlowly),
	when("SameID", faults, namesakes),
	when("RenewedAnew", faults, shutDown),

	// Of revisions that give.
	when("GivesByOwnShare", faults, deafThrough(doQuit, 0)),
	when("GivesByTotal", faults, deafThrough(doRemove, 0)),
	when("GivesByDeletion", faults, deafThrough(doRemove, 0)),
	when("GivesToNewcomers", faults, begunEarly),
	{"GivesByTimes", timing, lead{rich: true, often: []action{doChange, doChange, doChange, doHang}}},
	{"GivesUnlimited", faults, lead{rich: true, often: []action{doChange, doChange, doChange, doHang}}},
	{"GivesByPause", faults, lead{rich: true, often: []action{doChange, doChange, doChange, doHang}}},
	{"GivesByCut", faults, lead{rich: true, often: []action{doChange, doPolicy, doPolicy, doHang, doHang}}},
	when("GivesAll", faults, deafThrough(doJoin, 0)),

	// Of the first of a fleet.
	when("FirstUnasked", faults, removedAndFollowed),
	when("FirstAgain", faults, relistedWithMore),
	when("IssuerGoneEarly", faults, leavesAndIsFollowed),
	{"FirstTooSoon", faults, lead{dramas: []drama{closedAndFollowed}, wide: true}},

	// Of pauses and loans.
	{"PauseUnbounded", faults, lead{rich: true, often: []action{doForge, doForge, doForge}}},
	{"StrayAskCounts", faults, lead{rich: true, often: []action{doPushBack}}},
	{"BackoffCountsAgain", faults, lead{rich: true, often: []action{doPushBack, doForge, doForge, doForge}}},
	when("LoanNotCharged", faults, lentLate),
	when("LoanTwice", faults, lentLate),
	when("LoanPassedNotCharged", faults, lentOn),

	{"DebtPaidUncounted", faults, lead{rich: true, indebted: true}},
	{"DebtPaidByLoanUncounted", faults, lead{rich: true, indebted: true}},
	{"KeyDebtPaidUncounted", faults, lead{rich: true, indebted: true, keyed: true}},

	// Of keys.
	{"KeyForgottenEarly", faults, lead{keyed: true}},
	{"KeyRemaindersApart", faults, lead{keyed: true}},
	{"KeyOfNewestView", faults, lead{keyed: true, often: []action{doPolicy, doJoin, doQuit, doQuit}}},
	{"OwnersAlike", faults, lead{keyed: true}},
	{"LoanKept", faults, lead{keyed: true}},
	{"KeyBudgetUncharged", faults, lead{keyed: true, keyBudget: 7}},
	{"KeyBudgetStays", faults, lead{keyed: true, keyBudget: 7, often: []action{doJoin, doJoin, doJoin}}},
	{"KeyBudgetLate", faults, lead{keyed: true, keyBudget: 40, often: []action{doSlow, doSlow, doSlow}}},
	{"CarryOverrideStays", faults, lead{keyed: true, keyBudget: 7, often: []action{doPolicy, doPolicy, doPolicy}}},
	{"PurseCountsTwice", faults, lead{keyed: true, keyBudget: 7}},

	// Of budgets.
	{"GivesBackBeforeBinding", split, lead{dramas: []drama{returnedLate}, budget: 20}},

	// Of limits that count by parts of time.
	{"SlidingCurrentOnly", sliding, lead{}},
	{"SlidingRestoredAtOnce", inflight, lead{often: []action{doRestore}}},
	{"InFlightOnePartLess", inflight, lead{}},
	{"InFlightLongParts", inflight, lead{}},
	{"InFlightBackKept", inflight, lead{}},
	{"InFlightOwedIssued", inflight, lead{}},
	{"CarryNothing", inflight, lead{often: []action{doChange, doChange}}},
	{"InFlightCarryEndsEarly", inflight, lead{often: []action{doChange, doChange}}},
	{"InFlightEndsInAnyPart", inflight, lead{}},
	{"UnansweredIsUnsent", inflight, lead{often: []action{doHang, doReset, doSlow, doHang, doReset}}},

	// Of other shapes.
	{"GrowthAtOnce", faults, lead{rich: true, shape: quota.ShapeSliding}},
	{"BucketGrowsAtOnce", faults, lead{rich: true, shape: quota.ShapeBucket}},
	{"RotatedRemainders", faults, lead{rich: true, shape: quota.ShapeSliding}},
	{"SkewIgnored", faults, lead{rich: true, shape: quota.ShapeSliding, often: []action{doJoin, doQuit, doQuit}}},
	{"SpanForgotten", faults, lead{rich: true, shape: quota.ShapeSliding, often: []action{doChange, doChange}}},
	{"BucketRefilled", faults, lead{rich: true, shape: quota.ShapeBucket}},
	{"WarmAboveShare", faults, lead{rich: true, shape: quota.ShapeSliding, often: []action{doJoin, doJoin}}},

	// Of restored stores.
	when("BackwardsUnseen", restore, forgotten),
	{"MarkForgotten", restore, lead{dramas: []drama{takenBefore}, keyed: true, keyBudget: 7}},
	{"MarkForKeysAlone", restore, lead{dramas: []drama{takenBefore}, budget: 7}},
	{"OldTotalCounts", restore, lead{dramas: []drama{takenBefore}, keyed: true, keyBudget: 40}},
}

func find(name string) *hunt {
	for i := range hunts {
		if hunts[i].name == name {
			return &hunts[i]
		}
	}
	return nil
}

// leads is what histories are given more of by the hunt of that name; nil: nothing.
func leads(name string) *lead {
	if h := find(name); h != nil {
		return &h.lead
	}
	return nil
}

// TestEachIsHunted: what the table says histories catch, and nothing else.
func TestEachIsHunted(t *testing.T) {
	all := mutant.All.CaughtBy("histories")
	for _, name := range all {
		if find(name) == nil {
			t.Errorf("%s is not hunted", name)
		}
	}
	for _, h := range hunts {
		if !slices.Contains(all, h.name) {
			t.Errorf("%s is no mutant that histories catch", h.name)
		}
	}
}

// TestHunt plays histories until one shows that something is wrong. It is run in a
// program with a mutant, by test/mutant: with the recorded seed first.
func TestHunt(t *testing.T) {
	h := find(*ledFlag)
	if h == nil {
		return
	}
	seeds := []uint64{}
	if known := recorded(t)[h.name]; known != 0 && !*freshFlag {
		seeds = append(seeds, known)
	}
	for seed := uint64(1); seed <= *moreFlag; seed++ {
		seeds = append(seeds, seed)
	}
	for n, seed := range seeds {
		if _, wrong := history(t, h.kind, seed, false, &h.lead); len(wrong) > 0 {
			t.Fatalf("caught by history %d, seed %d: %s", n+1, seed, wrong[0])
		}
	}
}

// TestNoDramaIsOver plays the histories that catch mutants, without the mutants: with -short
// a tenth of them.
func TestNoDramaIsOver(t *testing.T) {
	known := recorded(t)
	for i, h := range hunts {
		if testing.Short() && i%10 > 0 {
			continue
		}
		if _, wrong := history(t, h.kind, max(1, known[h.name]), false, &h.lead); len(wrong) > 0 {
			t.Errorf("%s\nreplay: %s", strings.Join(wrong, "\n"), replay(h.kind, max(1, known[h.name]), h.name))
		}
	}
}

// recordedFile has a mutant and the seed of a history that catches it on each line.
const recordedFile = "testdata/mutants.txt"

func recorded(t *testing.T) map[string]uint64 {
	t.Helper()
	b, err := os.ReadFile(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	seeds := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		var name string
		var seed uint64
		if _, err := fmt.Sscan(line, &name, &seed); err != nil {
			t.Fatalf("%s: %q: %v", recordedFile, line, err)
		}
		seeds[name] = seed
	}
	return seeds
}
