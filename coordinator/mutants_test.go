package coordinator

import (
	"testing"

	"github.com/quotient-limiter/quotient/internal/mutant"
)

// mutants are mistakes in the session's shell. Each must be caught by a test of this
// package, or by one of internal/longrun, which has the same shell in fake time.
var mutants = []mutant.Mutant{
	{Name: "CloseUnheard", Wrong: "a closed session leaves its limiters open", Edits: []mutant.Edit{
		{File: "coordinator/session.go", Old: "\t\tp.closeSink()\n", New: "\t\t_ = p\n"}}},
	{Name: "LastUserStays", Wrong: "the last subscription's end leaves the instance", Edits: []mutant.Edit{
		{File: "coordinator/session.go", Old: "\t\t\tu.err = p.close()\n", New: ""}}},
	{Name: "FirstUserEndsAll", Wrong: "the first of two subscriptions ends the instance", Edits: []mutant.Edit{
		{File: "coordinator/session.go", Old: "last := p.users == 0 && ", New: "last := "}}},
	{Name: "GoneUnseen", Wrong: "an instance whose key is gone goes on", Edits: []mutant.Edit{
		{File: "coordinator/follow.go", Old: "if !p.tracker.Has(p.id) {", New: "if false {"}}},
	{Name: "GhostStays", Wrong: "a registration whose answer was lost begins another incarnation", Edits: []mutant.Edit{
		{File: "coordinator/register.go", Old: "if p.attempt != nil && p.attempt.lease == l.id {", New: "if false {"}}},
	{Name: "TroubleUntold", Wrong: "a membership that comes later is not told of the session's problem", Edits: []mutant.Edit{
		{File: "coordinator/membership.go", Old: "\tp.trouble(nil) // the session's\n", New: ""}}},
	{Name: "MemberForgotten", Wrong: "a member that is too old is forgotten with the next news", Edits: []mutant.Edit{
		{File: "coordinator/membership.go", Old: "errors.Join(p.s.problem(), err, p.tracker.Problem())", New: "errors.Join(err, p.tracker.Problem())"}}},
	{Name: "AllMembersAwaited", Wrong: "Join waits for every member", Edits: []mutant.Edit{
		{File: "coordinator/version.go", Old: "enough = time.After(otherMembers)", New: "enough = nil"}}},
	{Name: "FreshnessAtOnce", Wrong: "a replaced freshness counts no longer", Edits: []mutant.Edit{
		{File: "coordinator/change.go", Old: "if before = append(before, s); next == nil || !s.covered(next) {", New: "if before = append(before, s); false {"}}},
	{Name: "NoLease", Wrong: "a writer that died leaves its policy for ever", Edits: []mutant.Edit{
		{File: "coordinator/change.go", Old: "if !s.leased {", New: "if false {"}}},
	{Name: "RevisionCut", Wrong: "a part of an answer may end within a revision", Edits: []mutant.Edit{
		{File: "coordinator/bounds.go", Old: "n > 0 && r.Events[n-1].Kv.ModRevision == r.Events[n].Kv.ModRevision", New: "false"}}},
	{Name: "PageTooLarge", Wrong: "a page that is too large is an error", Edits: []mutant.Edit{
		{File: "coordinator/bounds.go", Old: "if tooLarge(err) && limit > 1 {", New: "if false {"}}},
	{Name: "ProgressAfterAnswer", Wrong: "how far the watch is, is asked only after a probe's answer", Edits: []mutant.Edit{
		{File: "coordinator/probe.go", Old: "if sleep(answered, every/2) {", New: "if sleep(answered, every/2) && false {"}}},
	{Name: "ShortProbe", Wrong: "a probe may take a quarter of the freshness", Edits: []mutant.Edit{
		{File: "coordinator/probe.go", Old: "min(s.shortestFreshness(), probesAtOnce*every)", New: "min(s.shortestFreshness()/4, probesAtOnce*every)"}}},
	{Name: "RedialsLate", Wrong: "after an outage gRPC's own pause is waited for", Edits: []mutant.Edit{
		{File: "coordinator/session.go", Old: "\t\ts.client.ActiveConnection().ResetConnectBackoff()\n", New: ""}}},
}

func TestMutantsApply(t *testing.T) {
	mutant.AllApply(t, mutants)
}
