package histories

import "github.com/quotient-limiter/quotient/internal/test/mutant"

// rules are mistakes in the rules of docs/protocol.md.
var rules = mutant.Table{
	{Name: "AnchorNow", Wrong: "looks S back from now, not from the window's start", Edits: []mutant.Edit{
		{File: "internal/share/bound.go", Old: `	start := sub(w.Start(), offset)
`, New: `	start := sub(max(w.Start(), add(now, offset)), offset)
`},
	}},
	{Name: "BackoffCountsAgain", Wrong: "counts a pause from when its key was told last", Edits: []mutant.Edit{
		{File: "coordinator/backoff.go", Old: "k.Kind != view.Backoff || k.Revision <= p.asking.told {", New: "k.Kind != view.Backoff {"},
	}},
	{Name: "BackwardsUnseen", Wrong: "takes a store that went back as usual", Edits: []mutant.Edit{
		{File: "internal/view/tracker.go", Old: "\tif revision < p.floor || cluster != t.cluster {", New: "\tif false {"},
		{File: "internal/view/tracker.go", Old: "overtaken := revision < t.position", New: "overtaken := false"},
	}},
	{Name: "BucketGrowsAtOnce", Wrong: "counts what a share gains at once", Edits: []mutant.Edit{
		{File: "internal/share/shape.go", Old: `	if !h.shaped() {
		return last, last`, New: `	if true {
		return last, last`},
	}},
	{Name: "BucketRefilled", Wrong: "fills a bucket when its share changes", Edits: []mutant.Edit{
		{File: "internal/window/ledger.go", Old: "\tcase a.bucket == nil:", New: "\tcase a.bucket == nil || a.bucket.share != a.bound:"},
	}},
	{Name: "Ceil", Wrong: "rounds every share up", Edits: []mutant.Edit{
		{File: "internal/share/lots.go", Old: `	for i := range c.ranks {
		share += each`, New: `	for i := range c.ranks {
		left = c.total
		share += each`},
	}},
	{Name: "ClockAlarmUnheard", Wrong: "issues although the clock was measured to be wrong", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "wrong && r.Outage == quota.OutageStop {", New: "wrong && false {"},
	}},
	{Name: "ClocksParted", Wrong: "issues although the clocks have parted", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "Lead: p.offset + int64(p.Clock.Ahead()) + clock.Tolerance}", New: "Lead: math.MaxInt64}"},
	}},
	{Name: "Coalesce", Wrong: "makes one view of the revisions of one answer", Edits: []mutant.Edit{
		{File: "internal/view/tracker.go", Old: "n < len(rest) && rest[n].Revision == rest[0].Revision {", New: "n < len(rest) {"},
	}},
	{Name: "DrainUnheard", Wrong: "issues although the provider wants a pause", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "\tif now < p.paused {", New: "\tif false {"},
	}},
	{Name: "GapKeepsHistory", Wrong: "keeps the views from before a gap", Edits: []mutant.Edit{
		{File: "internal/share/history.go", Old: `	*h = History{
`, New: `	if h.started {
		h.leap(at, v)
		return
	}
	*h = History{
`},
		{File: "internal/share/history.go", Old: "// Apply moves the newest view on by one revision", New: `func (h *History) leap(at int64, v protocol.View) {
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
	{Name: "GivesByOwnShare", Wrong: "leaves a view out if the own share does not shrink after it", Edits: []mutant.Edit{
		{File: "internal/share/tally.go", Old: `		if t.shaped || !gives(change, t.lots) {`, New: `		if t.shaped || t.lots.value().Permits < t.newest.Permits {`},
	}},
	{Name: "GivesByTotal", Wrong: "looks at the total alone", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `range change.edits {`, New: `range change.edits[:0] {`},
	}},
	{Name: "GivesByDeletion", Wrong: "takes a deleted key for the promise of its owner", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `case was && !is:`, New: `case was && e.new == nil:
			left = true
		case was && !is:`},
	}},
	{Name: "GivesToNewcomers", Wrong: "leaves a view out though others begin after it", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `case is && !was:`, New: `case is && false:`},
	}},
	{Name: "GivesByWeight", Wrong: "leaves a view out though weights change", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `case was && (`, New: `case false && (`},
	}},
	{Name: "GivesByTimes", Wrong: "leaves a view out though the times change", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `before.timedAs(after) && `, New: ""},
	}},
	{Name: "GivesUnlimited", Wrong: "leaves a view out though a limit goes", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `case !d.limited || !e.limited || e.total < d.total:`, New: `case e.total < d.total:`},
	}},
	{Name: "GivesByPause", Wrong: "leaves a view out though all is paused", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: ` || e.reason == ReasonPaused && d.reason == ReasonShare:`, New: `:`},
	}},
	{Name: "GivesByCut", Wrong: "leaves a view out though the total shrinks", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `!e.limited || e.total < d.total:`, New: `!e.limited:`},
	}},
	{Name: "GivesByDivision", Wrong: "leaves a view out though the total is divided in another way", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `case !t.dividesAs(after):`, New: `case false:`},
	}},
	{Name: "GivesByDemands", Wrong: "leaves a view out though others ask for more", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: ` || old != nil && !bytes.Equal(old.Demands, new.Demands) {`, New: ` || old != nil && bytes.Equal(nil, old.Demands) && false {`},
	}},
	{Name: "GivesByClaims", Wrong: "leaves a view out though claims take of the rest", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `return m.Most >= l.Most && m.Base >= l.Base && e.total-m.Claimed-(d.total-l.Claimed) >= c.n*(m.Base-l.Base)`, New: `return m.Most >= l.Most && m.Base >= l.Base`},
	}},
	{Name: "GivesAll", Wrong: "leaves all views out before one that gives", Edits: []mutant.Edit{
		{File: "internal/share/tally.go", Old: `			t.kept = t.newest.least(t.kept)
		}`, New: `			t.kept = t.newest.least(t.kept)
		} else {
			t.kept = unbounded
		}`},
	}},
	{Name: "GrowthAtOnce", Wrong: "counts what a share gains at once", Edits: []mutant.Edit{
		{File: "internal/share/shape.go", Old: `	if !h.shaped() {
		return last, last`, New: `	if true {
		return last, last`},
	}},
	{Name: "GuardStill", Wrong: "adds nothing to a guard that follows the clock", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "\tif r.GuardAuto > 0 {", New: "\tif false {"},
	}},
	{Name: "HalfGuard", Wrong: "keeps half of the guard", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: `	return int64(guard)
`, New: `	return int64(guard / 2)
`},
	}},
	{Name: "HoldGrows", Wrong: "lets shares grow while the view is stale under hold", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "if p.stale = stale && !proof.Strict; p.stale {", New: "if p.stale = false; p.stale {"},
	}},
	{Name: "JoinAtOnce", Wrong: "lets a new history allow windows at once", Edits: []mutant.Edit{
		{File: "internal/share/bound.go", Old: "\tcase from < h.since, sub", New: "\tcase sub"},
	}},
	{Name: "LengthsTogether", Wrong: "uses the lookback of the shortest window for all lengths", Edits: []mutant.Edit{
		{File: "internal/share/bound.go", Old: `	start := sub(w.Start(), offset)
`, New: `	anchor := w.Start()
	for i := range h.terms {
		for _, length := range h.terms[i].lengths {
			anchor = max(anchor, quota.WindowAt(length, add(now, offset)).Start())
		}
	}
	start := sub(anchor, offset)
`},
	}},
	{Name: "LoanInAnyWindow", Wrong: "uses a loan in whatever windows run", Edits: []mutant.Edit{
		{File: "internal/window/loan.go", Old: ` || !slices.Equal(loan.Windows, l.running()) ||`, New: ` || slices.Equal(loan.Windows, nil) ||`},
	}},
	{Name: "LoanNotCharged", Wrong: "lends permits and uses them too", Edits: []mutant.Edit{
		{File: "internal/window/loan.go", Old: `		l.charge(n, l.now)
`, New: ``},
	}},
	{Name: "LoanTwice", Wrong: "counts a loan as often as it is told", Edits: []mutant.Edit{
		{File: "internal/window/loan.go", Old: `l.hosts[lentIn{host, loan.Windows[0]}] > 0 {`, New: `false {`},
	}},
	{Name: "MonotonicOnly", Wrong: "takes a proof's age by the monotonic clock alone", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "p.proof.Wall + int64(r.Freshness)", New: "window.Forever"},
	}},
	{Name: "NextWindow", Wrong: "continues in the next window, by its own clock, of one that has ended", Edits: []mutant.Edit{
		{File: "internal/share/bound.go", Old: "protocol.Opens(e, length)", New: "protocol.Opens(0*e, length)"},
	}},
	{Name: "NoProof", Wrong: "never looks how old the proof is", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: `	if !p.proved {
		return math.MinInt64, math.MinInt64`, New: `	if true {
		return window.Forever, window.Forever`},
	}},
	{Name: "PauseUnbounded", Wrong: "obeys a pause however long it is", Edits: []mutant.Edit{
		{File: "coordinator/backoff.go", Old: "b.Asks[i].Until.After(latest)", New: "false"},
	}},
	{Name: "ReadWithoutPosition", Wrong: "counts a read before the watch has delivered what it saw", Edits: []mutant.Edit{
		{File: "internal/view/tracker.go", Old: "if a.overtaken || a.revision > t.position {", New: "if a.overtaken {"},
	}},
	{Name: "PaceAboveLimit", Wrong: "lets a pace raise the total above the policy's limit", Edits: []mutant.Edit{
		{File: "internal/protocol/pace.go", Old: `return min(limit, max(permits,`, New: `return max(0, max(permits,`},
	}},
	{Name: "PaceForgotten", Wrong: "leaves a view out though the pace falls", Edits: []mutant.Edit{
		{File: "internal/share/gives.go", Old: `	d, e := t.at(w), after.at(w)
`, New: `	u, v := *t, *after
	u.pace, v.pace = nil, nil
	d, e := u.at(w), v.at(w)
`},
	}},
	{Name: "PaceUnheard", Wrong: "goes by the pace that it listed", Edits: []mutant.Edit{
		{File: "internal/share/terms.go", Old: `		pace, changed = c.Pace, true
`, New: `		changed = false
`},
	}},
	{Name: "ReturnedLate", Wrong: "takes a permit back after its window", Edits: []mutant.Edit{
		{File: "internal/window/ledger.go", Old: "same := grant.Epoch == l.epoch", New: "same := true"},
	}},
	{Name: "RotatedRemainders", Wrong: "passes remainders on in every window", Edits: []mutant.Edit{
		{File: "internal/share/shape.go", Old: `	if !h.shaped() {
		return last, last`, New: `	if true {
		return last, last`},
		{File: "internal/share/split.go", Old: "w = quota.WindowAt(w.Length*protocol.Turn, w.Start())", New: "w = quota.WindowAt(w.Length, w.Start()+0*protocol.Turn)"},
	}},
	{Name: "RunningWindow", Wrong: "continues in the window in which another process has ended", Edits: []mutant.Edit{
		{File: "internal/share/bound.go", Old: ", sub(w.Start(), offset) < h.opens(w.Length):", New: ":"},
	}},
	{Name: "SkewIgnored", Wrong: "leaves the clocks' errors out of the reach", Edits: []mutant.Edit{
		{File: "internal/share/shape.go", Old: "protocol.ReachOf(length, t.transit(), t.rules.ClockError)", New: "protocol.ReachOf(length, t.transit(), 0*t.rules.ClockError)"},
	}},
	{Name: "SpanForgotten", Wrong: "forgets what a sliding window issued when a fixed one begins", Edits: []mutant.Edit{
		{File: "internal/window/ledger.go", Old: "binds: a.binds, ring: a.ring, bucket: a.bucket", New: "binds: a.binds, bucket: a.bucket"},
	}},
	{Name: "StandingStillIssues", Wrong: "issues of a window before it begins", Edits: []mutant.Edit{
		{File: "internal/window/ledger.go", Old: "\tcase limit.Window.Index < a.window.Index:", New: "\tcase false:"},
	}},
	{Name: "StopUnheard", Wrong: "obeys stop like hold", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "proof.Strict = r.Outage == quota.OutageStop || !p.proved", New: "proof.Strict = !p.proved"},
	}},
	{Name: "StrayAskCounts", Wrong: "takes the ask of one instance for a quorum's", Edits: []mutant.Edit{
		{File: "internal/protocol/backoff.go", Old: "reached >= quorum", New: "reached > 0"},
	}},
	{Name: "GivesBackIssued", Wrong: "gives back permits of a budget that were issued meanwhile", Edits: []mutant.Edit{
		{File: "coordinator/budget.go", Old: "taken, ok := p.set(w, step.Own.Taken, false, false); !ok || taken > step.Own.Taken {", New: "_, ok := p.set(w, step.Own.Taken, false, false); !ok {"},
	}},
	{Name: "ToldOtherwise", Wrong: "lets a store in doubt tell something else", Edits: []mutant.Edit{
		{File: "internal/view/doubt.go", Old: `t.memory.all[d.next] != x:
		return false`, New: `t.memory.all[d.next] != x:
		return true`},
		{File: "internal/view/doubt.go", Old: "d.next < len(all) && all[d.next].revision <= revision {", New: "d.next < len(all) && false {"},
	}},
	{Name: "WarmAboveShare", Wrong: "begins a warm-up above the share", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "\treturn max(1, int64(float64(share)", New: "\treturn share + share - max(1, int64(float64(share)"},
	}},
	{Name: "WindowBack", Wrong: "sets the clock back with the operating system, and begins a window again", Edits: []mutant.Edit{
		{File: "internal/window/ledger.go", Old: "\tcase limit.Window.Index > a.window.Index:", New: "\tcase limit.Window.Index != a.window.Index:"},
		{File: "internal/clock/correct.go", Old: "\tnext := correct(offset, elapsed, c.mu.estimate, os)\n", New: "\tnext := os\n"},
		{File: "internal/clock/correct.go", Old: `	if next < offset {
		// The floor first`, New: `	if false {
		// The floor first`},
	}},
	{Name: "WitnessFromDoubt", Wrong: "takes what was told in an unchecked doubt for a witness", Edits: []mutant.Edit{
		{File: "internal/view/doubt.go", Old: "return t.doubt == nil || x.revision <= t.doubt.before", New: "return true"},
	}},
}
