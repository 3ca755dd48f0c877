package view

import "testing"

// first is the first write of an incarnation's key.
func first(revision int64, id string) Key {
	k := instance(revision, id)
	k.First = true
	return k
}

func TestAWitness(t *testing.T) {
	many := first(14, "m")
	for name, c := range map[string]struct {
		told []Key
		want string
	}{
		"the newest":                {[]Key{first(12, "b"), first(13, "c")}, "c"},
		"not one written again":     {[]Key{first(12, "b"), first(13, "c"), instance(14, "c")}, "b"},
		"not one that is gone":      {[]Key{first(12, "b"), first(13, "c"), gone(instance(0, "c"), 14)}, "b"},
		"not one of many":           {[]Key{first(12, "b"), many, policy(14, "7")}, "b"},
		"not one before the own":    {[]Key{first(9, "b")}, ""},
		"not another kind of write": {[]Key{policy(12, "7"), instance(13, "b")}, ""},
	} {
		tr := started(t)
		tr.Wrote(10)
		if tr.Events(c.told); tr.Witness() != c.want {
			t.Errorf("%s: %q, want %q", name, tr.Witness(), c.want)
		}
	}
}

// TestAWitnessStandsForWhatCameBefore: only what came after the witness has to be
// told again, and the own write need not be there.
func TestAWitnessStandsForWhatCameBefore(t *testing.T) {
	found := func(k Key) *Key { return &k }
	other := first(13, "c")
	other.Value = append([]byte(nil), first(13, "x").Value...)
	for name, c := range map[string]struct {
		kept     int64
		witness  *Key
		position int64 // after the check, 0 for a gap
	}{
		"it is there":                    {0, found(first(13, "c")), 13},
		"it is there, and the own write": {10, found(first(13, "c")), 13},
		"it is not there":                {0, nil, 0},
		"not, but the own write":         {10, nil, 10},
		"at another revision":            {10, found(first(12, "c")), 10},
		"with another value":             {10, found(other), 10},
		"written again":                  {10, found(instance(13, "c")), 10},
		"told in the doubt":              {10, found(first(17, "d")), 10},
	} {
		tr := started(t)
		tr.Wrote(10)
		tr.Events([]Key{policy(12, "50"), first(13, "c"), policy(15, "60")})
		tr.Silence(at(200), fresh)
		tr.Events([]Key{first(17, "d")})
		if w := tr.Witness(); w != "c" {
			t.Fatalf("witness %q, want the newest from before the doubt", w)
		}
		reopen, gap := tr.Check(tr.Sent(at(200)), 20, cluster, c.kept, c.witness)
		if gap != (c.position == 0) || reopen == gap || reopen && tr.Position() != c.position {
			t.Errorf("%s: reopen %v, gap %v, position %d; want %d", name, reopen, gap, tr.Position(), c.position)
		}
		if gap {
			continue
		}
		if _, gap := tr.Events([]Key{policy(15, "60")}); gap == (c.position == 13) {
			t.Errorf("%s: after that revision 15 is a gap: %v", name, gap)
		}
	}
}

// TestWhatIsToldAgainIsAWitness: a doubt in which not all is told again in time goes
// on from what was, and ends that way.
func TestWhatIsToldAgainIsAWitness(t *testing.T) {
	tr := started(t)
	tr.Wrote(10)
	tr.Silence(at(200), fresh)
	var keys []Key
	for i := range int64(6) {
		keys = append(keys, first(11+i, string(rune('b'+i))))
	}
	tr.Events(keys) // in a doubt that nobody has checked
	if w := tr.Witness(); w != "" {
		t.Fatalf("witness %q", w)
	}
	for i := range keys {
		now := int64(200 + 101*i)
		tr.Silence(at(now), fresh)
		kept, found := int64(10), (*Key)(nil)
		if i > 0 {
			if w := tr.Witness(); w != keys[i-1].ID {
				t.Fatalf("doubt %d: witness %q", i+1, w)
			}
			kept, found = 0, &keys[i-1]
		}
		if _, gap := tr.Check(tr.Sent(at(now)), 20, cluster, kept, found); gap || tr.Position() != 10+int64(i) {
			t.Fatalf("doubt %d: gap %v, position %d", i+1, gap, tr.Position())
		}
		if _, gap := tr.Events(keys[i : i+1]); gap {
			t.Fatalf("doubt %d: the same event is a gap", i+1)
		}
	}
	if tr.Doubted() {
		t.Error("all was told again, and the view is in doubt")
	}
}
