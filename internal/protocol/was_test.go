package protocol

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Which limits count on in which windows, as operators replace policies; and which windows of theirs are read.
func TestReplacedLimitsCountOn(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	policy := func(limits string) *quota.Policy {
		t.Helper()
		l, err := quota.ParseLimits(limits)
		if err != nil {
			t.Fatal(err)
		}
		return &quota.Policy{Limits: l, Timing: quota.Timing{Settle: 4 * time.Second, ClockError: 500 * time.Millisecond}}
	}
	const hour = "9/s,50/h"
	var was []Was
	old := policy(hour)
	for _, step := range []struct {
		after  time.Duration // noon
		limits string
		want   []string // limit, length of the windows in which it counts, and until
	}{
		{0, "9/s,70/h", nil},
		{time.Minute, "9/s,70/h@17m", []string{"70/h in 1h0m0s, 12:01:05"}},
		{2 * time.Minute, "9/s,70/h", []string{"70/h@17m in 1h0m0s, 12:02:05", "70/h in 1h0m0s, 12:01:05"}},
		{3 * time.Minute, "9/s,70/2h sliding,90/d", []string{
			"70/h in 1h0m0s, 12:03:05", "70/h in 2h0m0s, 12:03:05", "70/h in 24h0m0s, 12:03:05",
			"70/h@17m in 1h0m0s, 12:02:05", "70/h@17m in 2h0m0s, 12:02:05", "70/h@17m in 24h0m0s, 12:02:05",
		}},
		{5 * time.Hour, "9/s,70/2h sliding,91/d", []string{"70/h in 24h0m0s, 12:03:05", "70/h@17m in 24h0m0s, 12:02:05"}},
		{6 * time.Hour, "9/s", []string{"91/d in 24h0m0s, 18:00:05", "70/2h sliding in 2h0m0s, 18:00:05", "70/h in 24h0m0s, 12:03:05", "70/h@17m in 24h0m0s, 12:02:05"}},
		{100 * time.Hour, "9/s", nil},
	} {
		next := policy(step.limits)
		was = ReplaceLong(was, old, next, noon.Add(step.after))
		old = next
		text, err := EncodeWas(was)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ReadWas([]byte(text))
		if err != nil || !slices.Equal(read, was) {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
		var got []string
		for _, w := range was {
			got = append(got, fmt.Sprintf("%v in %v, %s", w.Limit, w.In, time.Unix(0, w.Until).UTC().Format(time.TimeOnly)))
		}
		slices.Sort(got)
		slices.Sort(step.want)
		if !slices.Equal(got, step.want) {
			t.Errorf("after %v: %q, want %q", step.after, got, step.want)
		}
	}
	gone := []Was{{Limit: quota.Limit{Permits: 70, Window: time.Hour}, In: time.Hour, Until: noon.Add(20 * time.Minute).UnixNano()}}
	for _, c := range []struct {
		limit quota.Limit
		at    time.Duration // noon
		want  []string      // starts of windows
	}{
		{quota.Limit{Window: time.Hour, Phase: 17 * time.Minute}, 16 * time.Minute, []string{"12:00:00", "11:00:00"}},
		{quota.Limit{Window: time.Hour, Phase: 17 * time.Minute}, 30 * time.Minute, []string{"12:00:00"}},
		{quota.Limit{Window: time.Hour, Phase: 17 * time.Minute}, 78 * time.Minute, nil},
		{quota.Limit{Window: time.Hour, Sliding: true}, 30 * time.Minute, []string{"12:00:00", "11:00:00"}},
		{quota.Limit{Window: time.Hour, Sliding: true}, 81 * time.Minute, []string{"12:00:00"}},
		{quota.Limit{Window: time.Hour, Sliding: true}, 83 * time.Minute, nil},
		{quota.Limit{Window: time.Hour}, 30 * time.Minute, nil}, // its own total
		{quota.Limit{Window: 2 * time.Hour}, 30 * time.Minute, nil},
	} {
		b := BudgetAt(c.limit, time.UTC, noon.Add(c.at).UnixNano())
		var got []string
		for _, w := range Overlapping(gone, &b, "") {
			got = append(got, time.Unix(0, w.Start).UTC().Format(time.TimeOnly))
		}
		if !slices.Equal(got, c.want) || len(Overlapping(gone, &b, "k")) > 0 {
			t.Errorf("%v at noon + %v: %q, want %q", c.limit, c.at, got, c.want)
		}
	}
}

// Calls that are under way count on by another hold, also through a rate and through a deletion; a rate counts no calls.
func TestCallsInFlightCountOn(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var was []Was
	var old *quota.Policy
	through := []string{"5 inflight hold=8m in 8m0s", "5 inflight hold=8m in 20m0s"}
	both := append(slices.Clone(through), "5 inflight hold=20m in 20m0s")
	for i, step := range []struct {
		limits string // empty: the policy is deleted
		want   []string
	}{
		{"9 inflight hold=8m", nil},
		{"5 inflight hold=8m", nil},
		{"5 inflight hold=20m", through},
		{"", both},
		{"9/s,90/h", both},
		{"7 inflight hold=1h", append(slices.Clone(both), "90/h in 1h0m0s", "5 inflight hold=8m in 1h0m0s", "5 inflight hold=20m in 1h0m0s")},
	} {
		var next *quota.Policy
		if step.limits != "" {
			limits, err := quota.ParseLimits(step.limits)
			if err != nil {
				t.Fatal(err)
			}
			next = &quota.Policy{Limits: limits}
		}
		was = ReplaceLong(was, old, next, noon.Add(time.Duration(i)*time.Minute))
		old = next
		var got []string
		for _, w := range was {
			got = append(got, fmt.Sprintf("%v in %v", w.Limit, w.In))
		}
		slices.Sort(got)
		slices.Sort(step.want)
		if !slices.Equal(got, step.want) {
			t.Errorf("%q: %q, want %q", step.limits, got, step.want)
		}
	}
	window := func(text string) Budget {
		limits, err := quota.ParseLimits(text)
		if err != nil {
			t.Fatal(err)
		}
		return BudgetAt(limits[0], time.UTC, noon.Add(6*time.Minute).UnixNano())
	}
	names := func(b Budget) (all []string) {
		for _, w := range Overlapping(was, &b, "") {
			all = append(all, w.Name())
		}
		return all
	}
	if got := names(window("7 inflight hold=1h")); !slices.Equal(got, []string{"20m-inflight", "8m-inflight"}) {
		t.Errorf("a limit in flight counts those of %q", got)
	}
	if got := names(window("90/h")); len(got) > 0 {
		t.Errorf("a rate counts those of %q", got)
	}
}

// What a single key has used counts on where its override comes, changes or goes, and not for other keys. Where a policy
// moves the windows of overrides, their counts go on too.
func TestOverridesCountOn(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	policy := func(keys, zone string) *quota.Policy {
		t.Helper()
		limits, err := quota.ParseLimits(keys)
		if err != nil {
			t.Fatal(err)
		}
		return &quota.Policy{Limits: []quota.Limit{{Permits: 9, Window: time.Second}}, Keys: quota.Keys{Limits: limits}, Zone: zone}
	}
	override := func(text string) *Override {
		if text == "" {
			return nil
		}
		o, err := ParseOverride(text)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	names := func(was []Was) (all []string) {
		for _, w := range was {
			all = append(all, fmt.Sprintf("%v%s in %v of %q", w.Limit, w.Zone, w.In, w.Key))
		}
		slices.Sort(all)
		return all
	}
	each := policy("4/s,50/h@17m", "")
	var was []Was
	a, b := "", ""
	for i, step := range []struct {
		a, b string
		want []string
	}{
		{"80/h", "4/s", []string{`50/h@17m in 1h0m0s of "b"`}},
		{"80/2h", "4/s", []string{`50/h@17m in 1h0m0s of "b"`, `80/h@17m in 1h0m0s of "a"`, `80/h@17m in 2h0m0s of "a"`}},
		{"5/s,90/2h", "", []string{`50/h@17m in 1h0m0s of "b"`, `80/h@17m in 1h0m0s of "a"`, `80/h@17m in 2h0m0s of "a"`}},
		{"", "", []string{
			`50/h@17m in 1h0m0s of "b"`, `80/h@17m in 1h0m0s of "a"`, `80/h@17m in 2h0m0s of "a"`,
			`90/2h in 1h0m0s of "a"`, `90/2h in 2h0m0s of "a"`,
		}},
	} {
		changes := map[string]KeyChange{}
		if step.a != a {
			changes["a"] = KeyChange{Old: override(a), New: override(step.a)}
		}
		if step.b != b {
			changes["b"] = KeyChange{Old: override(b), New: override(step.b)}
		}
		a, b = step.a, step.b
		was = ReplaceLongOfKeys(was, each, changes, noon.Add(time.Duration(i)*time.Minute))
		text, err := EncodeWas(was)
		if err != nil {
			t.Fatal(err)
		}
		if read, err := ReadWas([]byte(text)); err != nil || !slices.Equal(read, was) {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
		if got := names(was); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	hour := BudgetAt(each.Keys.Limits[1], time.UTC, noon.Add(5*time.Minute).UnixNano())
	for key, want := range map[string]int{"a": 2, "b": 0, "c": 0, "": 0} {
		if got := Overlapping(was, &hour, key); len(got) != want || CarriedTo(was, &hour, key) > 0 != (key == "a" || key == "b") {
			t.Errorf("key %q: %+v, to %d", key, got, CarriedTo(was, &hour, key))
		}
	}
	// The limits of all keys change: what counted of a key in those before counts in the new ones.
	was = ReplaceLong(was, each, policy("4/s,50/3h", ""), noon.Add(10*time.Minute))
	three := BudgetAt(quota.Limit{Window: 3 * time.Hour}, time.UTC, noon.Add(11*time.Minute).UnixNano())
	if of, other := Overlapping(was, &three, "a"), Overlapping(was, &three, "c"); len(of) != 2 || len(other) != 1 {
		t.Errorf("three hours have %+v of key a, and %+v of another", of, other)
	}
	was = ReplaceLongOfKeys(was, policy("4/s,50/3h", ""), map[string]KeyChange{"a": {New: override("80/6h")}}, noon.Add(11*time.Minute))
	six := BudgetAt(quota.Limit{Window: 6 * time.Hour}, time.UTC, noon.Add(12*time.Minute).UnixNano())
	if of, other := Overlapping(was, &six, "a"), Overlapping(was, &six, "c"); len(of) < 3 || len(other) != 0 {
		t.Errorf("six hours have %+v of key a, and %+v of another", of, other)
	}
	// Overrides follow the policy's phase, sliding and zone.
	for _, c := range []struct {
		old, next *quota.Policy
		want      []string
	}{
		{policy("4/s", ""), policy("4/s,50/h sliding", ""), []string{`1/h in 1h0m0s of ""`}},
		{policy("50/h@17m", ""), policy("70/h@17m", ""), nil},
		{policy("4/s", ""), policy("4/s,50/h", ""), nil},
		{policy("50/h", ""), policy("50/h", "Asia/Kolkata"), []string{`1/d in 24h0m0s of ""`, `1/mo in 744h0m0s of ""`}},
		{policy("50/h", "Asia/Kolkata"), policy("50/d", "Asia/Kolkata"), []string{`50/h in 1h0m0s of ""`, `50/h in 24h0m0s of ""`}},
	} {
		if got := names(ReplaceLong(nil, c.old, c.next, noon)); !slices.Equal(got, c.want) {
			t.Errorf("%v %s to %v %s: %q, want %q", c.old.Keys.Limits, c.old.Zone, c.next.Keys.Limits, c.next.Zone, got, c.want)
		}
	}
}

// However many overrides change, what is written can be read, no transaction reads too many totals, and no count is lost.
func TestManyOverridesCountOn(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	p := &quota.Policy{Limits: []quota.Limit{{Permits: 9, Window: time.Second}}, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 5, Window: time.Hour}}}}
	hours := func(n int) *Override {
		return &Override{Limits: []quota.Limit{{Permits: 7, Window: time.Duration(n) * time.Hour}}}
	}
	for _, many := range []int{10, 100, MaxOverrides} {
		changes, name := map[string]KeyChange{}, func(i int) string { return fmt.Sprint(`<"tenant">`, i) }
		for i := range many {
			changes[name(i)] = KeyChange{New: hours(2)}
		}
		was := ReplaceLongOfKeys(nil, p, changes, noon)
		text, err := EncodeWas(was)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ReadWas([]byte(text))
		if err != nil || !slices.Equal(read, was) {
			t.Fatalf("%d overrides: %d bytes, %v", many, len(text), err)
		}
		b := BudgetAt(hours(2).Limits[0], time.UTC, noon.UnixNano())
		for _, i := range []int{0, many - 1} {
			if all := Overlapping(read, &b, name(i)); len(all) != 1 || all[0].Name() != "h" {
				t.Errorf("%d overrides: two hours of the last have %+v", many, all)
			}
		}
	}
	var was []Was
	for i := range 100 {
		n := 1 + i%15
		was = ReplaceLongOfKeys(was, p, map[string]KeyChange{"a": {Old: hours(n), New: hours(1 + (i+1)%15)}}, noon.Add(time.Duration(i)*time.Second))
		was = ReplaceLong(was, &quota.Policy{Limits: p.Limits, Keys: quota.Keys{Limits: hours(n).Limits}}, &quota.Policy{Limits: p.Limits, Keys: quota.Keys{Limits: hours(1 + (i+1)%15).Limits}}, noon.Add(time.Duration(i)*time.Second))
		b := BudgetAt(hours(1 + (i+1)%15).Limits[0], time.UTC, noon.Add(time.Duration(i)*time.Second).UnixNano())
		if all := Overlapping(was, &b, "a"); len(all) == 0 || len(all) > 128 { // etcd's bound
			t.Fatalf("after %d changes a window begins with %d others", i, len(all))
		}
	}
}
