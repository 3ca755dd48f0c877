package shipped

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/mutant"
)

// patches are mistakes in the code that ships: those of all rules, and more.
var patches = slices.Concat(mutant.Rules, mutant.Table{
	{Name: "OwnLostUnseen", Wrong: "does not miss its own write in a store in doubt", Edits: []mutant.Edit{
		{File: "internal/view/doubt.go", Old: "} else if !t.memory.own || found.Kept < from {", New: "} else if false {"},
		{File: "coordinator/follow.go", Old: "\tcase lost:\n", New: "\tcase false && lost:\n"},
		{File: "coordinator/report.go", Old: "\tcase gap:\n", New: "\tcase false && gap:\n"},
	}},
	{Name: "TimerEndsProof", Wrong: "ends the proof by a timer, not in the reading that admits", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "\treturn p.proof.Mono + int64(r.Freshness)", New: `	if !p.expired {
		return window.Forever, window.Forever
	}
	return p.proof.Mono + int64(r.Freshness)`},
		{File: "internal/share/planner.go", Old: "	heldBack bool // the latest warm-up is that after a pause\n}\n", New: `	heldBack bool
	expired  bool
}

func (p *Planner) Expire() { p.expired = true }
`},
		{File: "internal/share/planner.go", Old: "p.proof, p.proved = sent, true", New: "p.proof, p.proved, p.expired = sent, true, false"},
		{File: "consumer/core.go", Old: "\tk.mu.Lock()\n\tif k.mu.planner.Prove(sent) {", New: `	k.mu.Lock()
	until := sent.Mono + int64(k.mu.planner.Rules(sent.Mono).Freshness)
	var ring func()
	ring = func() {
		if d := until - k.clock.Mono(); d > 0 {
			time.AfterFunc(time.Duration(d)+time.Microsecond, ring)
			return
		}
		k.mu.Lock()
		if p, _ := k.mu.planner.Proved(); p != sent {
			k.mu.Unlock()
			return
		}
		k.mu.planner.Expire()
		k.news(true)
	}
	time.AfterFunc(time.Duration(until-k.clock.Mono()), ring)
	if k.mu.planner.Prove(sent) {`},
	}},
	{Name: "BoundWhenAnswered", Wrong: "obeys its announced end from when that is known to be written", Edits: []mutant.Edit{
		{File: "coordinator/leave.go", Old: "\tif !p.silent {\n\t\tp.sink.Announce(p.until)\n\t}\n", New: ""},
		{File: "coordinator/leave.go", Old: "\treturn until.UnixNano(), nil\n", New: "\tp.sink.Announce(p.until)\n\treturn until.UnixNano(), nil\n"},
	}},
	{Name: "CreatedIsPosition", Wrong: "takes the header of the answer that a watch was created for its position", Edits: []mutant.Edit{
		{File: "coordinator/follow.go", Old: "w.open(p.s.keys.Provider(p.provider))", New: "w.open(p.s.keys.Provider(p.provider), clientv3.WithCreatedNotify())"},
		{File: "coordinator/follow.go", Old: "gap := r.IsProgressNotify() && ", New: "gap := (r.Created || r.IsProgressNotify()) && "},
	}},
	{Name: "EndBySetClock", Wrong: "says by the operating system's clock from when on nothing is issued", Edits: []mutant.Edit{
		{File: "coordinator/leave.go", Old: "time.Unix(0, p.s.o.Clock.Wall()+1)", New: "time.Unix(0, p.s.o.Clock.Now().Wall+1)"},
	}},
	{Name: "KeptAliveProves", Wrong: "takes an answer that a member gives by itself for a proof", Edits: []mutant.Edit{
		{File: "coordinator/lease.go", Old: "\t\t\t_, err := s.client.KeepAliveOnce(c, l.id)\n", New: `			sent := s.o.Clock.Now()
			r, err := s.client.KeepAliveOnce(c, l.id)
			for _, p := range s.all() {
				if err == nil {
					p.mu.Lock()
					a := asked{p, p.id, p.tracker.Sent(sent)}
					p.mu.Unlock()
					p.answered(s, a, r.Revision, r.ClusterId)
				}
			}
`},
	}},
	{Name: "LoweredAtOnce", Wrong: "lets operators lower the settle time below a freshness that instances still go by", Edits: []mutant.Edit{
		{File: "coordinator/lowering.go", Old: "next.Settle < need {", New: "false && next.Settle < need {"},
	}},
	{Name: "OnlyStopped", Wrong: "continues the incarnation of a process that was only stopped", Edits: []mutant.Edit{
		{File: "coordinator/state_linux.go", Old: "\t\treturn errStateLocked\n", New: "\t\treturn nil\n"},
	}},
	{Name: "PresentView", Wrong: "begins the history of a process that continues another with the present view", Edits: []mutant.Edit{
		{File: "coordinator/list.go", Old: "\tif m.begin.Revision != 0 {", New: "\tif false {"},
	}},
	{Name: "ProgressProves", Wrong: "takes a progress notification alone for a proof", Edits: []mutant.Edit{
		{File: "coordinator/follow.go", Old: "\tp.proveLocked()\n\tif len(keys) > 0 {", New: "\tif r.IsProgressNotify() {\n\t\tp.sink.Prove(p.s.o.Clock.Now())\n\t}\n\tp.proveLocked()\n\tif len(keys) > 0 {"},
	}},
	{Name: "ReturnedTwice", Wrong: "takes a permit back twice", Edits: []mutant.Edit{
		{File: "internal/window/gate.go", Old: "if !g.mu.returned.first(serial, &g.mu.ledger) {", New: "if !g.mu.returned.first(serial, &g.mu.ledger) && false {"},
	}},
	{Name: "SameID", Wrong: "gives a process that starts the ID that its name had before", Edits: []mutant.Edit{
		{File: "coordinator/register.go", Old: "\tpublic, key, err := ed25519.GenerateKey(nil)\n\tif err != nil {\n\t\treturn nil, false, err\n\t}\n", New: "\tseed := sha256.Sum256([]byte(p.s.o.Name))\n\tkey := ed25519.NewKeyFromSeed(seed[:])\n\tpublic := key.Public().(ed25519.PublicKey)\n"},
		{File: "coordinator/register.go", Old: "\t\"crypto/ed25519\"\n", New: "\t\"crypto/ed25519\"\n\t\"crypto/sha256\"\n"},
	}},
	mutant.Replace("WallUnread", "the hot path ignores the wall clock", "consumer/acquire.go",
		"s.WallValid(now) && s.Take(now.Mono, n)", "s.Take(now.Mono, n)"),
	mutant.Replace("WallUnreadByTry", "TryTake ignores the wall clock", "consumer/limiter.go",
		"s.Open(now.Mono) && (!s.Strict || s.WallValid(now))", "s.Open(now.Mono)"),
	mutant.Replace("KeyBeforeLimiter", "the key is given up before the limiter closes", "coordinator/session.go",
		"\ts.cancel()\n\ts.wg.Wait() // with run", "\tfor _, p := range memberships {\n\t\t_ = p.promiseEnd(context.Background())\n\t}\n\ts.cancel()\n\ts.wg.Wait() // with run"),
	mutant.Replace("ReportUnconditional", "a report is written without its condition", "coordinator/report.go",
		"t, err := p.s.kv.Txn(c).If(clientv3.Compare(clientv3.ModRevision(key), \"=\", newest)).\n\t\tThen", "t, err := p.s.kv.Txn(c).Then"),
	mutant.Replace("SilenceUndoubted", "a silence raises no doubt", "coordinator/probe.go",
		"if !p.tracker.Silence(now, int64(p.freshness())) {", "if true {"),
	mutant.Replace("FromThePresent", "a watch that is opened again begins at the present", "coordinator/follow.go",
		"w = p.newStream(ctx, p.tracker.Position()+1)", "w = p.newStream(ctx, 0)"),
	mutant.Replace("GoneUnseen", "an instance whose key is gone goes on", "coordinator/follow.go",
		"if !p.tracker.Has(p.id) {", "if false {"),
	mutant.Replace("EndBeforeUse", "a sealed end is of windows that were used", "coordinator/leave.go",
		"time.Unix(0, p.s.o.Clock.Wall()+1)", "time.Unix(0, p.s.o.Clock.Wall()-int64(time.Second))"),
	mutant.Replace("ListedLongAgo", "a history is said to begin before its listing", "coordinator/membership.go",
		"since := at.Mono\n", "at.Mono -= 10_000_000_000\n\t\tsince := at.Mono\n"),
	mutant.Replace("HeaderIsPosition", "the header of events counts as the watch's position", "coordinator/follow.go",
		"r.IsProgressNotify() && p.tracker.Progress(r.Header.Revision)", "p.tracker.Progress(r.Header.Revision)"),
	mutant.Replace("Unchecked", "a doubt is not checked", "coordinator/probe.go",
		"if p.tracker.Unchecked() && !p.checking {", "if false {"),
	mutant.Replace("UnshownIsShown", "a store that has nothing of this instance's is the same", "coordinator/follow.go",
		"\tcase unshown:\n", "\tcase false && unshown:\n"),
	mutant.Replace("RevivedStays", "an incarnation that a backup has again keeps its share", "coordinator/list.go",
		"err == nil && len(revived) > 0", "false"),
	mutant.Replace("LeaseForGone", "a lease that cannot be renewed is not asked for again", "coordinator/lease.go",
		"case errors.Is(err, rpctypes.ErrLeaseNotFound):\n\t\t\treturn\n", "case errors.Is(err, rpctypes.ErrLeaseNotFound):\n\t\t\tcontinue\n"),
	mutant.Replace("CompactedAgain", "a watch whose revision is gone is opened again where it was", "coordinator/follow.go",
		"case errors.Is(err, rpctypes.ErrCompacted), tooLarge(err)", "case false && errors.Is(err, rpctypes.ErrCompacted), tooLarge(err)"),
	{Name: "DatedByAnswer", Wrong: "a probe is dated at its answer", Edits: []mutant.Edit{
		{File: "coordinator/probe.go", Old: "p.tracker.Answer(a.probe, ", New: "p.tracker.Answer(p.tracker.Sent(s.o.Clock.Now()), "},
		{File: "internal/view/tracker.go", Old: "if revision < p.floor || cluster", New: "if cluster"}, // of that probe it means nothing
	}},
})
