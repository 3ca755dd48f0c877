package mutant

// edges are mistakes in the instants at which something begins or ends.
var edges = Table{
	Replace("NoEdgeForMore", "no edge where more permits are due", "internal/window/gate.go",
		"\tif at := l.when(more); at > g.mu.last.Mono && ", "\tif at := l.when(more); at < 0 && ", liveness),
	Replace("NoEdgeForNewcomers", "no edge where more permits are due if nobody waits", "internal/window/gate.go",
		"more := l.next(max(g.mu.published+g.mu.held+1, need))", "more := l.next(need)", liveness),
	{Name: "NoEdgeForWindows", Wrong: "no edge at a window's end", By: []string{liveness}, Edits: []Edit{
		{"internal/share/planner.go", "\t\tends(end)\n", ""},
		{"internal/share/planner.go", "ends(quota.WindowAt(length, wall).End())", "_ = length"},
	}},
	Replace("NoEdgeAfterTheGuard", "no edge where a guard ends", "internal/share/planner.go",
		"\t\tends(start + guard)\n", "", liveness),
	Replace("NoEdgeBeforeTheGuard", "no edge where a guard begins", "internal/share/planner.go",
		"\t\tends(end - guard)\n", "", liveness),
	Replace("NoEdgeForComing", "no edge for lengths that do not bind yet", "internal/share/planner.go",
		"ends(quota.WindowAt(length, wall).End())", "_ = length", liveness),
	Replace("NoEdgeForPauses", "no edge where a pause ends", "internal/share/planner.go",
		"plan.Shut, plan.PausedUntil, plan.Until = true, p.paused, p.paused", "plan.Shut, plan.PausedUntil = true, p.paused", liveness),
	Replace("TransitForgotten", "permits count no longer than a window, though calls take time", "internal/window/shape/ring.go",
		"r.allowFor(t.Transit)", "r.allowFor(0)", liveness),
	Replace("TransitNotInBurst", "the burst leaves the transit out", "internal/protocol/policy.go",
		"return max(1, burst-meet)", "return max(1, burst-meet*0)", liveness),
	Replace("NewsUnforeseen", "what was foreseen before news is foreseen after it", "internal/window/gate.go",
		"\tif g.mu.void {\n\t\tg.mu.foreseen = foreseen{}\n\t}\n", "", liveness),
}
