package mutant

// session are mistakes in a session: what it hears of etcd, and what it says there.
var session = Table{
	Replace("BackoffCountsAgain", "counts a pause from when its key was told last", "internal/protocol/throttle.go",
		"latest := a.At.Add(p.BackoffMax)", "latest := now.Add(p.BackoffMax)", histories, "consumer TestABackoffThatIsToldAgainIsNoLonger"),
	{Name: "BackwardsUnseen", Wrong: "takes a store that went back as usual", By: []string{histories}, Edits: []Edit{
		{"internal/view/line.go", "\tif revision < p.floor || cluster != l.cluster {", "\tif false {"},
		{"coordinator/line.go", "case l.begun && e.cluster != l.Cluster():", "case false:"},
		{"coordinator/line.go", "e.created != e.mark.created\n", "false\n"},
	}},
	Replace("Coalesce", "makes one view of the revisions of one answer", "internal/view/tracker.go",
		"n < len(rest) && rest[n].Revision == rest[0].Revision {", "n < len(rest) {", histories),
	Replace("PauseUnbounded", "obeys a pause however long it is", "internal/protocol/throttle.go",
		"a.Until.After(latest)", "a.Until.Before(a.At) && a.Until.After(latest)", histories),
	Replace("ReadWithoutPosition", "counts a read before the watch has delivered what it saw", "internal/view/line.go",
		"if a.revision > l.position {\n\t\t\treturn false", "if false {\n\t\t\treturn false", histories),
	Replace("GivesBackIssued", "gives back permits of a budget that were issued meanwhile", "coordinator/taking.go",
		"taken, ok := p.fund(w, w.step.Own.Taken, false, false); !ok || taken > w.step.Own.Taken {", "_, ok := p.fund(w, w.step.Own.Taken, false, false); !ok {", histories),
	Replace("ShutdownInAHurry", "Shutdown leaves its keys to the lease if etcd takes a second", "coordinator/leave.go",
		"s.close(ctx, s.o.TTL)", "s.Close()", "coordinator TestShutdownWaitsLongerForEtcdThanClose"),
	Replace("GivesBackBeforeBinding", "gives back permits of a budget that its limiter may issue still", "coordinator/taking.go",
		"if w.step.Own.Taken < w.taken {", "if false {", histories, "coordinator TestGivesBackAfterBinding"),
	{Name: "BoundWhenAnswered", Wrong: "obeys its announced end from when that is known to be written", By: []string{histories}, Edits: []Edit{
		{"coordinator/member.go", "\te.call(func() { e.sink.Announce(until) })\n", ""},
		{"coordinator/leave.go", "\treturn until, nil\n", "\tp.sink.Announce(p.until)\n\treturn until, nil\n"},
	}},
	Replace("CreatedIsPosition", "takes the header of the answer that a watch was created for its position", "coordinator/line.go",
		"case e.progress:", "case e.created, e.progress:", histories),
	Replace("EndBySetClock", "says by the operating system's clock from when on nothing is issued", "coordinator/leave.go",
		"time.Unix(0, p.s.o.Clock.Wall()+1)", "time.Unix(0, p.s.o.Clock.Now().Wall+1)", histories),
	Replace("EndTooSoon", "lets a process that continues another promise an end of windows that the other used", "coordinator/member.go",
		"{at, time.Unix(0, p.opens), p.value.From}", "{at, p.value.From}", histories),
	{Name: "ListedWhenSent", Wrong: "a history is said to begin when its listing was asked for", By: []string{histories}, Edits: []Edit{
		{"coordinator/member.go", "\tat := p.m.now.Instant\n\tv := ", "\tat := p.asked\n\tv := "},
		{"coordinator/member.go", "\tfailed bool ", "\tasked  clock.Instant\n\tfailed bool "},
		{"coordinator/join.go", "\t\tj.p.parts.Add(1)\n", "\t\tj.p.parts.Add(1)\n\t\tj.p.asked = s.o.Clock.Now()\n"},
	}},
	{Name: "OldEvent", Wrong: "applies an event that came before", By: []string{histories}, Edits: []Edit{
		{"internal/view/tracker.go", "if keys[0].Revision <= t.revision {", "if keys[0].Revision <= 0 {"},
		{"internal/share/history.go", "\tif !h.Started() || c.Revision <= h.revision {", "\tif !h.Started() {"},
	}},
	{Name: "SameCountProves", Wrong: "takes an equal number of keys and an equal highest revision for a proof", By: []string{histories}, Edits: []Edit{
		{"coordinator/probe.go", "\tr, err := s.client.Get(c, q.mark.key, clientv3.WithKeysOnly())\n", `	sent := s.o.Clock.Now()
	r, err := s.kv.Get(c, s.keys.Provider(q.owner.provider), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if p := q.owner; err == nil {
		p.s.mu.Lock()
		var all []view.Key
		for _, kv := range r.Kvs {
			all = append(all, p.parse(kv, false))
		}
		if p.stage == following && p.id == q.mark.id && p.tracker.LooksLike(all) {
			p.sink.Prove(sent)
		}
		p.s.mu.Unlock()
		r.Kvs = slices.DeleteFunc(r.Kvs, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) != q.mark.key })
	}
`},
		{"coordinator/probe.go", "\t\"time\"\n\n", "\t\"time\"\n\t\"slices\"\n\n\t\"github.com/quotient-limiter/quotient/internal/view\"\n\t\"go.etcd.io/etcd/api/v3/mvccpb\"\n"},
		{"internal/view/tracker.go", "// IDs returns the incarnations", `func (t *Tracker) LooksLike(keys []Key) bool {
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
		if k := &keys[i]; k.Kind != Other {
			if n--; k.Revision > highest {
				return false
			}
		}
	}
	return n == 0
}

// IDs returns the incarnations`},
	}},
	{Name: "TwoWatches", Wrong: "learns of policy and instances by two streams", By: []string{histories}, Edits: []Edit{
		{"coordinator/stream.go", "\ts.answers = s.Watch(", `	if instances := folder + "p/instances/"; folder == "/quotient/v1/providers/" {
		told := make(chan clientv3.WatchResponse)
		s.answers = told
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
	s.answers = s.Watch(`},
	}},
	Replace("KeptAliveProves", "takes an answer that a member gives by itself for a proof", "coordinator/lease.go",
		"\t\t\t_, err := s.client.KeepAliveOnce(c, l.id)\n", `			s.mu.Lock()
			q := s.mu.question(s.o.Clock.Now())
			s.mu.Unlock()
			r, err := s.client.KeepAliveOnce(c, l.id)
			if err == nil {
				s.step(answered{q, r.Revision, r.ClusterId, q.mark.created})
			}
`, histories),
	Replace("LoweredAtOnce", "lets operators lower the settle time below a freshness that instances still go by", "coordinator/lowering.go",
		"next.Settle < need {", "false && next.Settle < need {", histories),
	Replace("OnlyStopped", "continues the incarnation of a process that was only stopped", "coordinator/state_linux.go",
		"\t\treturn errStateLocked\n", "\t\treturn nil\n", histories),
	Replace("PresentView", "begins the history of a process that continues another with the present view", "coordinator/list.go",
		"\tif m.begin.Revision != 0 {", "\tif false {", histories, "coordinator TestAProcessContinuesTheOneBefore"),
	Replace("ProgressProves", "takes a progress notification alone for a proof", "coordinator/line.go",
		"\t\tl.Progress(e.revision)\n", `		l.Progress(e.revision)
		for _, p := range sorted(l.members) {
			p.prove(m.now.Instant)
		}
`, histories),
	Replace("SameID", "gives a process that starts the ID that its name had before", "coordinator/register.go",
		"rand.Text()", `rand.Text()[:0]+"again"`, histories),
	Replace("KeyBeforeLimiter", "the key is given up before the limiter closes", "coordinator/session.go",
		"\ts.cancel()\n\tfor _, p := range memberships {\n", `	for _, p := range memberships {
		_ = p.promiseEnd(context.Background())
	}
	s.cancel()
	for _, p := range memberships {
`, histories),
	Replace("FromThePresent", "a watch that is opened again begins at the present", "coordinator/line.go",
		"return l.Position() + 1\n", "return 0\n", histories),
	Replace("GoneUnseen", "an instance whose key is gone goes on", "coordinator/member.go",
		"if !p.tracker.Has(p.id) {", "if false {", "coordinator TestStep"),
	{Name: "MergedTwice", Wrong: "an event that comes again makes one change of two", By: []string{"coordinator TestAProcessContinuesTheOneBefore"}, Edits: []Edit{
		{"coordinator/member.go", "\tp.take(j.between)\n", ""},
		{"coordinator/member.go", "range j.early {", "range [][]view.Key{append(j.between, slices.Concat(j.early...)...)} {"},
	}},
	Replace("NarrowedGoesOn", "a history goes on by another watch, which begins later", "coordinator/step.go",
		"if p.stage == following {\n\t\tp.stage = toList", "if false {\n\t\tp.stage = toList", "coordinator TestStep"),
	Replace("ListedByAnotherLine", "a history begins by another watch than the one of its listing", "coordinator/member.go",
		"j.line != p.line || ", "p.line == nil || ", "coordinator TestStep"),
	Replace("AnsweredAfterwards", "an answer to a line that is forgotten ends its histories", "coordinator/step.go",
		"l.open, l.begun = false, false", "l.open = false", "coordinator TestStep"),
	Replace("UntoldForEver", "a key that was not told is missed when its history is over, too", "coordinator/line.go",
		"p.stage == following && p.untold != 0", "p.untold != 0", "coordinator TestStep"),
	{Name: "ToldBetween", Wrong: "a key counts as told by the watch that another one has told", By: []string{"coordinator TestStep"}, Edits: []Edit{
		{"coordinator/member.go", "\tp.untold = 0\n\tp.begin(", "\tif p.untold = 0; j.fresh {\n\t\tp.untold = p.keyAt\n\t}\n\tp.begin("},
		{"coordinator/member.go", "\tif j.fresh { // after", "\tif false { // after"},
	}},
	Replace("TooManyForEver", "a provider that had too many keys is not listed again", "coordinator/member.go",
		"\t\tp.m.emit(wake{})\n", "", "coordinator TestStep"),
	Replace("EndBeforeUse", "a promised end is of windows that were used", "coordinator/leave.go",
		"time.Unix(0, p.s.o.Clock.Wall()+1)", "time.Unix(0, p.s.o.Clock.Wall()-int64(time.Second))", histories),
	Replace("ListedLongAgo", "a history is said to begin before its listing", "coordinator/member.go",
		"since := at.Mono\n", "at.Mono -= 10_000_000_000\n\tsince := at.Mono\n", histories),
	Replace("HeaderIsPosition", "the header of events counts as the watch's position", "coordinator/line.go",
		"case e.progress:", "case !e.created:", histories),
	Replace("RevivedStays", "an incarnation that a backup has again keeps its share", "coordinator/list.go",
		"if kv.Lease != int64(m.lease) || string(kv.Key) == m.key {", "if true {", histories),
	Replace("LeaseForGone", "a lease that cannot be renewed is not asked for again", "coordinator/lease.go",
		"case errors.Is(err, rpctypes.ErrLeaseNotFound):\n\t\t\treturn\n", "case errors.Is(err, rpctypes.ErrLeaseNotFound):\n\t\t\tcontinue\n", histories),
	Replace("CompactedAgain", "a watch whose revision is gone is opened again where it was", "coordinator/watch.go",
		"errors.Is(err, rpctypes.ErrCompacted) ||", "false && errors.Is(err, rpctypes.ErrCompacted) ||", histories),
	{Name: "DatedByAnswer", Wrong: "a probe is dated at its answer", By: []string{histories}, Edits: []Edit{
		{"coordinator/line.go", "case a.Answer(a.probe, ", "case a.Answer(a.Sent(a.m.now.Instant), "},
		{"internal/view/line.go", "if revision < p.floor || cluster", "if cluster"},
	}},
	Replace("CloseUnheard", "a closed session leaves its limiters open", "coordinator/session.go",
		"\t\ts.step(closing{p})\n", "\t\t_ = p\n", "coordinator TestALazySessionEnds"),
	Replace("LastUserStays", "the last subscription's end leaves the instance", "coordinator/session.go",
		"\t\t\treturn p.close()\n", "", "coordinator TestWhoClosesUnansweredLeavesNoGhost"),
	Replace("FirstUserEndsAll", "the first of two subscriptions ends the instance", "coordinator/session.go",
		"last := p.users == 0 && ", "last := ", "coordinator TestOneSessionServesManyProvidersOverOneStream"),
	Replace("EndedWatchTold", "an answer of a watch that has ended is returned", "coordinator/stream.go",
		"return r, ok && s.ctx.Err() == nil", "return r, ok", "coordinator TestAnEndedWatchSaysNothing"),
	Replace("EndedWatchTaken", "an answer of a watch that has ended is taken", "coordinator/line.go",
		"case !l.open:", "case false:", "coordinator TestStep"),
	Replace("GhostStays", "a registration whose answer was lost begins another incarnation", "coordinator/register.go",
		"if p.attempt != nil && p.attempt.lease == l.id && p.before == nil {", "if false {", "coordinator TestALostAnswerLeavesNoGhost"),
	Replace("TroubleUntold", "a membership that comes later is not told of the session's problem", "coordinator/step.go",
		"\te.tell(e.failure) // the session's problem too\n", "", "coordinator TestStep"),
	Replace("MemberForgotten", "a member that is too old is forgotten with the next news", "coordinator/member.go",
		"errors.Join(p.m.problem(), own)", "own", "coordinator TestAMemberThatTurnsOutOldIsAProblem"),
	Replace("AllMembersAwaited", "Join waits for every member", "coordinator/version.go",
		"enough = time.After(otherMembers)", "enough = nil", "coordinator TestADeadMemberDoesNotHoldUpJoin"),
	Replace("FreshnessAtOnce", "a replaced freshness counts no longer", "coordinator/change.go",
		"if before = append(before, s); next == nil || !s.covered(next) {", "if before = append(before, s); false {", "coordinator TestSettleIsNotLoweredUnderTheFreshnessInForce"),
	Replace("NoLease", "a writer that died leaves its policy for ever", "coordinator/change.go",
		"if !s.leased {", "if false {", "coordinator TestAWriterThatDiedLeavesItsLeaseToTheNext"),
	Replace("ToldTooMuch", "a watch whose answer is too large is opened again where it was", "coordinator/watch.go",
		"errors.Is(err, rpctypes.ErrCompacted) || tooLarge(err)", "errors.Is(err, rpctypes.ErrCompacted)", "coordinator TestAHistoryThatIsTooLargeBeginsAnew"),
	Replace("PageTooLarge", "a page that is too large is an error", "coordinator/bounds.go",
		"if tooLarge(err) && limit > 1 {", "if false {", "coordinator TestPagesShrinkWhereValuesAreLarge"),
	Replace("ProgressAfterAnswer", "how far the watch is, is asked only after a probe's answer", "coordinator/probe.go",
		"if sleep(inTime, every/2) {", "if sleep(inTime, every/2) && false {", "internal/test/hours TestSlowAnswersLoseNothing"),
	Replace("ShortProbe", "a probe may take a quarter of the freshness", "coordinator/probe.go",
		"min(freshness, probesAtOnce*every)", "min(freshness/4, probesAtOnce*every)", "internal/test/hours TestSlowAnswersLoseNothing"),
	Replace("RedialsLate", "after an outage gRPC's own pause is waited for", "coordinator/session.go",
		"\t\ts.client.ActiveConnection().ResetConnectBackoff()\n", "", "internal/test/hours TestBackSoonAfterALongOutage"),
	Replace("LockShared", "a process continues one that lives", "coordinator/state_linux.go",
		"unix.LOCK_EX|unix.LOCK_NB", "unix.LOCK_SH|unix.LOCK_NB", "coordinator TestAProcessJoinsAsNew"),
	Replace("CopyCounts", "a copy of the state file counts", "coordinator/state_linux.go",
		"at.Dev, at.Ino), nil", "0*at.Dev, 0*at.Ino), nil", "coordinator TestAProcessJoinsAsNew"),
	Replace("StateStays", "the state file stays as it was after an end", "coordinator/state.go",
		"err := f.file.Truncate(0); !errors", "err := error(nil); !errors", "coordinator TestNothingIsContinuedAfterLeave"),
	Replace("AnyKey", "an instance is continued whose key somebody has written", "coordinator/issuers.go",
		"is(i.key, b.Key)", "i.lives()", "coordinator TestAProcessJoinsAsNew"),
	Replace("AnyStore", "an instance is continued in a restored store", "internal/view/checkpoint.go",
		"return cluster == c.Cluster && ", "return true || ", "coordinator TestAProcessJoinsAsNew", "internal/view TestARestoredStoreIsNotContinued"),
	Replace("FirstUnasked", "the first of a fleet begins at once although another may still issue permits", "coordinator/issuers.go",
		"\t\tnone, unless = append(none, c), append(unless, op)\n", "\t\tif unless = append(unless, op); !i.value.First {\n\t\t\tnone = append(none, c)\n\t\t}\n", histories),
	Replace("FirstAgain", "the first of a fleet waits for nothing after a gap either", "coordinator/member.go",
		"v.First = m.value.First && m.asOf() == m.created", "v.First = m.value.First", histories),
	Replace("FirstAnew", "is the first again when its keys are gone", "coordinator/member.go",
		`return p.id == "" && !p.m.gaps`, "return !p.m.gaps", "coordinator TestTheFirstOfAFleet"),
	Replace("FirstThoughNarrowed", "is the first after a watch that was narrowed", "coordinator/line.go",
		"m.gaps || l.begun", "m.gaps", "coordinator TestTheFirstOfAFleet"),
	Replace("IssuerGoneEarly", "an issuer key is deleted when an end is announced", "coordinator/leave.go",
		"p.writeEnd(ctx, time.Unix(0, until)); err != nil", "p.writeEnd(ctx, time.Unix(0, until), p.issuerGone()...); err != nil", histories),
	Replace("IssuerStays", "an issuer key stays when its limiter has closed", "coordinator/leave.go",
		"return p.writeEnd(ctx, until, gone...)", "return p.writeEnd(ctx, until)", "internal/test/hours TestAFleetOfOneStartsAtOnce"),
	Replace("IssuerSweptAtOnce", "an issuer key is deleted although its instance may still be fresh", "coordinator/issuers.go",
		"now-a.at >= int64(w.settle) {", "true {", "internal/test/hours TestTheNextAfterACrashWaits"),
	Replace("MarkUnread", "a store that lacks the mark is the same", "coordinator/line.go",
		"e.created != e.mark.created\n", "false\n", "coordinator TestStep"),
	Replace("AnyClustersWatch", "a watch of another cluster is taken", "coordinator/line.go",
		"case l.begun && e.cluster != l.Cluster():", "case false:", "coordinator TestStep"),
	Replace("EarlyDropped", "what the watch tells before a listing arrives is lost", "coordinator/member.go",
		"\t\tif p.batch != nil {", "\t\tif false {", "coordinator TestStep"),
}
