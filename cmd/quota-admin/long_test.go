package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// builtIn is the number of a limit that nobody has set. An instant in nanoseconds may end like it.
var builtIn = regexp.MustCompile(`\b1000000000000\b`)

// Of a policy of long limits alone no command shows a limit that nobody has set.
func TestALongLimitAloneIsAllThatIsShown(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	cluster, _ := etcdtest.New(t, embedded.Options{})
	b := newBench(t, cluster)
	const p = "payments/hourly"
	b.want(exitDone, "set", p, "100/h")
	for _, l := range b.join(cluster, p, 2) {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Acquire(t.Context(), 0); err != nil && l.Wait(t.Context()) != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"get P", "get P -o json", "list", "list -o json", "history P", "instances P", "explain P", "explain P -o json",
		"top P --count 1", "top P --count 1 -o json", "doctor", "doctor -o json",
		"set P 200/h --dry-run", "set P 200/h --dry-run -o json", "set P 10/s --dry-run", "set P 10/s --dry-run -o json", "set P 10/s,100/h --dry-run",
		"budget P", "budget P -o json",
	} {
		_, stdout, stderr := b.call(strings.Fields(strings.ReplaceAll(args, "P", p))...)
		if text := stdout + stderr; builtIn.MatchString(text) || strings.Contains(text, "e+1") || !strings.Contains(text, "/h") && !strings.Contains(args, "doctor") {
			t.Errorf("quota-admin %s:\n%s", args, text)
		}
	}
}

// counted returns a client of etcd, an operator, and what budget knows of a provider's limit of a day of which 5
// permits were used.
func counted(t *testing.T) (*clientv3.Client, *admin.Client, *budgetJSON) {
	t.Helper()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/d")
	b.want(exitDone, "budget", "p", "--used", "5")
	client := etcdtest.NewClient(t, server)
	operator, err := admin.New(client, admin.Options{Prefix: b.prefix})
	if err != nil {
		t.Fatal(err)
	}
	a := &app{etcd: &etcdflags.Flags{Prefix: b.prefix}}
	all, _, err := a.budgets(t.Context(), connection{operator, client}, "p")
	if err != nil || len(all) != 1 || all[0].HandedOut != 5 {
		t.Fatalf("%+v, %v", all, err)
	}
	return client, operator, all[0]
}

// A count whose total is gone when it is to be written is not blamed on instances that take permits.
func TestACountOfAWindowThatIsGone(t *testing.T) {
	t.Parallel()
	client, operator, of := counted(t)
	if _, err := client.Delete(t.Context(), of.key); err != nil {
		t.Fatal(err)
	}
	err := of.correct(t.Context(), live.NewWatcher(operator, 1), client, "p", 7)
	if err == nil || !strings.Contains(err.Error(), "the window's total is gone from etcd, and nothing was changed") {
		t.Error(err)
	}
}

// meddler is a KV of which somebody else writes a key just before each transaction.
type meddler struct {
	clientv3.KV
	write func()
}

func (m meddler) Txn(ctx context.Context) clientv3.Txn {
	m.write()
	return m.KV.Txn(ctx)
}

// A count that others change each time between reading and writing is given up, with nothing changed by it.
func TestACountThatOthersKeepChanging(t *testing.T) {
	t.Parallel()
	client, operator, of := counted(t)
	kv, writes := client.KV, 0
	client.KV = meddler{kv, func() {
		writes++
		next := of.total
		next.Out += int64(writes)
		text, err := escrow.Encode(next)
		if err == nil {
			_, err = kv.Put(t.Context(), of.key, text, clientv3.WithIgnoreLease())
		}
		if err != nil {
			t.Error(err)
		}
	}}
	err := of.correct(t.Context(), live.NewWatcher(operator, 1), client, "p", 7)
	if err == nil || err.Error() != "instances took permits at the same moment, 3 times: try again" || writes != 3 {
		t.Errorf("%v, after %d writes of others", err, writes)
	}
}

