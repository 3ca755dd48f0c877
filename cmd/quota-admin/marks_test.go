package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// issued returns how many permits a limiter issues until it is told that the limit is used up, or withheld.
func issued(t *testing.T, l *consumer.Limiter) (n int, why string) {
	t.Helper()
	await.Until(t, "the limit is used up or withheld", func() bool {
		for l.TryAcquire() {
			n++
		}
		err := l.Acquire(t.Context(), 0)
		if err == nil {
			n++
			return false
		}
		why = err.Error()
		return n == 50 || strings.Contains(why, "nothing more of")
	})
	return n, why
}

// An etcd that came back empty knows nothing of what was used of a long limit, and programs that were started again know
// nothing either. Whoever sets the limit is told what that means; --withhold has nothing handed out until the count is
// given, even to a program that waits for the limit already.
func TestALongLimitThatIsSetAfterALoss(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	waits := b.join(server, "lost", 1)[0]
	const way = "etcd counts 50/mo from 0; if some was used before, as when etcd has lost its data, quota-admin budget %s --used N gives the provider's count"
	told := func(name string, args ...string) {
		t.Helper()
		if _, stderr := b.want(exitDone, args...); !strings.Contains(stderr, strings.ReplaceAll(way, "%s", name)) {
			t.Errorf("%q does not say what it assumes: %s", args, stderr)
		}
	}
	told("lost", "set", "lost", "50/mo", "--dry-run")
	if _, stderr := b.want(exitDone, "set", "lost", "50/mo", "--withhold"); !strings.Contains(stderr, "nothing more is handed out of 50/mo until 20") || !strings.Contains(stderr, "quota-admin budget lost --used N") {
		t.Errorf("--withhold does not say what it withholds: %s", stderr)
	}
	if n, why := issued(t, waits); n != 0 || !strings.Contains(why, "quota-admin budget lost --used N") {
		t.Errorf("%d permits, then: %s", n, why)
	}
	if stdout, _ := b.want(exitDone, "budget", "lost", "--used", "50"); !strings.Contains(stdout, "50 of 50, 0 left") {
		t.Error(stdout)
	}

	told("kept", "set", "kept", "50/mo", "--create")
	if n, why := issued(t, b.join(server, "kept", 1)[0]); n != 50 {
		t.Errorf("%d permits of a limit that nobody has used, then: %s", n, why)
	}
	if _, stderr := b.want(exitDone, "set", "kept", "60/mo"); strings.Contains(stderr, "from 0") {
		t.Errorf("of a limit that etcd counts: %s", stderr)
	}
	if _, stderr := b.want(exitDone, "set", "short", "50/s"); strings.Contains(stderr, "etcd counts") {
		t.Errorf("of a short limit: %s", stderr)
	}
}

// Whoever waits for a limit that is withheld goes on soon after the operator has given the count, and so does whoever
// tries again as README's loop does. Nobody knew when that would be.
func TestCallersGoOnOnceTheCountIsGiven(t *testing.T) {
	t.Parallel()
	for of, play := range map[string]struct {
		set, give []string
		from      func(l *consumer.Limiter) consumer.Taker
	}{
		"provider": {[]string{"set", "p", "50/mo", "--withhold"}, []string{"budget", "p", "--used", "40"}, func(l *consumer.Limiter) consumer.Taker { return l }},
		"key": {[]string{"set", "p", "1000/s", "--keys", "50/mo", "--withhold"}, []string{"budget", "p", "--key", "a", "--used", "40"},
			func(l *consumer.Limiter) consumer.Taker { return l.Key("a") }},
	} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, server)
			b.want(exitDone, play.set...)
			all := b.join(server, "p", 2)
			waiting, refused, served := make(chan error, 1), make(chan consumer.LimitError, 1), make(chan error, 1)
			go func() {
				_, err := play.from(all[0]).Take(t.Context(), 1, consumer.Forever)
				waiting <- err
			}()
			go func() {
				for {
					_, err := play.from(all[1]).Take(t.Context(), 1, 0)
					refusal, is := errors.AsType[consumer.LimitError](err)
					if !is {
						served <- err
						return
					}
					pause := max(time.Second, time.Until(refusal.RetryAt))
					if strings.Contains(err.Error(), "nothing more of") {
						select {
						case refused <- refusal:
						default:
						}
					}
					select {
					case <-time.After(pause):
					case <-t.Context().Done():
						return
					}
				}
			}()
			if e := <-refused; !e.RetryAt.IsZero() || !strings.Contains(e.Error(), " until ") {
				t.Fatalf("%v: by RetryAt it comes back at %v, and nobody knows when the count is given", e, e.RetryAt)
			}
			await.Until(t, "the other one waits in vain", func() bool { return strings.Contains(all[0].Status().Problem, "nothing more of") })
			b.want(exitDone, play.give...)
			given := time.Now()
			if err := <-waiting; err != nil {
				t.Error(err)
			}
			t.Logf("who waits goes on after %v", time.Since(given))
			if err := <-served; err != nil {
				t.Error(err)
			}
			t.Logf("who tries again goes on after %v", time.Since(given))
		})
	}
}

