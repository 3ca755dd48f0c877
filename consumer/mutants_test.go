package consumer_test

import (
	"flag"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/mutant"
)

var hunt = flag.String("mutants", "", "run the tests against each mutant with such a `name`, a regular expression (minutes)")

// A mutant whose text is gone from the source is no mutant.
func TestMutantsApply(t *testing.T) {
	mutant.AllApply(t, mutants)
}

// TestMutants drops each wake-up, each give-back and each edge, one at a time, and
// sees that a test notices: go test ./consumer -run '^TestMutants$' -mutants . -v
func TestMutants(t *testing.T) {
	if *hunt == "" {
		return // TestMutantsApply has looked at the table
	}
	name, err := regexp.Compile(*hunt)
	if err != nil {
		t.Fatal(err)
	}
	hunted := slices.DeleteFunc(slices.Clone(mutants), func(m mutant.Mutant) bool { return !name.MatchString(m.Name) })
	mutant.Hunt(t, hunted,
		mutant.Suite{Package: "./consumer", Run: "^TestLiveness$", Limit: time.Minute, Caught: property},
		mutant.Suite{Package: "./consumer", Run: ".", Args: []string{"-test.skip", "^TestMutants"}, Limit: 2 * time.Minute},
		mutant.Suite{Package: "./internal/window", Run: ".", Limit: 2 * time.Minute},
		mutant.Suite{Package: "./internal/share", Run: ".", Limit: 2 * time.Minute},
	)
}

var (
	wrongLine = regexp.MustCompile(`(?m)WRONG (\w+):`)
	seedLine  = regexp.MustCompile(`-liveness\.seed (\d+):`)
)

// property says which property of TestLiveness was broken, and in which history.
func property(output string) string {
	wrong, seed := wrongLine.FindStringSubmatch(output), seedLine.FindStringSubmatch(output)
	if wrong == nil || seed == nil {
		return ""
	}
	return "liveness: " + wrong[1] + ", history " + seed[1]
}

const (
	gateFile     = "internal/window/gate.go"
	queueFile    = "internal/window/queue.go"
	ledgerFile   = "internal/window/ledger.go"
	forecastFile = "internal/window/forecast.go"
	plannerFile  = "internal/share/planner.go"
	coreFile     = "consumer/core.go"
	acquireFile  = "consumer/acquire.go"
	limiterFile  = "consumer/limiter.go"
)

// drop is a mutant that replaces one text.
func drop(name, wrong, file, before, after string) mutant.Mutant {
	return mutant.Mutant{Name: name, Wrong: wrong, Edits: []mutant.Edit{{File: file, Old: before, New: after}}}
}

