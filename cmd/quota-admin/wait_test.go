package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// join makes this process n instances of the provider. Their leases outlast a time in which this machine has
// no processor for them.
func (b *bench) join(cluster *embedded.Cluster, provider string, n int) (all []*consumer.Limiter) {
	b.t.Helper()
	client := etcdtest.NewClient(b.t, cluster)
	quiet := slog.New(slog.DiscardHandler)
	for i := range n {
		s, err := coordinator.Join(b.t.Context(), client, coordinator.Options{Name: fmt.Sprintf("worker-%d", i), Prefix: b.prefix, Logger: quiet, TTL: time.Minute, Lazy: true})
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { _ = s.Close() })
		l, err := consumer.Open(b.t.Context(), s, provider, consumer.Options{Logger: quiet})
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

func TestWaitTellsWhenAllHaveApplied(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s")
	limiters := b.join(server, "p", 3)
	for _, l := range limiters {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stdout, _ := b.want(exitDone, "set", "p", "50/s", "--wait")
	revision := limiters[0].Status().PolicyRevision
	if want := fmt.Sprintf("applied by 3 of 3 instances at revision %d, in force from ", revision); !strings.Contains(stdout, want) {
		t.Errorf("got %s, want %q", stdout, want)
	}
	for _, l := range limiters {
		if st := l.Status(); st.PolicyRevision != revision {
			t.Errorf("an instance has revision %d when all have applied %d", st.PolicyRevision, revision)
		}
	}
	stdout, _ = b.want(exitDone, "pause", "p", "--wait", "-o", "json")
	var result editResult
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || result.Wait == nil || result.Wait.Applied != 3 || result.Wait.Instances != 3 || result.Wait.Revision <= revision {
		t.Errorf("%v: %s", err, stdout)
	}
	stdout, _ = b.want(exitDone, "wait", "p", "-o", "json")
	var waited struct{ Waits []waitJSON }
	if err := json.Unmarshal([]byte(stdout), &waited); err != nil || len(waited.Waits) != 1 {
		t.Fatalf("%v: %s", err, stdout)
	}
	for _, w := range []waitJSON{*result.Wait, waited.Waits[0]} { // all have stopped
		if now := time.Now(); w.InForce.IsZero() || w.InForce.After(now) {
			t.Errorf("at %v a pause that all have applied is in force from %v", now, w.InForce)
		}
	}
	b.namesTheSilent(3, "mode pause -> enforce", func() (string, string) {
		b.want(exitDone, "pause", "p")
		return b.want(exitLate, "resume", "p", "--wait=2s")
	})
	// What changes nothing is not waited for.
	b.want(exitDone, "enforce", "p", "--wait=1s")
}

// namesTheSilent lets an instance join that never reports beside so many others, and makes a change that waits for
// all of them. The change, which prints made, names that instance when its wait is over; all others apply it, on a
// busy machine later than that.
func (b *bench) namesTheSilent(others int, made string, change func() (stdout, stderr string)) {
	b.t.Helper()
	b.put(etcdtest.NewClient(b.t, server), "providers/p/instances/silent.1.1", protocol.Instance{Name: "silent"})
	var stdout, stderr string
	await.Until(b.t, "the fleet is read within the wait", func() bool {
		stdout, stderr = change()
		return !strings.Contains(stderr, "could not be read within 2s")
	})
	all := fmt.Sprintf(" of %d instances", others+1)
	if !strings.Contains(stdout, made) || !strings.Contains(stderr, "the change is made, but applied by ") ||
		!strings.Contains(stderr, all) || !strings.Contains(stderr, "silent.1.1: has not reported yet") {
		b.t.Errorf("a laggard: %s%s", stdout, stderr)
	}
	await.Until(b.t, "all others have applied it", func() bool {
		_, stderr := b.want(exitLate, "wait", "p", "--timeout", "1s")
		return strings.Contains(stderr, fmt.Sprintf("applied by %d", others)+all) && strings.Contains(stderr, "silent.1.1: has not reported yet")
	})
}

// A lower limit is in force after the settle time, also where somebody else wrote it.
func TestWaitTellsFromWhenAChangeIsInForce(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	for _, c := range []struct {
		limit string
		later bool
	}{{"100/s", true}, {"50/s", true}, {"80/s", false}} {
		b.want(exitDone, "set", "p", c.limit)
		stdout, _ := b.want(exitDone, "wait", "p", "-o", "json")
		var waited struct{ Waits []waitJSON }
		if err := json.Unmarshal([]byte(stdout), &waited); err != nil || len(waited.Waits) != 1 {
			t.Fatalf("%v: %s", err, stdout)
		}
		stdout, _ = b.want(exitDone, "get", "p", "-o", "json")
		var set storedJSON
		if err := json.Unmarshal([]byte(stdout), &set); err != nil {
			t.Fatal(err)
		}
		if from := waited.Waits[0].InForce; from.Before(set.Policy.Time.Add(quota.DefaultSettle)) == c.later {
			t.Errorf("%s, set at %v, is in force from %v", c.limit, set.Policy.Time, from)
		}
	}
}

// A change of one key's limits is waited for as one of the policy is, by the change and by the command wait. It is in
// force after the settle time if it takes something.
func TestWaitTellsOfKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "1000/s", "--keys", "80/s")
	limiters := b.join(server, "p", 2)
	for _, l := range limiters {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what []string
		has  int64 // permits of the key, of each instance's own limit
	}{{[]string{"set", "p", "k", "100/s"}, 100}, {[]string{"set", "p", "k", "60/s"}, 60}, {[]string{"delete", "p", "k"}, 80}} {
		began := time.Now()
		stdout, _ := b.want(exitDone, append(append([]string{"keys"}, c.what...), "--wait", "-o", "json")...)
		var r keyResult
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Wait == nil || r.Wait.Applied != 2 || r.Wait.Instances != 2 {
			t.Fatalf("%v: %v: %s", c.what, err, stdout)
		}
		if from := r.Wait.InForce; c.has == 60 && from.Before(began.Add(quota.DefaultSettle)) {
			t.Errorf("%v: in force from %v, by a change after %v", c.what, from, began)
		}
		for _, l := range limiters {
			st, limits := l.Status(), l.Key("k").Limits()
			if st.Revision < r.Wait.Revision || st.PolicyRevision >= r.Wait.Revision || limits[0].Limit.Permits != c.has {
				t.Errorf("%v: an instance has revision %d, policy %d and %+v when all have applied %d", c.what, st.Revision, st.PolicyRevision, limits, r.Wait.Revision)
			}
		}
		stdout, _ = b.want(exitDone, "wait", "p")
		if want := fmt.Sprintf("p: applied by 2 of 2 instances at revision %d, in force from ", r.Wait.Revision); !strings.HasPrefix(stdout, want) {
			t.Errorf("%v: %s, want %s", c.what, stdout, want)
		}
	}
	b.stdin = strings.NewReader("policies: {p: {limits: 1000/s, keys: {limits: 80/s, overrides: {k: 70/s}}}}")
	stdout, _ := b.want(exitDone, "apply", "-f", "-", "--wait")
	if st := limiters[0].Status(); !strings.Contains(stdout, fmt.Sprintf("p: applied by 2 of 2 instances at revision %d, in force from ", st.Revision)) {
		t.Errorf("applied at revision %d: %s", st.Revision, stdout)
	}
	b.namesTheSilent(2, "key k: 70/s -> 90/s", func() (string, string) {
		b.want(exitDone, "keys", "set", "p", "k", "70/s")
		return b.want(exitLate, "keys", "set", "p", "k", "90/s", "--wait=2s")
	})
}

