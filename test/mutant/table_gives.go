package mutant

// gives are mistakes in which changes take nothing from others, and so bind at once.
var gives = Table{
	Replace("GivesByOwnShare", "leaves a view out if the own share does not shrink after it", "internal/share/cache.go",
		"\t\tif t.shaped || !gives(change, t.of(change.before), t.of(change.after), t.division.w) {", "\t\tif t.shaped || t.division.value().Permits < t.newest.Permits {", histories, differential),
	Replace("GivesByTotal", "looks at the total alone", "internal/share/gives.go",
		"range change.edits {", "range change.edits[:0] {", histories, differential),
	Replace("GivesByDeletion", "takes a deleted key for the promise of its owner", "internal/share/gives.go",
		"case was && !is:", "case was && e.new == nil:\n\t\tcase was && !is:", histories, differential),
	Replace("GivesToNewcomers", "leaves a view out though others begin after it", "internal/share/gives.go",
		"case is && !was:", "case is && false:", histories, differential),
	Replace("GivesByTimes", "leaves a view out though the times change", "internal/share/gives.go",
		"before.timedAs(after) && ", "", histories, differential),
	Replace("GivesUnlimited", "leaves a view out though a limit goes", "internal/share/gives.go",
		"case !d.limited || !e.limited || e.total < d.total:", "case e.total < d.total:", histories, differential),
	Replace("GivesByPause", "leaves a view out though all is paused", "internal/share/gives.go",
		" || e.reason == ReasonPaused && d.reason == ReasonShare:", ":", histories),
	Replace("GivesByCut", "leaves a view out though the total shrinks", "internal/share/gives.go",
		"!e.limited || e.total < d.total:", "!e.limited:", histories, differential),
	Replace("GivesByDivision", "leaves a view out though the total is divided in another way", "internal/share/gives.go",
		"return t.dividesAs(after)", "return true", differential),
	Replace("GivesAll", "leaves all views out before one that gives", "internal/share/cache.go",
		"\t\t\tt.kept = t.newest.least(t.kept)\n\t\t}", "\t\t\tt.kept = t.newest.least(t.kept)\n\t\t} else {\n\t\t\tt.kept = unbounded\n\t\t}", histories, differential),
}
