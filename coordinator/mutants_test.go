package coordinator

import (
	"testing"

	"github.com/quotient-limiter/quotient/internal/test/mutant"
)

// mutants are mistakes in the session's shell. Each must be caught by a test of this
// package, or by one of internal/test/hours, which has the same shell in fake time.
var mutants = mutant.Table{
	mutant.Replace("CloseUnheard", "a closed session leaves its limiters open", "coordinator/resume.go",
		"\tp.closeSink()\n", ""),
	mutant.Replace("LastUserStays", "the last subscription's end leaves the instance", "coordinator/session.go",
		"\t\t\treturn p.close()\n", ""),
	mutant.Replace("FirstUserEndsAll", "the first of two subscriptions ends the instance", "coordinator/session.go",
		"last := p.users == 0 && ", "last := "),
	mutant.Replace("GoneUnseen", "an instance whose key is gone goes on", "coordinator/follow.go",
		"if !p.tracker.Has(p.id) {", "if false {"),
	mutant.Replace("EndedWatchTold", "an answer of a watch that has ended is returned", "coordinator/stream.go",
		"return r, ok && s.ctx.Err() == nil", "return r, ok"),
	mutant.Replace("EndedWatchTaken", "an answer of a watch that has ended is taken", "coordinator/follow.go",
		"\tif ctx.Err() != nil {\n\t\treturn nil\n\t}\n\tp.doubtLocked", "\tp.doubtLocked"),
	mutant.Replace("RevivedStays", "an incarnation that a backup has again keeps its share", "coordinator/list.go",
		"err == nil && len(revived) > 0", "false"),
	mutant.Replace("GhostStays", "a registration whose answer was lost begins another incarnation", "coordinator/register.go",
		"if p.attempt != nil && p.attempt.lease == l.id {", "if false {"),
	mutant.Replace("TroubleUntold", "a membership that comes later is not told of the session's problem", "coordinator/membership.go",
		"\tp.trouble(nil) // the session's\n", ""),
	mutant.Replace("MemberForgotten", "a member that is too old is forgotten with the next news", "coordinator/membership.go",
		"errors.Join(p.s.problem(), err, p.tracker.Problem(), p.asking.denied, p.unpaced)", "errors.Join(err, p.tracker.Problem(), p.asking.denied, p.unpaced)"),
	mutant.Replace("AllMembersAwaited", "Join waits for every member", "coordinator/version.go",
		"enough = time.After(otherMembers)", "enough = nil"),
	mutant.Replace("FreshnessAtOnce", "a replaced freshness counts no longer", "coordinator/change.go",
		"if before = append(before, s); next == nil || !s.covered(next) {", "if before = append(before, s); false {"),
	mutant.Replace("NoLease", "a writer that died leaves its policy for ever", "coordinator/change.go",
		"if !s.leased {", "if false {"),
	mutant.Replace("ToldTooMuch", "a watch whose answer is too large is opened again where it was", "coordinator/follow.go",
		"errors.Is(err, rpctypes.ErrCompacted), tooLarge(err)", "errors.Is(err, rpctypes.ErrCompacted)"),
	mutant.Replace("PageTooLarge", "a page that is too large is an error", "coordinator/bounds.go",
		"if tooLarge(err) && limit > 1 {", "if false {"),
	mutant.Replace("ProgressAfterAnswer", "how far the watch is, is asked only after a probe's answer", "coordinator/probe.go",
		"if sleep(answered, every/2) {", "if sleep(answered, every/2) && false {"),
	mutant.Replace("ShortProbe", "a probe may take a quarter of the freshness", "coordinator/probe.go",
		"min(s.shortestFreshness(), probesAtOnce*every)", "min(s.shortestFreshness()/4, probesAtOnce*every)"),
	mutant.Replace("RedialsLate", "after an outage gRPC's own pause is waited for", "coordinator/session.go",
		"\t\ts.client.ActiveConnection().ResetConnectBackoff()\n", ""),
	mutant.Replace("LockShared", "a process continues one that lives", "coordinator/state_linux.go",
		"unix.LOCK_EX|unix.LOCK_NB", "unix.LOCK_SH|unix.LOCK_NB"),
	mutant.Replace("CopyCounts", "a copy of the state file counts", "coordinator/state_linux.go",
		"at.Dev, at.Ino), nil", "0*at.Dev, 0*at.Ino), nil"),
	mutant.Replace("StateStays", "the state file stays as it was after an end", "coordinator/state.go",
		"err := f.file.Truncate(0); !errors", "err := error(nil); !errors"),
	mutant.Replace("AnyKey", "an instance is continued whose key somebody has written", "coordinator/resume.go",
		`is(m.key, b.Key), `, ""),
	mutant.Replace("AnyReport", "an instance is continued whose report somebody has written", "coordinator/resume.go",
		`, is(report, b.Report)`, ""),
	mutant.Replace("AnswerMissed", "a report whose answer was not seen is taken for another's", "coordinator/resume.go",
		"b.Wrote(found.ModRevision, found.Value)", "false && b.Wrote(found.ModRevision, found.Value)"),
	mutant.Replace("PresentView", "a process that continues another begins with the present view", "coordinator/list.go",
		"\tif m.begin.Revision != 0 {", "\tif false {"),
}

func TestMutantsApply(t *testing.T) {
	mutants.Apply(t)
}