// Of a limit of a key of more than a minute no instance has a part: each takes what it needs.
func TestADryRunSaysThatALongLimitOfAKeyIsNotDivided(t *testing.T) {
	b := newBench(t, server)
	client := etcdtest.NewClient(t, server)
	for _, id := range []string{"v.1.1", "w.1.1"} {
		b.put(client, "providers/p/instances/"+id, protocol.Instance{Name: id})
	}
	stdout, _ := b.want(exitDone, "set", "p", "100/s", "--keys", "80/s,120/2m sliding", "--dry-run")
	for _, want := range []string{
		"each key: 80/s, of which an instance has 40 to 40 permits\n",
		"each key: 120/2m sliding, of which any instance can have all that the others have not used\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

// Etcd may die after a change is written. That is no change that was not made: the error names the
// revision, and the exit code is that of a change that is written.
func TestWaitSaysWhatIsWrittenWhenEtcdDies(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}}) // nobody listens
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	operator, err := admin.New(client, admin.Options{Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	a := &app{format: format.Table}
	err = a.awaitAll(t.Context(), operator, time.Minute, []*waitJSON{{Provider: "p", Revision: 9, policy: 9}})
	if f := classify(a.explain(t.Context(), err)); f.ExitCode != exitLate || !strings.Contains(f.Error, "p: revision 9 is written; whether every instance has applied it is not known: ") ||
		len(f.Hints) != 1 || !strings.Contains(f.Hints[0], "quota-admin wait p") {
		t.Errorf("%+v", f)
	}
	err = a.awaitAll(t.Context(), operator, time.Minute, []*waitJSON{{Provider: "p", Revision: 9, policy: 9, only: true}})
	if f := classify(err); f.ExitCode != exitUnreachable || strings.Contains(f.Error, "written") { // the command wait writes nothing
		t.Errorf("%+v", f)
	}
}

func TestWhatIsInForceWhen(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(1_800_000_000_000 + ms).UTC() }
	p := func(limits ...quota.Limit) quota.Policy { return quota.Policy{Limits: limits}.WithDefaults() }
	second, minute := quota.Limit{Permits: 1, Window: time.Second}, quota.Limit{Permits: 1, Window: time.Minute}
	more := quota.Limit{Permits: 2, Window: time.Second}
	slow, sliding, paused := p(second), p(second), p(second)
	slow.Settle, sliding.Shape, paused.Mode = 10*time.Second, quota.ShapeSliding, quota.ModePause
	later := p(second)
	later.From = at(60_500)
	hour := quota.Limit{Permits: 100, Window: time.Hour}
	removedSliding := p(minute)
	removedSliding.Shape = quota.ShapeSliding
	replaced, atEdge := p(minute), p(minute)
	replaced.Next = []quota.LimitChange{{From: at(20_000), Limits: []quota.Limit{second}}}
	atEdge.Next = []quota.LimitChange{{From: at(60_000), Limits: []quota.Limit{second}}}
	keys := func(limits ...quota.Limit) quota.Policy {
		all := p(second)
		all.Keys.Limits = limits
		return all
	}
	for _, test := range []struct {
		name      string
		old, next quota.Policy
		at        time.Time
		want      time.Time
	}{
		{"at once", p(second), p(more), time.Time{}, at(500)},
		{"at once after a pause", paused, p(second), time.Time{}, at(500)},
		{"after the settle time", p(more), p(second), time.Time{}, at(4_000)},
		{"of a pause", p(second), paused, time.Time{}, at(4_000)},
		{"when a removed limit's window ends", p(second, minute), p(more), time.Time{}, at(60_000)},
		{"of a limit by key too", keys(second, minute), keys(more), time.Time{}, at(60_000)},
		{"of another limit by key", keys(second), keys(more), time.Time{}, at(500)},
		{"of the first limits by key", p(second), keys(second), time.Time{}, at(4_000)},
		{"of the first limits by key, of longer windows", p(second), keys(second, minute), time.Time{}, at(60_000)},
		{"of the first limits by key, after the longer settle time", slow, keys(second), time.Time{}, at(11_000)},
		{"of a policy that has some from the beginning", quota.Policy{}, keys(second), time.Time{}, at(4_000)},
		{"at once where keys have limits no more", keys(second), p(second), time.Time{}, at(500)},
		{"of a limit by key that is smaller", keys(more), keys(second), time.Time{}, at(4_000)},
		{"of a limit that another's window replaces", p(minute), p(second), time.Time{}, at(60_000)},
		{"of one that slides", removedSliding, sliding, time.Time{}, at(120_340)},
		{"of an announced removal", p(minute), replaced, at(20_000), at(60_000)},
		{"of one at its window's edge", p(minute), atEdge, at(60_000), at(60_000)},
		{"of a long limit, which binds no more at once", p(second, hour), p(second), time.Time{}, at(500)},
		{"later where shapes count", sliding, sliding, time.Time{}, at(5_104)},
		{"after the longer one", slow, p(second), time.Time{}, at(11_000)},
		{"when the longest has begun a window", p(second), p(second, minute), time.Time{}, at(60_000)},
		{"at the time announced", p(second), p(second), at(20_000), at(20_000)},
		{"in the window after it", p(second), p(second), at(20_001), at(21_000)},
		{"when the policy begins", quota.Policy{}, later, time.Time{}, at(61_000)},
	} {
		if got := inForce(test.old, test.next, test.at, at(500).Add(-300*time.Microsecond)); !got.Equal(test.want) { // in whole milliseconds
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// Another number of owners counts from a window that begins after the settle time on, whatever the limits do.
func TestWhatIsInForceOfAKey(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(1_800_000_000_000 + ms).UTC() }
	p := quota.Policy{Limits: []quota.Limit{{Permits: 9, Window: time.Second}}, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 4, Window: time.Second}}}}.WithDefaults()
	for change, want := range map[[2]string]time.Time{
		{"", "5/s"}: at(500), {"5/s", "3/s"}: at(4_000), {"3/s", ""}: at(500), {"5/s", ""}: at(4_000), {"5/s", "5/s owners=2"}: at(4_000), {"", "5/s owners=1"}: at(4_000),
	} {
		if got := keyInForce(&p, change, at(500)); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", change, got, want)
		}
	}
	p.Keys = quota.Keys{}
	if got := keyInForce(&p, [2]string{"5/s", ""}, at(500)); !got.IsZero() {
		t.Errorf("without limits by key: %v", got)
	}
}

