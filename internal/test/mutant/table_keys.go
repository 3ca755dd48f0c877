package mutant

// keys are mistakes in what is issued for keys.
var keys = Table{
	Replace("KeyForgottenEarly", "forgets a key while its window runs", "internal/window/key.go",
		"a.used > 0 && a.window.End() > keys.Over", "a.used > 9 && a.window.End() > keys.Over", histories, "consumer TestForgettingLosesNoUse"),
	Replace("KeyRemaindersApart", "deals the remainder of a key in another order on each instance", "internal/share/keys.go",
		"t := p.begin(w, low, &key)", "own := key ^ hashID(p.self)\n\t\tt := p.begin(w, low, &own)", histories, "internal/share TestSharesOfKeysSumToTheLimit"),
	Replace("KeyOfNewestView", "looks back for the provider and not for its keys", "internal/share/keys.go",
		"t := p.begin(w, low, &key)", "t := p.begin(w, p.changes, &key)", histories, "internal/share TestKeyBoundEqualsTheNaiveModel"),
	Replace("KeyGivesAsProvider", "goes by the provider's limits as to whether a revision takes permits of a key", "internal/share/cache.go",
		"!gives(change, t.of(change.before), t.of(change.after), t.division.w) {", "!gives(change, change.before, change.after, t.division.w) {", "internal/share TestKeyBoundEqualsTheNaiveModel"),
	Replace("KeyTakesNoProviderPermit", "issues a key's permits where the provider has none", "consumer/keys.go",
		"\t\tcase s.Take(now, n, of.class):\n", "\t\tcase s.Take(now, n, of.class) || s.Open(now):\n", "consumer TestAKeyHasItsOwnLimit"),
	Replace("KeyConfirmedBlindly", "issues what was reserved of a key in a window before", "internal/window/key.go",
		"k.debt > 0 || k.left() < n {", "false {", "internal/window TestAReservationIsNoPermit"),
	Replace("KeyReturnedTwice", "gives a key's permits back when the provider has forgotten that it did", "consumer/permit.go",
		"(back || first && actual > p.issued)", "first", "consumer TestAReleaseAfterTheProvidersWindow"),
	Replace("KeyWindowBack", "begins a window of a key again when the clock is set back", "internal/share/keys.go",
		" || w.End() <= p.keyed.over", "", "internal/share TestAKeysWindowDoesNotComeBack"),
	Replace("KeyOvertakes", "serves a newcomer before those that wait for the key", "consumer/keys.go",
		"case y.waiters > 0 || left == 0", "case left == 0", "consumer TestNobodyOvertakesAtAKey"),
	Replace("KeyOpensAtAnyEdge", "takes the next edge of any window for the time when a key has more", "internal/window/key.go",
		"\treturn w.End() + k.keys.Guard - k.keys.Offset\n", "\treturn k.keys.Opens(now)\n", "consumer TestTheLastWindowThatLacksDecides"),
	Replace("KeyReleaseWakesNobody", "has nobody look again when a key's permit comes back", "consumer/keys.go",
		"\t\tk.keys.waiting.serve(k, y)\n\t\treturn back\n", "\t\treturn back\n", "consumer TestAKeysPermitThatComesBackWakesAWaiter"),
	Replace("KeyDebtForgotten", "forgets with a key what it owes", "consumer/keys.go",
		"\t\t\ty = k.keys.renew(y.name)\n\t\t\tcontinue\n", "\t\t\treturn false\n", "consumer TestADebtOfAForgottenKey"),
}
