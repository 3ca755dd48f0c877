package histories

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/test/mutant"
)

// patches are mistakes in the code that ships: in the rules, and in what is around them.
var patches = slices.Concat(rules, mutant.Table{
	{Name: "OwnLostUnseen", Wrong: "does not miss its own write in a store in doubt", Edits: []mutant.Edit{
		{File: "internal/view/doubt.go", Old: "} else if !t.memory.own || kept < from {", New: "} else if false {"},
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
	mutant.Replace("EndTooSoon", "lets a process that continues another promise an end of windows that the other used", "coordinator/leave.go",
		"if opens := time.Unix(0, p.opens); opens.After(at) {", "if opens := time.Unix(0, p.opens); false {"),
	mutant.Replace("ListedWhenSent", "a history is said to begin when its listing was asked for", "coordinator/membership.go",
		"at := p.s.o.Clock.Now()\n\t\tsince", "at := m.sent\n\t\tsince"),
	{Name: "NotWholeWindow", Wrong: "leaves out a window within which a length comes into force", Edits: []mutant.Edit{
		{File: "internal/share/terms.go", Old: `	total, limited, inForce := protocol.PermitsFor(t.policy, w)
`, New: `	total, limited, inForce := protocol.PermitsFor(t.policy, w)
	if _, ok := protocol.LimitOf(t.policy.LimitsAt(w.Start()), w.Length); !ok {
		limited = false
	}
`},
	}},
	{Name: "OldEvent", Wrong: "applies an event that came before", Edits: []mutant.Edit{
		{File: "internal/view/tracker.go", Old: "if x.revision <= t.revision {", New: "if x.revision <= 0 {"},
		{File: "internal/share/history.go", Old: "\tif !h.started || c.Revision <= h.revision {", New: "\tif !h.started {"},
	}},
	{Name: "RemovedForgotten", Wrong: "forgets a limit that the newest view lacks", Edits: []mutant.Edit{
		{File: "internal/share/bound.go", Old: `		for _, length := range t.lengths {
			if !slices.Contains(lengths, length)`, New: `		if i < len(h.terms)-1 {
			continue
		}
		for _, length := range t.lengths {
			if !slices.Contains(lengths, length)`},
	}},
	{Name: "SameCountProves", Wrong: "takes an equal number of keys and an equal highest revision for a proof", Edits: []mutant.Edit{
		{File: "coordinator/probe.go", Old: "\tr, err := s.client.Get(c, key, clientv3.WithKeysOnly())\n", New: `	r, err := s.kv.Get(c, s.keys.Provider(waiting[0].membership.provider), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if p := waiting[0].membership; err == nil {
		p.mu.Lock()
		var all []view.Key
		for _, kv := range r.Kvs {
			all = append(all, p.parse(kv, false))
		}
		if p.id == waiting[0].id && p.tracker.LooksLike(all) {
			p.sink.Prove(sent)
		}
		p.mu.Unlock()
	}
`},
		{File: "internal/view/tracker.go", Old: "// IDs returns the incarnations", New: `func (t *Tracker) LooksLike(keys []Key) bool {
	n, highest := len(t.instances), int64(0)
	for _, r := range t.instances {
		highest = max(highest, r)
	}
	for _, d := range t.documents {
		if highest = max(highest, d.revision); d.revision > 0 {
			n++
		}
	}
	for i := range keys {
		if k := &keys[i]; k.Kind != Other && k.Kind != Backoff {
			if n--; k.Revision > highest {
				return false
			}
		}
	}
	return n == 0
}

// IDs returns the incarnations`},
	}},
	{Name: "EndedWatchHeard", Wrong: "takes what an ended watch still tells", Edits: []mutant.Edit{
		{File: "coordinator/stream.go", Old: "return r, ok && s.ctx.Err() == nil", New: "return r, ok"},
		{File: "coordinator/follow.go", Old: "\tdefer p.mu.Unlock()\n\tif ctx.Err() != nil {\n\t\treturn nil\n\t}\n\tp.doubtLocked", New: "\tdefer p.mu.Unlock()\n\tp.doubtLocked"},
	}},
	mutant.Replace("SlowClocks", "clocks are off by more than the policy says", "internal/test/histories/machine_test.go",
		"\treturn p.e * 6 / 10\n", "\treturn 10*p.e + 300*ms\n"),
	{Name: "TimingUnchecked", Wrong: "obeys a policy that breaks the timing rule", Edits: []mutant.Edit{
		{File: "quota/validate.go", Old: "\ttimed.checkTiming(&errs)\n", New: "\t_ = timed\n"}, // of the share
		{File: "quota/validate.go", Old: "\tp.checkTiming(&errs)\n", New: ""},                  // of the reader
	}},
	{Name: "TwoWatches", Wrong: "learns of policy and instances by two streams", Edits: []mutant.Edit{
		{File: "coordinator/stream.go", Old: "\ts.told = s.Watch(", New: `	if instances := folder + "instances/"; strings.HasPrefix(folder, "/quotient/v1/providers/") {
		told := make(chan clientv3.WatchResponse)
		s.told = told
		for _, x := range []clientv3.WatchChan{
			s.Watch(s.ctx, instances, append(o, clientv3.WithPrefix(), clientv3.WithRev(s.from))...),
			s.Watch(s.ctx, instances[:len(instances)-1]+"0", append(o, clientv3.WithRange(clientv3.GetPrefixRangeEnd(folder)), clientv3.WithRev(s.from))...),
		} {
			go func() {
				for r := range x {
					select {
					case told <- r:
					case <-s.ctx.Done():
					}
				}
			}()
		}
		return
	}
	s.told = s.Watch(`},
		{File: "coordinator/stream.go", Old: "\t\"context\"\n", New: "\t\"context\"\n\t\"strings\"\n"},
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
	mutant.Replace("SameID", "gives a process that starts the ID that its name had before", "coordinator/register.go",
		`rand.Text()`, `rand.Text()[:0]+"again"`),
	mutant.Replace("WallUnread", "the hot path ignores the wall clock", "consumer/acquire.go",
		"s.WallValid(now) && s.Take(now.Mono, n)", "s.Take(now.Mono, n)"),
	mutant.Replace("WallUnreadByTry", "TryTake ignores the wall clock", "consumer/limiter.go",
		"s.Open(now.Mono) && (!s.Strict || s.WallValid(now))", "s.Open(now.Mono)"),
	mutant.Replace("KeyBeforeLimiter", "the key is given up before the limiter closes", "coordinator/session.go",
		"\ts.cancel()\n\ts.wg.Wait() // with run", "\tfor _, p := range memberships {\n\t\t_ = p.promiseEnd(context.Background())\n\t}\n\ts.cancel()\n\ts.wg.Wait() // with run"),
	mutant.Replace("ReportUnconditional", "a report is written without its condition", "coordinator/report.go",
		"t, err := p.s.kv.Txn(ctx).If(is(key, newest)).\n\t\tThen", "t, err := p.s.kv.Txn(ctx).Then"),
	mutant.Replace("SilenceUndoubted", "counts a proof after a long silence as before", "internal/view/doubt.go",
		"if max(now.Mono-t.sure.Mono, now.Wall-t.sure.Wall) <= freshness {", "if true {"),
	mutant.Replace("SilenceUnheard", "raises no doubt after a silence", "coordinator/probe.go",
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