func TestLaggardsAreNamed(t *testing.T) {
	w := &waitJSON{Provider: "p", Revision: 9, policy: 8} // the limits of a key changed after the policy
	f := &protocol.Fleet{}
	now := time.Unix(1000, 0)
	add := func(id string, r *protocol.Report, problem error) {
		f.Instances = append(f.Instances, protocol.InstanceStatus{Instance: protocol.Instance{ID: id}, Report: r, Problem: problem})
	}
	add("done", &protocol.Report{Revision: 9, PolicyRevision: 8}, nil)
	add("newer", &protocol.Report{Revision: 12, PolicyRevision: 12}, nil)
	add("silent", nil, nil)
	add("foreign", nil, fmt.Errorf("no lease"))
	add("stale", &protocol.Report{Revision: 7, PolicyRevision: 7, State: quota.StateStale, Problem: "etcd is away", Time: now.Add(-12 * time.Second)}, nil)
	add("behind", &protocol.Report{Revision: 8, PolicyRevision: 8, State: quota.StateActive, Time: now}, nil)
	w.count(f, now)
	if w.Applied != 2 || w.Instances != 6 || len(w.Laggards) != 4 {
		t.Fatalf("%+v", w)
	}
	err := w.late(time.Minute)
	text := classify(err)
	want := []string{"silent: has not reported yet", "foreign: no lease", "stale: has policy revision 7, is stale, reported 12s ago: etcd is away",
		"behind: has revision 8, is active, reported 0s ago"}
	if text.ExitCode != exitLate || strings.Join(text.Hints, "|") != strings.Join(want, "|") || !strings.Contains(text.Error, "applied by 2 of 6 instances at revision 9 after 1m0s") {
		t.Errorf("%+v", text)
	}
	if got := w.summary(); !strings.HasPrefix(got, "applied by 2 of 6 instances at revision 9, in force from ") {
		t.Error(got)
	}
	for range 20 {
		add("many", nil, nil)
	}
	w.count(f, now)
	if text := classify(w.late(time.Minute)); len(text.Hints) != laggardsShown+1 || text.Hints[laggardsShown] != "and 14 more" {
		t.Errorf("%+v", text.Hints)
	}
	nobody := &waitJSON{Provider: "p", only: true}
	if text := classify(nobody.late(time.Minute)); text.ExitCode != exitLate || text.Error != "no instance of p was running within 1m0s; the first that starts will use the policy" {
		t.Errorf("%+v", text)
	}
}

