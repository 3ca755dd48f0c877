package mutant

// rules are mistakes in the rules of docs/proof/protocol.md: what an instance may issue, and when.
var rules = Table{
	Replace("AnchorNow", "looks S back from now, not from the window's start", "internal/share/bound.go",
		"\tstart := sub(w.Start(), offset)\n", "\tstart := sub(max(w.Start(), add(now, offset)), offset)\n", histories, small),
	Replace("BucketGrowsAtOnce", "counts what a share gains at once", "internal/share/shape.go",
		"\tif !h.shaped() {\n\t\treturn 0", "\tif true {\n\t\treturn 0", histories),
	Replace("BucketRefilled", "fills a bucket when its share changes", "internal/window/shape/bucket.go",
		"\t\tb.roll(t.Now, c.Bound,", "\t\tif b.share != c.Bound {\n\t\t\tb.empty = unused\n\t\t}\n\t\tb.roll(t.Now, c.Bound,", histories),
	Replace("Ceil", "rounds every share up", "internal/share/division.go",
		"case rank < total%n:", "case rank < n:", histories, large),
	Replace("ClockAlarmUnheard", "issues although the clock was measured to be wrong", "internal/share/planner.go",
		"wrong && r.Outage == quota.OutageStop {", "wrong && false {", histories),
	Replace("ClocksParted", "issues although the clocks have parted", "internal/share/planner.go",
		"Lead: p.offset + int64(p.Clock.Ahead()) + clock.Tolerance}", "Lead: math.MaxInt64}", histories),
	Replace("DrainUnheard", "issues although the provider wants a pause", "internal/share/planner.go",
		"\tif now < p.paused {", "\tif false {", histories),
	{Name: "GapKeepsHistory", Wrong: "keeps the views from before a gap", By: []string{histories}, Edits: []Edit{
		{"internal/share/history.go", "\t*h = History{\n", "\tif h.Started() {\n\t\th.leap(at, v)\n\t\treturn\n\t}\n\t*h = History{\n"},
		{"internal/share/history.go", "// Apply moves the newest view on by one revision", `func (h *History) leap(at int64, v protocol.View) {
	c := protocol.Change{Revision: max(v.Revision, h.revision+1), Policy: v.Policy, PolicyDeleted: v.Policy == nil, Put: v.Instances}
	there := map[string]bool{}
	for i := range v.Instances {
		there[v.Instances[i].ID] = true
	}
	for _, m := range h.members {
		if !there[m.id] {
			c.Deleted = append(c.Deleted, m.id)
		}
	}
	h.Apply(at, c)
}

// Apply moves the newest view on by one revision`},
	}},
	Replace("GrowthAtOnce", "counts what a share gains at once", "internal/share/shape.go",
		"\tif !h.shaped() {\n\t\treturn 0", "\tif true {\n\t\treturn 0", histories),
	Replace("HalfGuard", "keeps half of the guard", "internal/share/planner.go",
		"Guard: int64(r.Edges), ", "Guard: int64(r.Edges / 2), ", histories),
	Replace("HoldGrows", "lets shares grow while the view is stale under hold", "internal/share/planner.go",
		"if p.stale = stale && !proof.Strict; p.stale {", "if p.stale = false; p.stale {", histories),
	Replace("JoinAtOnce", "lets a new history allow windows at once", "internal/share/bound.go",
		"\tcase from < h.since && !h.First(), sub", "\tcase sub", histories, small),
	Replace("FirstTooSoon", "the first of a fleet issues in a window that one before may have begun", "internal/share/bound.go",
		", sub(w.Start(), offset) < h.opens(w.Length):", ", !h.first && sub(w.Start(), offset) < h.opens(w.Length):", histories),
	Replace("LengthsTogether", "uses the lookback of the shortest window for all lengths", "internal/share/bound.go",
		"\tstart := sub(w.Start(), offset)\n", `	anchor := w.Start()
	for i := range h.terms {
		for _, length := range h.terms[i].lengths {
			anchor = max(anchor, quota.WindowAt(length, add(now, offset)).Start())
		}
	}
	start := sub(anchor, offset)
`, histories),
	Replace("LoanNotCharged", "lends permits and uses them too", "internal/window/loan.go",
		"\t\ta.spans[i].Used += n\n", "", histories, loans),
	Replace("LoanPassedNotCharged", "lends borrowed permits on and uses them too", "internal/window/loan.go",
		"\t\ta.spans[i].Used += n\n", "\t\tif a.spans[0].borrowed == 0 {\n\t\t\ta.spans[i].Used += n\n\t\t}\n", histories, loans),
	Replace("LoanTwice", "counts a loan as often as it is told", "internal/window/loan.go",
		"n := told - a.hosts[loanOf{host, listOf(windows)}].permits", "n := told", histories, loans),
	Replace("LoanKept", "uses a loan in the next window too", "internal/window/account.go",
		"Bound: shape.Unbounded}, by:", "Bound: shape.Unbounded}, borrowed: s.borrowed, by:", histories, loans),
	Replace("LoanAboveTotal", "uses whatever it is told", "internal/window/loan.go",
		"n = min(n, total(s.Window)-(s.Bound-s.lent))", "n = min(n, n+s.lent+0*total(s.Window))", loans),
	Replace("MonotonicOnly", "takes a proof's age by the monotonic clock alone", "internal/share/planner.go",
		"p.proof.Wall + int64(r.Freshness)", "clock.Forever", histories),
	Replace("NoProof", "never looks how old the proof is", "internal/share/planner.go",
		"\tif !p.proved {\n\t\treturn math.MinInt64, math.MinInt64", "\tif true {\n\t\treturn clock.Forever, clock.Forever", histories, small),
	Replace("ReturnedLate", "takes a permit back after its window", "internal/window/ledger.go",
		"same := grant.Epoch == uint64(l.epoch)", "same := true", histories),
	{Name: "RotatedRemainders", Wrong: "passes remainders on in every window", By: []string{histories}, Edits: []Edit{
		{"internal/share/shape.go", "\tif !h.shaped() {\n\t\treturn 0", "\tif true {\n\t\treturn 0"},
		{"internal/share/split.go", "w = quota.WindowAt(w.Length*protocol.Turn, w.Start())", "w = quota.WindowAt(w.Length, w.Start()+0*protocol.Turn)"},
	}},
	Replace("SkewIgnored", "leaves the clocks' errors out of the reach", "internal/share/shape.go",
		"protocol.ReachOf(length, t.transit(), t.rules.ClockError)", "protocol.ReachOf(length, t.transit(), 0*t.rules.ClockError)", histories),
	Replace("SpanForgotten", "forgets what a sliding window issued when a fixed one begins", "internal/window/account.go",
		"Bound: shape.Unbounded}, by: s.by}", "Bound: shape.Unbounded}}", histories),
	Replace("StandingStillIssues", "issues of a window before it begins", "internal/window/account.go",
		"\tcase w.Index < s.Window.Index:", "\tcase false:", histories),
	Replace("StopUnheard", "obeys stop like hold", "internal/share/planner.go",
		"proof.Strict = r.Outage == quota.OutageStop || !p.proved", "proof.Strict = !p.proved", histories),
	Replace("StrayAskCounts", "takes the ask of one instance for a quorum's", "internal/protocol/throttle.go",
		"reached >= Quorum(n)", "reached > 0", histories),
	Replace("WarmAboveShare", "begins a warm-up above the share", "internal/share/planner.go",
		"\treturn max(1, int64(float64(share)", "\treturn share + share - max(1, int64(float64(share)", histories),
	{Name: "WindowBack", Wrong: "sets the clock back with the operating system, and begins a window again", By: []string{histories}, Edits: []Edit{
		{"internal/window/account.go", "\tcase w.Index > s.Window.Index:", "\tcase w.Index != s.Window.Index:"},
		{"internal/clock/correct.go", "\tnext := correct(offset, elapsed, c.mu.estimate, os)\n", "\tnext := os\n"},
		{"internal/clock/correct.go", "\tif next < offset {\n\t\t// The floor first", "\tif false {\n\t\t// The floor first"},
	}},
	{Name: "TimerEndsProof", Wrong: "ends the proof by a timer, not in the reading that admits", By: []string{histories}, Edits: []Edit{
		{"internal/share/planner.go", "\treturn p.proof.Mono + int64(r.Freshness)", `	if !p.expired {
		return clock.Forever, clock.Forever
	}
	return p.proof.Mono + int64(r.Freshness)`},
		{"internal/share/planner.go", "\theldBack bool // the latest warm-up is that after a pause\n}\n", "\theldBack bool\n\texpired  bool\n}\n\nfunc (p *Planner) Expire() { p.expired = true }\n"},
		{"internal/share/planner.go", "p.proof, p.proved = sent, true", "p.proof, p.proved, p.expired = sent, true, false"},
		{"consumer/core.go", "\tk.mu.Lock()\n\tif k.mu.planner.Prove(sent) {", `	k.mu.Lock()
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
	Replace("NotWholeWindow", "leaves out a window within which a length comes into force", "internal/share/terms.go",
		"\ttotal, limited, inForce := protocol.PermitsFor(t.policy, w)\n", `	total, limited, inForce := protocol.PermitsFor(t.policy, w)
	if _, ok := protocol.LimitOf(protocol.LimitsAt(t.policy, w.Start()), w.Length); !ok {
		limited = false
	}
`, histories),
	Replace("RemovedForgotten", "forgets a limit that the newest view lacks", "internal/share/bound.go",
		"\t\tfor _, length := range t.lengths {\n\t\t\tif !slices.Contains(lengths, length)", `		if i < len(h.terms)-1 {
			continue
		}
		for _, length := range t.lengths {
			if !slices.Contains(lengths, length)`, histories),
	Replace("SlowClocks", "clocks are off by more than the policy says", "test/histories/machine_test.go",
		"\treturn p.e * 6 / 10\n", "\treturn 10*p.e + 300*ms\n", histories),
	{Name: "TimingUnchecked", Wrong: "obeys a policy that breaks the timing rule", By: []string{histories, small}, Edits: []Edit{
		{"quota/validate.go", "\ttimed.checkTiming(&errs)\n", "\t_ = timed\n"},
		{"quota/validate.go", "\tp.checkTiming(&errs)\n", ""},
	}},
	Replace("ReturnedTwice", "takes a permit back twice", "internal/window/returned.go",
		"if !g.mu.returned.first(serial, &g.mu.ledger) {", "if !g.mu.returned.first(serial, &g.mu.ledger) && false {", histories, liveness),
	Replace("WallUnread", "the hot path ignores the wall clock", "consumer/acquire.go",
		"s.WallValid(now) && s.Take(now.Mono, n, c)", "s.Take(now.Mono, n, c)", histories),
	Replace("WallUnreadByTry", "TryTake ignores the wall clock", "consumer/limiter.go",
		"s.Open(now.Mono) && (!s.Strict || s.WallValid(now))", "s.Open(now.Mono)", histories),
	Replace("LargestOfSeveral", "takes the largest of a length's limits that come into force within a window", "internal/protocol/policy.go",
		"(!limited || n < permits)", "(!limited || n > permits)", traces),
}