var mutants = []mutant.Mutant{
	// Wake-ups.
	drop("NoAlarm", "the gate tells the alarm nothing", gateFile,
		"if wake != Forever && g.alarm != nil {", "if wake == 1 && g.alarm != nil {"),
	drop("NoAlarmForDeadlines", "no wake-up for a deadline", gateFile,
		"return min(g.segment.Load().until.Load(), g.mu.queue.nearest)", "return g.segment.Load().until.Load()"),
	drop("NoAlarmForEdges", "no wake-up for the segment's end", gateFile,
		"return min(g.segment.Load().until.Load(), g.mu.queue.nearest)", "return g.mu.queue.nearest"),
	drop("AlarmOnce", "an alarm that rang is taken to be set still", "consumer/alarm.go",
		"	a.mu.Lock()\n	a.armed.Store(math.MaxInt64)", "	a.mu.Lock()\n	_ = math.MaxInt64"),
	drop("AlarmNotSooner", "an alarm that is set is not set sooner", "consumer/alarm.go",
		"	if wake >= a.armed.Load() {\n		return\n	}\n	a.mu.Lock()", "	if a.armed.Load() < math.MaxInt64 {\n		return\n	}\n	a.mu.Lock()"),
	drop("NearestOfTheFirst", "a nearer deadline behind the first is not seen", queueFile,
		"		q.nearest = min(q.nearest, w.deadline)\n", ""),
	drop("OrderTaken", "deadlines are taken to be in order", queueFile,
		"q.unordered = q.unordered || w.deadline < q.tail.deadline", "_ = 0"),
	drop("TickServesOnly", "a tick refuses nobody whose time is over", gateFile,
		"	if g.mu.queue.nearest <= at.Mono {\n", "	if false {\n"),
	drop("RefusedHeadsPlaceKept", "the place of a head whose time is over is given to nobody", gateFile,
		"	g.serveLocked(s, p) // a request that was refused may have stood before smaller ones\n", ""),
	drop("RefusalUnforgotten", "the forecast keeps permits together for a refused request for ever", ledgerFile,
		"		l.wanted.roll(p.Limits[0].Window)\n", ""),
	drop("LateOnesServed", "whoever waited too long is served first", gateFile,
		"	g.refuseOverdueLocked(g.mu.last - 1) // before they are served\n", ""),
	drop("ReadyHearsNoPolicy", "Ready is not told of policies", coreFile,
		"k.news(c.Policy != nil || c.PolicyDeleted || slices", "k.news(c.PolicyDeleted || slices"),
	drop("ReadyHearsNoPauseEnd", "Ready is not told that a pause was ended", coreFile,
		"	k.mu.planner.PauseUntil(mono)\n	k.news(true)", "	k.mu.planner.PauseUntil(mono)\n	k.news(false)"),
	drop("ReadyHearsNoProof", "Ready is not told that an outage is over", coreFile,
		"	if proof.Strict {\n		k.signalLocked()", "	if false {\n		k.signalLocked()"),
	drop("ReadyHearsNoFirstProof", "Ready is not told of the first proof", coreFile,
		"	if k.mu.planner.Prove(sent) {\n		k.news(true)", "	if k.mu.planner.Prove(sent) {\n		k.news(false)"),
	drop("ReadyHearsNoLeave", "Ready is not told that its limiter is closed", coreFile,
		"	k.mu.open--\n	k.signalLocked()\n", "	k.mu.open--\n"),
	drop("ReadyHearsNoClose", "Ready is not told that the source is closed", coreFile,
		"	k.mu.closed = true\n	k.signalLocked()\n", "	k.mu.closed = true\n"),
	drop("ReadyKnowsNoTime", "Ready does not look again at an edge", "consumer/status.go",
		"			edge = timer.C\n", ""),
	drop("NewsUnheard", "news changes no segment", coreFile,
		"	k.gate.Changed(now)\n", ""),
	drop("ProofUnheard", "a proof after an outage opens nothing", gateFile,
		"	if g.mu.stale || !proof.Strict || p.Proof.over(at) || !s.Open(at.Mono) {", "	if !proof.Strict {"),
	drop("FunctionsOnce", "the dispatcher is not started again", "consumer/dispatch.go",
		"			d.running = false\n", ""),

	// Give-backs.
	drop("HeadsPlaceKept", "the place of a head that gave up is given to nobody", gateFile,
		"	if first {\n		g.rebuildLocked(at) // others", "	if first && at.Mono < 0 {\n		g.rebuildLocked(at) // others"),
	drop("EvictedPlaceKept", "the places of a closed limiter are given to nobody", gateFile,
		"	g.mu.forecast.valid = false\n	g.rebuildLocked(at)\n}\n\n// Close refuses", "	g.mu.forecast.valid = false\n}\n\n// Close refuses"),
	drop("ReleaseServesNobody", "what comes back serves nobody", gateFile,
		"	g.rebuildLocked(at)\n	return ok\n", "	return ok\n"),
	drop("ReleaseForgotten", "what comes back is not in the account", ledgerFile,
		"			a.used -= n\n", ""),
	drop("ReleaseNotInRing", "what comes back still counts in the sliding window", ledgerFile,
		"			a.ring.undo(grant.At, n)\n", ""),
	drop("ReleaseNotInBucket", "what comes back is not in the bucket", ledgerFile,
		"			a.bucket.undo(grant.At, n, l.now)\n", ""),
	drop("ReleaseUnforeseen", "the forecast does not know what came back", gateFile,
		"		g.mu.issued -= n\n		g.mu.forecast.valid = false\n", "		g.mu.issued -= n\n"),
	drop("CancelUnforeseen", "the forecast does not know who gave up", gateFile,
		"	g.mu.forecast.left += w.n\n", ""),
	drop("LostRaceKept", "a permit that came with a cancellation is lost", acquireFile,
		"			k.gate.Refund(k.clock.Now(), w.Outcome.Grant, k.serials.Add(1), n)\n", ""),
	drop("CloseRaceKept", "a waiter that came while the limiter was closed waits on", acquireFile,
		"		k.gate.Evict(k.clock.Now(), l.id)\n", ""),
	drop("CloseEvictsNobody", "those that wait on a closed limiter wait on", limiterFile,
		"	l.core.gate.Evict(l.core.clock.Now(), l.id)\n", ""),
	drop("RestKept", "what the queue leaves is not given to newcomers", gateFile,
		"		s.left.Store(g.mu.published)\n", ""),
	drop("ShadowKeepsQueue", "whoever waits when shadow mode begins waits on", gateFile,
		"		case p.Shadow:\n			grant, v = s.passed(), Passed\n", ""),
	drop("PlugKept", "a head that can never be had stops all behind it", gateFile,
		"		case !g.fitsLocked(w.n):\n", "		case false:\n"),
	drop("TooLargeWaits", "a request that can never be had may wait", gateFile,
		"	case !g.fitsLocked(n):\n		return Grant{}, TooLarge\n", ""),
	drop("NewsJudgesNobody", "whoever cannot be served in time any more waits on", gateFile,
		"	if news {\n		g.judgeLocked(p)", "	if news && at.Mono < 0 {\n		g.judgeLocked(p)"),
	drop("NewcomersOvertake", "newcomers take what is left for the queue", gateFile,
		"	kept := s.withhold()\n", "	kept := int64(0)\n"),

	// Edges.
	drop("NoEdgeForMore", "no edge where more permits are due", gateFile,
		"	if at, ok := l.when(more); ok && at > g.mu.last {", "	if at, ok := l.when(more); ok && at < 0 {"),
	drop("NoEdgeForNewcomers", "no edge where more permits are due if nobody waits", gateFile,
		"more := max(g.mu.published+g.mu.held+1, g.headLocked())", "more := g.headLocked()"),
	{Name: "NoEdgeForWindows", Wrong: "no edge at a window's end", Edits: []mutant.Edit{
		{File: plannerFile, Old: "		ends(w.End())\n", New: ""},
		{File: plannerFile, Old: "ends(quota.WindowAt(length, now+p.offset).End()) })", New: "})"},
	}},
	drop("NoEdgeAfterTheGuard", "no edge where a guard ends", plannerFile,
		"		ends(opens)\n", ""),
	drop("NoEdgeBeforeTheGuard", "no edge where a guard begins", plannerFile,
		"		ends(shuts)\n", ""),
	drop("NoEdgeForGrowth", "no edge where a larger share begins to count", plannerFile,
		"			ends(plan.Shape.Grows(length, now+p.offset))\n", ""),
	drop("NoEdgeForComing", "no edge for lengths that do not bind yet", plannerFile,
		"ends(quota.WindowAt(length, now+p.offset).End()) })", "})"),
	drop("NoEdgeForPauses", "no edge where a pause ends", plannerFile,
		"plan.Shut, plan.PausedUntil, plan.Until = true, p.paused, p.paused", "plan.Shut, plan.PausedUntil = true, p.paused"),
	drop("NoEdgeForProofs", "no end of the segment with the proof", gateFile,
		"until, wall = min(until, proof.Until), proof.WallUntil", "wall = proof.WallUntil"),
	drop("NoWallEdgeForProofs", "no end of the segment with the proof by the wall clock", gateFile,
		"until, wall = min(until, proof.Until), proof.WallUntil", "until = min(until, proof.Until)"),
	drop("GateKnowsNoWall", "the gate does not compare the wall clock", gateFile,
		"s.Open(at.Mono) && (!s.Strict || s.WallValid(at)) {", "s.Open(at.Mono) {"),
	drop("TakeKnowsNoWall", "the hot path does not compare the wall clock", acquireFile,
		"s.WallValid(now) && s.Take(now.Mono, n)", "s.Take(now.Mono, n)"),
	drop("AcquireKnowsNoWall", "Acquire does not compare the wall clock", limiterFile,
		"if s := k.gate.Segment(); !s.Strict && !l.closed.Load() { // as take", "if s := k.gate.Segment(); !l.closed.Load() { // as take"),
	drop("TryKnowsNoWall", "TryAcquire does not compare the wall clock", limiterFile,
		"if s := k.gate.Segment(); !s.Strict && n > 0", "if s := k.gate.Segment(); n > 0"),
	drop("TryTakeKnowsNoWall", "TryTake does not compare the wall clock", limiterFile,
		"if s.Open(now.Mono) && (!s.Strict || s.WallValid(now)) {", "if s.Open(now.Mono) {"),
	drop("StaleServes", "permits are issued without a proof", gateFile,
		"if g.mu.stale = p.Proof.over(at); !g.mu.stale {", "if g.mu.stale = p.Proof.over(at); true {"),
	drop("ProofSurvivesReset", "a new history keeps the proof of the old one", plannerFile,
		"p.proof, p.proved, p.stale, p.phase = clock.Instant{}, false, false, hashID(self)", "p.phase = hashID(self)"),
	drop("ClockUnobserved", "a suspension is not looked for", plannerFile,
		"	p.Clock.Observe(at)\n", ""),
	drop("SkewForgotten", "the windows in reach leave the clocks' errors out", "internal/share/shape.go",
		"protocol.ReachOf(length, h.terms[i].transit(), time.Duration(h.terms[i].clockErr))", "protocol.ReachOf(length, h.terms[i].transit(), 0*time.Duration(h.terms[i].clockErr))"),
	drop("TransitForgotten", "permits count no longer than a window, though calls take time", ledgerFile,
		"a.ring.reach(s.Transit)", "a.ring.reach(0)"),
	drop("TransitNotInReach", "the windows in reach leave the transit out", "internal/share/shape.go",
		"protocol.ReachOf(length, h.terms[i].transit(), ", "protocol.ReachOf(length, 0, "),
	drop("TransitNotInBurst", "the burst leaves the transit out", "internal/protocol/policy.go",
		"return max(1, burst-int64(meet))", "return max(1, burst-int64(meet*0))"),
	drop("TransitNotInPermits", "a permit under a transit is valid for a window", ledgerFile,
		"l.plan.Shape.Transit > 0 {", "false {"),
	drop("NewsUnforeseen", "the forecast goes by old plans", forecastFile,
		"	case f.void || i == len(f.plans):\n", "	case i == len(f.plans):\n"),
	drop("FreshProofVoid", "a proof after an outage under hold frees nothing", plannerFile,
		"news = !p.proved || p.stale", "news = !p.proved"),
}