func TestParseWhen(t *testing.T) {
	zone := time.FixedZone("UTC+2", 2*3600)
	now := time.Date(2027, 3, 1, 22, 30, 15, 400, zone)
	for text, want := range map[string]string{
		"2027-03-02T00:00:00Z":      "2027-03-02T00:00:00Z",
		"2027-03-02T00:00:00+02:00": "2027-03-01T22:00:00Z",
		"2027-03-02 00:00":          "2027-03-01T22:00:00Z",
		"2027-03-02T00:00:30":       "2027-03-01T22:00:30Z",
		"00:00":                     "2027-03-01T22:00:00Z", // next midnight here
		"22:30":                     "2027-03-02T20:30:00Z", // has passed today
		"22:31:30":                  "2027-03-01T20:31:30Z",
		"+90s":                      "2027-03-01T20:31:46Z", // in full seconds
		"+0s":                       "2027-03-01T20:30:16Z",
		"tomorrow":                  "", "+-5s": "", "25:00": "", "": "", "+": "", "2027-02-30 00:00": "",
	} {
		at, err := parseWhen(text, now)
		if (err == nil) != (want != "") || err == nil && format.Exact(at) != want {
			t.Errorf("%q: %v, %v, want %q", text, format.Exact(at), err, want)
		}
	}
}