// A long limit that is used up before its window ends is foretold by budget and top.
func TestExhaustionIsForetold(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	b := newBench(t, server)
	zone := "UTC" // one in which the day has twelve more hours, so that the limit is used up before
	if time.Now().UTC().Hour() >= 12 {
		zone = "Etc/GMT+12"
	}
	b.want(exitDone, "set", "p", "100/s,100000/d", "--zone", zone, "--settle", "1s")
	limiter := b.join(server, "p", 1)[0]
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for limiter.Wait(ctx) == nil {
		}
	}()
	for _, args := range []string{"budget p", "top p --count 1"} {
		await.Until(t, args+" foretells it", func() bool {
			stdout, stderr := b.want(exitDone, strings.Fields(args)...)
			return strings.Contains(stdout+stderr, "/s, 100000/d is used up at ") && strings.Contains(stdout+stderr, " before its window ends")
		})
		// The rate is that between two reports. All permits of a second may have come before the first.
		await.Until(t, args+" -o json foretells it", func() bool {
			stdout, _ := b.want(exitDone, append(strings.Fields(args), "-o", "json")...)
			return strings.Contains(stdout, `"exhausted":`)
		})
	}
}

// The provider's count of a long limit counts beside what the instances have in hand, and a
// fleet that goes on is never let issue more than is left of the limit by both.
func TestACountKeepsWhatIsInHand(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "1000/s,100000/d", "--settle", "1s")
	fleet := b.join(server, "p", 2)
	for _, l := range fleet {
		if err := l.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	hand := func() (n int64) {
		for _, l := range fleet {
			for _, u := range l.Status().Limits {
				if u.Limit.Window > time.Minute {
					n += u.Share - u.Used
				}
			}
		}
		return n
	}
	count := func(used int64) *budgetJSON {
		t.Helper()
		stdout, _ := b.want(exitDone, "budget", "p", "--used", fmt.Sprint(used), "-o", "json")
		var got struct{ Budgets []*budgetJSON }
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Budgets) != 1 || len(got.Budgets[0].Instances) != 2 {
			t.Fatalf("%s, %v", stdout, err)
		}
		return got.Budgets[0]
	}
	await.Until(t, "permits are in hand", func() bool { return hand() > 100 })
	if c := count(70000); c.HandedOut < 70000+hand() || c.HandedOut > 72000 {
		t.Errorf("%+v, want 70000 used and %d in hand", c, hand())
	}
	var issued atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, l := range fleet {
		go func() {
			for l.Wait(ctx) == nil {
				issued.Add(1)
			}
		}()
	}
	await.Until(t, "permits are issued", func() bool { return issued.Load() > 100 })
	if _, stderr := b.want(exitRefused, "budget", "p", "--used", "100"); !strings.Contains(stderr, "so 100 is too few") {
		t.Errorf("a count below what the instances have used: %s", stderr)
	}
	sooner := issued.Load()
	count(98000)
	before := issued.Load()
	await.Until(t, "nothing is left", func() bool {
		return hand() == 0 && strings.Contains(first(b.want(exitDone, "budget", "p")), ", 0 left")
	})
	if stdout := first(b.want(exitDone, "budget", "p")); strings.Contains(stdout, "Foreseen") {
		t.Errorf("nothing is left, and how long it lasts is foreseen: %s", stdout)
	}
	if n := issued.Load() - before; n > 2000 || issued.Load() == sooner {
		t.Errorf("%d permits were issued of the 2000 that were left", n)
	}
}

func first(stdout, _ string) string { return stdout }