// An etcd that was restored under its old cluster ID, where no program lives that knows more, counts less than was used,
// and nobody notices. Whoever says --withhold has nothing handed out of what it counts either, of the provider and of
// keys, also at a program that runs, until he gives the counts.
func TestWithholdingWhatEtcdCounts(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "50/mo", "--keys", "40/mo")
	runs := b.join(server, "p", 1)[0]
	take := func(of consumer.Taker) {
		t.Helper()
		if _, err := of.Take(t.Context(), 1, consumer.Forever); err != nil {
			t.Error(err)
		}
	}
	take(runs.Key("a"))
	if stdout, _ := b.want(exitDone, "budget", "p", "--withhold"); !strings.Contains(stdout, "Nothing more is handed out of 50/mo until 20") || !strings.Contains(stdout, ", of 40/mo of each key until 20") || !strings.Contains(stdout, "Give the counts to go on sooner") {
		t.Error(stdout)
	}
	const why = "etcd was restored or has lost its data"
	// What etcd counts, less what programs that run have used, is not what others have used.
	if stdout, _ := b.want(exitDone, "budget", "p"); !strings.Contains(stdout, "Rest           not known: ") {
		t.Error(stdout)
	}
	if stdout, _ := b.want(exitDone, "budget", "p", "-o", "json"); !strings.Contains(stdout, `"rest": null`) {
		t.Error(stdout)
	}
	for _, shown := range [][]string{{"budget", "p"}, {"budget", "p", "--key", "a"}} {
		if stdout, _ := b.want(exitDone, shown...); !strings.Contains(stdout, ", 0 left") || !strings.Contains(stdout, why) {
			t.Errorf("%q: %s", shown, stdout)
		}
	}
	for who, l := range map[string]*consumer.Limiter{"a new program": b.join(server, "p", 1)[0], "one that runs": runs} {
		await.Until(t, who+" is refused", func() bool { // once it has issued what it had in hand
			err := l.Key("a").Acquire(t.Context(), 0)
			return err != nil && strings.Contains(err.Error(), "nothing more of") && strings.Contains(err.Error(), why)
		})
	}
	b.want(exitDone, "budget", "p", "--used", "30")
	b.want(exitDone, "budget", "p", "--key", "a", "--used", "20")
	take(runs.Key("a"))
	if stdout, _ := b.want(exitDone, "budget", "p", "--key", "a"); strings.Contains(stdout, "Withheld") {
		t.Error(stdout)
	}
	// To say it again is to say that the store has lost data since: the counts that were given are withheld too.
	if stdout, stderr := b.want(exitDone, "set", "p", "50/mo", "--keys", "40/mo", "--withhold"); !strings.Contains(stderr, "also if you have given it before") {
		t.Error(stdout, stderr)
	}
	for _, shown := range [][]string{{"budget", "p"}, {"budget", "p", "--key", "a"}} {
		if stdout, _ := b.want(exitDone, shown...); !strings.Contains(stdout, ", 0 left") || !strings.Contains(stdout, why) {
			t.Errorf("%q after --withhold was given again: %s", shown, stdout)
		}
	}
}

// Apply withholds for all policies of a document, also where a first apply without --withhold has set them already.
func TestApplyAfterALoss(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(file, []byte("schema: 1\npolicies:\n  hours: {limits: 50/mo}\n  keyed: {limits: 9/s, keys: {limits: 50/mo}}\n  short: {limits: 9/s}\n  calls: {limits: 6 inflight hold=2m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr := b.want(exitDone, "apply", "-f", file)
	for _, want := range []string{"hours: etcd counts 50/mo from 0", "keyed: etcd counts 50/mo of each key from 0", "quota-admin budget keyed --key KEY --used N"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in %s%s", want, stdout, stderr)
		}
	}
	if _, stderr := b.want(exitDone, "apply", "-f", file, "--withhold", "--dry-run"); !strings.Contains(stderr, "hours: nothing more of 50/mo would be handed out") {
		t.Error(stderr)
	}
	marks := func() (n int64) {
		r, err := etcdtest.NewClient(t, server).Get(t.Context(), b.prefix+"budgets/hours/mark")
		if err != nil || len(r.Kvs) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Kvs[0].Version
	}
	if n := marks(); n != 1 {
		t.Errorf("a dry run has marked the store: version %d", n)
	}
	stdout, stderr = b.want(exitDone, "apply", "-f", file, "--withhold")
	if !strings.Contains(stdout, "0 changed") || !strings.Contains(stderr, "hours: nothing more is handed out of 50/mo until 20") || !strings.Contains(stderr, "keyed: nothing more is handed out of 50/mo of each key until 20") ||
		!strings.Contains(stderr, "calls: nothing more is handed out of 6 inflight hold=2m until 20") || !strings.Contains(stderr, " at the latest; give how many calls are open now to go on sooner, ") || strings.Contains(stderr, "window") || strings.Contains(stderr, "short") {
		t.Errorf("%s%s", stdout, stderr)
	}
	if n, why := issued(t, b.join(server, "hours", 1)[0]); n != 0 {
		t.Errorf("%d permits, then: %s", n, why)
	}
}

// After a restore of etcd, before an instance has marked the store, doctor and budget say as docs/run.md does that a limit in
// flight goes on by itself.
func TestALimitInFlightAfterARestore(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "20 inflight hold=1m")
	mark, err := escrow.Encode(escrow.Mark{Cluster: 1})
	if err != nil {
		t.Fatal(err)
	}
	b.put(etcdtest.NewClient(t, server), "budgets/p/mark", mark)
	stdout, _ := b.doctor(exitFailed, "p")
	for _, want := range []string{" at the latest, because etcd was restored from a backup", "do: wait, or to go on sooner give how many calls are open now, those from before the restore included: quota-admin budget p --used N"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if stdout, _ := b.want(exitDone, "budget", "p"); !strings.Contains(stdout, " at the latest, because etcd was restored from a backup (it has another cluster ID); give by --used N how many calls are open now, to go on sooner") {
		t.Error(stdout)
	}
}