// What a change says of a limit that it removes: until when it binds.
func TestSetSaysUntilWhenARemovedLimitBinds(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000).Add(15 * time.Second).UTC()
	second, minute := quota.Limit{Permits: 1000, Window: time.Second}, quota.Limit{Permits: 1000, Window: time.Minute}
	p := func(keys []quota.Limit, limits ...quota.Limit) quota.Policy {
		return quota.Policy{Limits: limits, Keys: quota.Keys{Limits: keys}}.WithDefaults()
	}
	announced := p(nil, minute)
	announced.Next = []quota.LimitChange{{From: now.Add(20 * time.Second), Limits: []quota.Limit{second}}}
	ends := "1000/1m binds until " + now.Add(45*time.Second).Format(time.RFC3339)
	late := "1000/1m binds until " + now.Add(105*time.Second).Format(time.RFC3339)
	settled := ": for the settle time (3s), and then until its window ends"
	keyed := []quota.Limit{second, minute}
	for _, test := range []struct {
		name      string
		old, next quota.Policy
		after     time.Duration // now, since then
		want      string        // a part of a line; empty: nothing of a removed limit
	}{
		{"another window", p(nil, minute), p(nil, second), 0, "the removed limit " + ends + settled},
		{"within the settle time before its end", p(nil, minute), p(nil, second), 43 * time.Second, "the removed limit " + late + settled},
		{"of keys", p(keyed, second), p(keyed[:1], second), 0, "the removed limit 1000/1m of keys binds until "},
		{"announced", p(nil, minute), announced, 0, "the same on every instance; " + ends + ", when its window ends"},
		{"a long one", p(nil, second, quota.Limit{Permits: 10_000, Window: time.Hour}), p(nil, second), 0, ""},
		{"a larger one", p(nil, minute), p(nil, quota.Limit{Permits: 2000, Window: time.Minute}), 0, ""},
	} {
		all := strings.Join(effects(test.old, test.next, now.Add(test.after)), "\n")
		if !strings.Contains(all, test.want) || test.want == "" && strings.Contains(all, "removed") {
			t.Errorf("%s: %q, want %q", test.name, all, test.want)
		}
	}
}