// A change of a long limit's windows says that the count goes on, and where etcd may not know all of it.
func TestAChangeOfWindowsSaysThatTheCountGoesOn(t *testing.T) {
	t.Parallel()
	policy := func(limits, keys string) quota.Policy {
		t.Helper()
		l, err := quota.ParseLimits(limits)
		if err != nil {
			t.Fatal(err)
		}
		k, err := quota.ParseLimits(keys)
		if err != nil {
			t.Fatal(err)
		}
		return quota.Policy{Limits: l, Keys: quota.Keys{Limits: k}}
	}
	for _, c := range []struct{ limits, keys, nextLimits, nextKeys, want string }{
		{"80/s,5000/h", "9/s", "80/s,6000/h", "9/s", ""},
		{"80/s,5000/h", "9/s", "80/s,5000/h sliding", "9/s", "what was handed out of 5000/h counts on in the windows of 5000/h sliding that overlap those before"},
		{"80/s", "9/s,50/h@17m", "80/s", "9/s,50/h", "of each key, what was handed out of 50/h@17m counts on in the windows of 50/h that overlap those before"},
		{"80/s,5000/h", "9/s", "80/s,50000/d", "9/s", "what was handed out of 5000/h counts on in the windows of 50000/d that overlap those before; " +
			"they are longer, so etcd may not know all that was used in them: quota-admin budget PROVIDER --used N gives the provider's count"},
		{"80/s", "9/s,50/h", "80/s", "9/s,500/d", "of each key, what was handed out of 50/h counts on in the windows of 500/d that overlap those before; " +
			"they are longer, so etcd may not know all that was used in them: quota-admin budget PROVIDER --key KEY --used N gives the provider's count"},
		{"80/s", "9/s", "80/s,5000/h", "9/s", ""},
		{"80/s,5000/h", "9/s", "80/s", "9/s", ""},
	} {
		if got := strings.Join(counts(policy(c.limits, c.keys), policy(c.nextLimits, c.nextKeys)), "\n"); got != c.want {
			t.Errorf("%s, keys %s -> %s, keys %s: %q", c.limits, c.keys, c.nextLimits, c.nextKeys, got)
		}
	}
}

// A limit of one key slides only beside one of each key with the same window that does, and keys set says which do not.
func TestALimitOfOneKeyThatGoesByTheClock(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "15000/s", "--keys", "14/s,5000/h sliding")
	const note = "100000/d goes by the clock, and does not slide: 14/s,5000/h sliding, the limits of each key, have no window of the same length"
	for _, args := range [][]string{{"14/s,10000/h,100000/d", "--dry-run"}, {"14/s,10000/h,100000/d"}, {"15/s,10000/h"}} {
		_, stderr := b.want(exitDone, append([]string{"keys", "set", "p", "big"}, args...)...)
		if strings.Contains(stderr, note) != strings.Contains(args[0], "/d") || strings.Contains(stderr, "10000/h goes") || strings.Contains(stderr, "/s goes") {
			t.Errorf("%q: %s", args, stderr)
		}
	}
	const why = `key "big": 100000/d sliding: leave out a phase, and sliding: a limit of one key has those of the limit of each key with the same window, and without such a limit goes by the clock`
	if _, stderr := b.want(exitRefused, "keys", "set", "p", "big", "14/s,100000/d sliding"); !strings.Contains(stderr, why) {
		t.Errorf("%s", stderr)
	}
}

// Apply says it too, once for all keys of a provider that it is true of.
func TestApplyOfKeysThatGoByTheClock(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.stdin = strings.NewReader("policies:\n  p:\n    limits: 15000/s\n    keys:\n      limits: 14/s,5000/h sliding\n      overrides: {a: 100000/d, b: '14/s,100000/d', c: 10000/h}\n")
	_, stderr := b.want(exitDone, "apply", "-f", "-")
	if want := "p: key a and 1 more key: 100000/d goes by the clock, and does not slide: 14/s,5000/h sliding, the limits of each key, have no window of the same length\n"; strings.Count(stderr, "by the clock") != 1 || !strings.Contains(stderr, want) {
		t.Error(stderr)
	}
}

// A limit by key of an hour is set as any other. No instance has a share of it.
func TestKeysOfAnHour(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "hourly", "20/s", "--keys", "5000/h")
	stdout, _ := b.want(exitDone, "keys", "set", "hourly", "x", "9000/h", "--dry-run")
	if stdout != "hourly: key x: those of each key -> 9000/h\n" {
		t.Errorf("%q", stdout)
	}
	b.want(exitDone, "keys", "set", "hourly", "x", "9000/h,7/s")
	if stdout, _ := b.want(exitDone, "keys", "list", "hourly"); !strings.Contains(stdout, "7/s,9000/h") {
		t.Errorf("%q", stdout)
	}
}
