package consumer_test

import (
	"flag"
	"regexp"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/test/mutant"
)

var hunt = flag.String("mutants", "", "run the tests against each mutant with such a `name`, a regular expression (minutes)")

// A mutant whose text is gone from the source is no mutant.
func TestMutantsApply(t *testing.T) {
	mutants.Apply(t)
}

// TestMutants drops each wake-up, each give-back and each edge, one at a time, and
// sees that a test notices: make hunt
func TestMutants(t *testing.T) {
	if *hunt == "" {
		return // TestMutantsApply has looked at the table
	}
	mutants.Matching(t, *hunt).Hunt(t,
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

var mutants = mutant.Table{
	// Wake-ups.
	mutant.Replace("NoAlarm", "the gate tells the alarm nothing", gateFile,
		"if wake != Forever && g.alarm != nil {", "if wake == 1 && g.alarm != nil {"),
	mutant.Replace("NoAlarmForDebts", "windows that nobody uses pay no debt", gateFile,
		" && g.mu.ledger.debt == 0 {", " {"),
	mutant.Replace("NoAlarmForDeadlines", "no wake-up for a deadline", gateFile,
		"return min(g.segment.Load().until, g.mu.queue.nearest)", "return g.segment.Load().until"),
	mutant.Replace("NoAlarmForEdges", "no wake-up for the segment's end", gateFile,
		"return min(g.segment.Load().until, g.mu.queue.nearest)", "return g.mu.queue.nearest"),
	mutant.Replace("AlarmOnce", "an alarm that rang is taken to be set still", "consumer/alarm.go",
		"	a.mu.Lock()\n	a.armed.Store(math.MaxInt64)", "	a.mu.Lock()\n	_ = math.MaxInt64"),
	mutant.Replace("AlarmNotSooner", "an alarm that is set is not set sooner", "consumer/alarm.go",
		"	if wake >= a.armed.Load() {\n		return\n	}\n	a.mu.Lock()", "	if a.armed.Load() < math.MaxInt64 {\n		return\n	}\n	a.mu.Lock()"),
	mutant.Replace("NearestOfTheFirst", "a nearer deadline behind the first is not seen", queueFile,
		"		q.nearest = min(q.nearest, w.deadline)\n", ""),
	mutant.Replace("OrderTaken", "deadlines are taken to be in order", queueFile,
		"q.unordered = q.unordered || w.deadline < q.tail.deadline", "_ = 0"),
	mutant.Replace("TickServesOnly", "a tick refuses nobody whose time is over", gateFile,
		"	if g.mu.queue.nearest <= at.Mono {\n", "	if false {\n"),
	mutant.Replace("RefusedHeadsPlaceKept", "the place of a head whose time is over is given to nobody", gateFile,
		"	g.serveLocked(s, p) // a request that was refused may have stood before smaller ones\n", ""),
	mutant.Replace("RefusalUnforgotten", "the forecast keeps permits together for a refused request for ever", ledgerFile,
		"		l.wanted.roll(p.Limits[0].Window)\n", ""),
	mutant.Replace("LateOnesServed", "whoever waited too long is served first", gateFile,
		"	g.refuseOverdueLocked(g.mu.last - 1) // before they are served\n", ""),
	mutant.Replace("ReadyHearsNoPolicy", "Ready is not told of policies", coreFile,
		"k.news(c.Policy != nil || c.PolicyDeleted || slices", "k.news(c.PolicyDeleted || slices"),
	mutant.Replace("ReadyHearsNoPauseEnd", "Ready is not told that a pause was ended", "consumer/pushback.go",
		"	k.mu.planner.PauseUntil(max(until, now), warm)\n	k.news(true)", "	k.mu.planner.PauseUntil(max(until, now), warm)\n	k.news(false)"),
	mutant.Replace("ReadyHearsNoProof", "Ready is not told that an outage is over", coreFile,
		"	k.signalLocked() // the state may be another one from now on\n", ""),
	mutant.Replace("ReadyHearsNoFirstProof", "Ready is not told of the first proof", coreFile,
		"	if k.mu.planner.Prove(sent) {\n		k.news(true)", "	if k.mu.planner.Prove(sent) {\n		k.news(false)"),
	mutant.Replace("ReadyHearsNoLeave", "Ready is not told that its limiter is closed", coreFile,
		"	k.mu.open--\n	k.signalLocked()\n", "	k.mu.open--\n"),
	mutant.Replace("ReadyHearsNoClose", "Ready is not told that the source is closed", coreFile,
		"	k.mu.closed = true\n	k.signalLocked()\n", "	k.mu.closed = true\n"),
	mutant.Replace("ReadyKnowsNoTime", "Ready does not look again at an edge", "consumer/status.go",
		"			edge = time.After(time.Duration(next.Until - now.Mono))\n", ""),
	mutant.Replace("NewsUnheard", "news changes no segment", coreFile,
		"	k.gate.Changed(now)\n", ""),
	mutant.Replace("ProofUnheard", "a proof after an outage opens nothing", gateFile,
		"	g.mu.forecast.proved = true\n", ""),
	mutant.Replace("FunctionsOnce", "the dispatcher is not started again", "consumer/dispatch.go",
		"		d.running = w != nil\n", ""),

	// Give-backs.
	mutant.Replace("HeadsPlaceKept", "the place of a head that gave up is given to nobody", gateFile,
		"	if first {\n		g.rebuildLocked(at) // others", "	if first && at.Mono < 0 {\n		g.rebuildLocked(at) // others"),
	mutant.Replace("EvictedPlaceKept", "the places of a closed limiter are given to nobody", gateFile,
		"	g.mu.forecast.valid = false\n	g.rebuildLocked(at)\n}\n\n// Close refuses", "	g.mu.forecast.valid = false\n}\n\n// Close refuses"),
	mutant.Replace("ReleaseServesNobody", "what comes back serves nobody", gateFile,
		"	g.rebuildLocked(at)\n	return true, back\n", "	return true, back\n"),
	mutant.Replace("ReleaseForgotten", "what comes back is not in the account", ledgerFile,
		"			a.used -= n\n", ""),
	mutant.Replace("ReleaseNotInRing", "what comes back still counts in the sliding window", ledgerFile,
		"			a.ring.undo(grant.At, n)\n", ""),
	mutant.Replace("ReleaseNotInBucket", "what comes back is not in the bucket", ledgerFile,
		"			a.bucket.undo(grant.At, n, l.now)\n", ""),
	mutant.Replace("ReleaseUnforeseen", "the forecast does not know what came back", gateFile,
		"		g.mu.issued -= n - actual\n		g.mu.forecast.valid = false\n", "		g.mu.issued -= n - actual\n"),
	mutant.Replace("CancelUnforeseen", "the forecast does not know who gave up", gateFile,
		"	g.mu.forecast.left += w.n\n", ""),
	mutant.Replace("DebtForgiven", "a cost beyond the permits is forgotten", gateFile,
		"		l.debt = addCapped(l.debt, actual-n)\n", ""),
	mutant.Replace("DebtUnforeseen", "the forecast goes by what it knew before a debt", gateFile,
		"		g.mu.forecast.delay(g, actual-n)\n", ""),
	mutant.Replace("DebtGoesAlongAll", "for every debt the whole queue is gone along", forecastFile,
		"	if g.mu.queue.length <= short {\n		f.void", "	if true {\n		f.void"),
	mutant.Replace("DebtNotForeseenPaid", "the forecast serves beside a debt", forecastFile,
		"if paid, lent := l.release(n, nil); paid+lent == 0 {", "if l.pace(n); true {"),
	mutant.Replace("DebtUnpaid", "a debt is never paid", ledgerFile,
		"		l.repay(n)\n		paid += n\n", "		break\n"),
	mutant.Replace("DebtPaidBeside", "others are served while a debt is not paid", gateFile,
		"		if g.mu.issued += paid; l.debt == 0 {", "		if g.mu.issued += paid; true {"),
	mutant.Replace("DebtPaidUncounted", "a debt is paid and counts in no window", "internal/window/debt.go",
		"	l.charge(n, l.now)\n", ""),
	mutant.Replace("DebtsEdgeIsTheHeads", "no edge where an instalment is due", gateFile,
		"more := l.next(max(", "more := (max("),
	mutant.Replace("DebtsPermitsPaced", "pacing spreads an instalment again and again", ledgerFile,
		"max(need, l.wanted.most(), l.instalment())", "max(need, l.wanted.most())"),
	mutant.Replace("SpreadBeforeDue", "permits are spread wherever the gate looks, and not where they are issued", ledgerFile,
		"!ok || at > l.now {\n			break\n", "!ok || at > l.now {\n			l.pace(need)\n			break\n"),
	mutant.Replace("GuestsBeforeDebts", "a newcomer is lent what a debt is to be paid with", "internal/window/loan.go",
		" || l.debt > 0", ""),
	mutant.Replace("SettledTwice", "a permit can be settled twice", gateFile,
		"	if !g.mu.returned.first(serial, &g.mu.ledger) {\n		return false, false\n	}\n", ""),
	mutant.Replace("LostRaceKept", "a permit that came with a cancellation is lost", acquireFile,
		"			k.permit(w.Outcome.Grant, n, n).Release()\n", ""),
	mutant.Replace("CloseRaceKept", "a waiter that came while the limiter was closed waits on", acquireFile,
		"		k.gate.Evict(k.clock.Now(), l.id)\n", ""),
	mutant.Replace("CloseEvictsNobody", "those that wait on a closed limiter wait on", limiterFile,
		"	l.core.gate.Evict(l.core.clock.Now(), l.id)\n", ""),
	mutant.Replace("RestKept", "what the queue leaves is not given to newcomers", gateFile,
		"		s.left.Store(g.mu.published)\n", ""),
	mutant.Replace("ShadowKeepsQueue", "whoever waits when shadow mode begins waits on", gateFile,
		"		case p.Shadow:\n			grant, v = s.passed(), Passed\n", ""),
	mutant.Replace("PlugKept", "a head that can never be had stops all behind it", gateFile,
		"		case !g.fitsLocked(w.n):\n", "		case false:\n"),
	mutant.Replace("TooLargeWaits", "a request that can never be had may wait", gateFile,
		"	case !g.fitsLocked(n):\n		return Grant{}, TooLarge\n", ""),
	mutant.Replace("NewsJudgesNobody", "whoever cannot be served in time any more waits on", gateFile,
		"	if news {\n		g.judgeLocked(p)", "	if news && at.Mono < 0 {\n		g.judgeLocked(p)"),
	mutant.Replace("NewcomersOvertake", "newcomers take what is left for the queue", gateFile,
		"	kept := s.withhold()\n", "	kept := int64(0)\n"),

	// Edges.
	mutant.Replace("NoEdgeForMore", "no edge where more permits are due", gateFile,
		"	if at, ok := l.when(more); ok && at > g.mu.last {", "	if at, ok := l.when(more); ok && at < 0 {"),
	mutant.Replace("NoEdgeForNewcomers", "no edge where more permits are due if nobody waits", gateFile,
		"more := l.next(max(g.mu.published+g.mu.held+1, g.headLocked()))", "more := l.next(g.headLocked())"),
	{Name: "NoEdgeForWindows", Wrong: "no edge at a window's end", Edits: []mutant.Edit{
		{File: plannerFile, Old: "		ends(end)\n", New: ""},
		{File: plannerFile, Old: "ends(quota.WindowAt(length, wall).End())", New: "_ = length"},
	}},
	mutant.Replace("NoEdgeAfterTheGuard", "no edge where a guard ends", plannerFile,
		"		ends(start + guard)\n", ""),
	mutant.Replace("NoEdgeBeforeTheGuard", "no edge where a guard begins", plannerFile,
		"		ends(end - guard)\n", ""),
	mutant.Replace("NoEdgeForGrowth", "no edge where a larger share begins to count", plannerFile,
		"			ends(plan.Shape.Grows(length, wall))\n", ""),
	mutant.Replace("NoEdgeForComing", "no edge for lengths that do not bind yet", plannerFile,
		"ends(quota.WindowAt(length, wall).End())", "_ = length"),
	mutant.Replace("NoEdgeForPauses", "no edge where a pause ends", plannerFile,
		"plan.Shut, plan.PausedUntil, plan.Until = true, p.paused, p.paused", "plan.Shut, plan.PausedUntil = true, p.paused"),
	mutant.Replace("NoEdgeForProofs", "no end of the segment with the proof", gateFile,
		"s.until, s.wallUntil = min(edge, proof.Until), proof.WallUntil", "s.wallUntil = proof.WallUntil"),
	mutant.Replace("NoWallEdgeForProofs", "no end of the segment with the proof by the wall clock", gateFile,
		"s.until, s.wallUntil = min(edge, proof.Until), proof.WallUntil", "s.until = min(edge, proof.Until)"),
	mutant.Replace("GateKnowsNoWall", "the gate does not compare the wall clock", gateFile,
		"s.Open(at.Mono) && (!s.Strict || s.WallValid(at)) {", "s.Open(at.Mono) {"),
	mutant.Replace("TakeKnowsNoWall", "the hot path does not compare the wall clock", acquireFile,
		"s.WallValid(now) && s.Take(now.Mono, n)", "s.Take(now.Mono, n)"),
	mutant.Replace("TakeKnowsNoLead", "the hot path does not see that the clocks have parted", "internal/window/segment.go",
		" && at.Wall-at.Mono <= s.lead", ""),
	mutant.Replace("TryKnowsNoWall", "the hot path does not read the wall clock", acquireFile,
		"	if s.Strict {\n		now := k.clock.Now()", "	if s.Strict && n < 0 {\n		now := k.clock.Now()"),
	mutant.Replace("TryTakeKnowsNoWall", "TryTake does not compare the wall clock", limiterFile,
		"if s.Open(now.Mono) && (!s.Strict || s.WallValid(now)) {", "if s.Open(now.Mono) {"),
	mutant.Replace("StaleServes", "permits are issued without a proof", gateFile,
		"if g.mu.stale = p.Proof.Over(at); !g.mu.stale {", "if g.mu.stale = p.Proof.Over(at); true {"),
	mutant.Replace("ProofSurvivesReset", "a new history keeps the proof of the old one", plannerFile,
		"p.proof, p.proved, p.stale, p.phase = clock.Instant{}, false, false, hashID(self)", "p.phase = hashID(self)"),
	mutant.Replace("ClockUnobserved", "a suspension is not looked for", plannerFile,
		"	p.Clock.Observe(at)\n", ""),
	mutant.Replace("SkewForgotten", "the windows in reach leave the clocks' errors out", "internal/share/shape.go",
		"protocol.ReachOf(length, t.transit(), t.rules.ClockError)", "protocol.ReachOf(length, t.transit(), 0*t.rules.ClockError)"),
	mutant.Replace("TransitForgotten", "permits count no longer than a window, though calls take time", ledgerFile,
		"a.ring.reach(s.Transit)", "a.ring.reach(0)"),
	mutant.Replace("TransitNotInReach", "the windows in reach leave the transit out", "internal/share/shape.go",
		"protocol.ReachOf(length, t.transit(), ", "protocol.ReachOf(length, 0, "),
	mutant.Replace("TransitNotInBurst", "the burst leaves the transit out", "internal/protocol/policy.go",
		"return max(1, burst-meet)", "return max(1, burst-meet*0)"),
	mutant.Replace("TransitNotInPermits", "a permit under a transit is valid for a window", ledgerFile,
		"l.plan.Shape.Transit > 0 {", "false {"),
	mutant.Replace("NewsUnforeseen", "the forecast goes by old plans", forecastFile,
		"	case f.void || i == len(f.plans):\n", "	case i == len(f.plans):\n"),
	mutant.Replace("FreshProofVoid", "a proof after an outage under hold frees nothing", plannerFile,
		"news = !p.proved || p.stale", "news = !p.proved"),
}