// Until then, and no longer, an instance that learnt of the change at once obeys the removed limit.
func TestARemovedLimitBindsAsLongAsIsSaid(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	of := func(shape quota.Shape, window time.Duration) *quota.Policy {
		p := quota.Policy{Limits: []quota.Limit{{Permits: 60, Window: window}}}
		p.Shape = shape
		p = p.WithDefaults()
		return &p
	}
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding} {
		for _, gone := range []time.Duration{2 * time.Second, 10 * time.Second, time.Minute} {
			for after := time.Duration(0); after < 2*time.Minute; after += 1700 * time.Millisecond {
				old, next, now := of(shape, gone), of(shape, time.Second), began.Add(after)
				var h share.History
				h.Reset(began.UnixNano()-int64(time.Hour), "a", protocol.View{Revision: 1, Policy: old, Instances: []protocol.Instance{{ID: "a"}}})
				h.Apply(now.UnixNano(), protocol.Change{Revision: 2, Policy: next})
				said := lasts(*old, *next, removed(old.Limits, next.Limits)[0], now.Add(old.Settle))
				binds := func(at time.Time) bool { return slices.Contains(h.Lengths(at.UnixNano(), 0), gone) }
				if !binds(said.Add(-1)) || binds(said) {
					t.Errorf("%s, %v, removed %v after an edge: said until %v; it binds before then: %v, and then: %v", shape, gone, after, said, binds(said.Add(-1)), binds(said))
				}
				if from := inForce(*old, *next, time.Time{}, now); from.Before(said) {
					t.Errorf("in force from %v, and the removed limit binds until %v", from, said)
				}
			}
		}
	}
}

// TestApplyWaitsForAllTogether: one budget for all, not one after the other.
func TestApplyWaitsForAllTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	client := etcdtest.NewClient(t, server)
	var document strings.Builder
	document.WriteString("schema: 1\npolicies:\n")
	const n = 10
	for i := range n {
		fmt.Fprintf(&document, "  p%d: {limits: 5/s}\n", i)
		b.put(client, fmt.Sprintf("providers/p%d/instances/silent.1.1", i), protocol.Instance{Name: "silent"})
	}
	file := t.TempDir() + "/p.yaml"
	if err := os.WriteFile(file, []byte(document.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// All are looked at at the same time; then their instances report.
	reported := make(chan error, 1)
	go func() {
		for {
			r, err := client.Get(t.Context(), b.prefix+"observers/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || r.Count == n {
				reported <- err
				return
			}
		}
	}()
	done := make(chan string, 1)
	go func() {
		_, stdout, stderr := b.call("apply", "-f", file, "--wait=10m", "-o", "json")
		done <- stdout + stderr
	}()
	if err := <-reported; err != nil {
		t.Fatal(err)
	}
	for i := range n {
		b.put(client, fmt.Sprintf("reports/p%d/silent.1.1", i), protocol.Report{PolicyRevision: 1 << 40, Time: time.Now()})
	}
	var result applyJSON
	text := <-done
	if err := json.Unmarshal([]byte(text), &result); err != nil || len(result.Changes) != n || result.Changes[n-1].Wait == nil || result.Changes[n-1].Wait.Applied != 1 {
		t.Errorf("%v: %s", err, text)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitNotFound, "wait", "p")
	b.want(exitDone, "set", "p", "100/s", "--settle", "1s")
	b.want(exitDone, "wait", "p")
	if _, stderr := b.want(exitLate, "wait", "p", "--healthy", "--timeout", "1ms"); !strings.Contains(stderr, "no instance of p was running") {
		t.Error(stderr)
	}
	for _, l := range b.join(server, "p", 2) {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if stdout, _ := b.want(exitDone, "wait", "p", "--healthy", "--timeout", "5m"); !strings.Contains(stdout, "applied by 2 of 2 instances") {
		t.Error(stdout)
	}
}

// Healthy is who issues permits, or is paused, and says of no problem.
func TestWaitCountsTheHealthy(t *testing.T) {
	t.Parallel()
	report := func(state quota.State, problem string) protocol.InstanceStatus {
		return protocol.InstanceStatus{Report: &protocol.Report{State: state, Problem: problem, Revision: 7, PolicyRevision: 7, Time: time.Now()}}
	}
	f := &protocol.Fleet{Instances: []protocol.InstanceStatus{
		report(quota.StateActive, ""), report(quota.StatePaused, ""), report(quota.StateJoining, ""), report(quota.StateStale, ""), report(quota.StateActive, "clock"),
	}}
	for healthy, want := range map[bool]int{false: 5, true: 2} {
		w := waitJSON{Revision: 7, policy: 7, healthy: healthy}
		if w.count(f, time.Now()); w.Applied != want || w.Applied+len(w.Laggards) != 5 {
			t.Errorf("healthy %v: %+v", healthy, w)
		}
	}
}
