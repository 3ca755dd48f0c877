package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// restored gives a provider the mark of another cluster, as a restored backup brings it.
func (b *bench) restored(provider string) {
	b.t.Helper()
	k, err := keys.New(b.prefix)
	if err != nil {
		b.t.Fatal(err)
	}
	text, err := escrow.Encode(escrow.Mark{Cluster: 1})
	if err != nil {
		b.t.Fatal(err)
	}
	b.put(etcdtest.NewClient(b.t, server), strings.TrimPrefix(k.BudgetMark(provider), b.prefix), text)
}

// What the provider counts and no instance took is told apart, with the instant until which that counts. From then on it
// is left again, as instances take it. An answer by which nothing is left, and which names no limit, such as one with
// Retry-After, has counted nothing.
func TestAKeysBudgetSaysWhatWasUsedElsewhere(t *testing.T) {
	until := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	w := &keyWindow{Budget: protocol.BudgetAt(quota.Limit{Permits: 120, Window: time.Hour}, time.UTC, until.Add(-time.Minute).UnixNano()), keyCount: keyCount{"a", -1}}
	stated := escrow.Stated{At: 20, Until: until.UnixNano(), Of: 120, Limit: 120}
	some, asked := escrow.Stated{Left: 40, At: 20, Until: until.UnixNano()}, escrow.Stated{At: 20, Until: until.UnixNano()}
	const stop = "nothing more until 2027-01-01T12:00:00Z, by an answer that named no limit, such as one with Retry-After; to end it sooner give the provider's count, or 20 if that is more, by --used N"
	for _, c := range []struct {
		stated          escrow.Stated
		at              time.Time
		elsewhere, left int64
		says            string
	}{
		{escrow.Stated{}, until.Add(-time.Second), 0, 100, ""},
		{stated, until.Add(-time.Second), 100, 0, "100 used, by the provider's count, until 2027-01-01T12:00:00Z"},
		{stated, until, 0, 100, ""},
		{some, until.Add(-time.Second), 60, 40, "60 used, by the provider's count, until 2027-01-01T12:00:00Z"},
		{asked, until.Add(-time.Second), 0, 0, stop},
		{asked, until, 0, 100, ""},
	} {
		text, err := escrow.Encode(escrow.Total{Cluster: 1, Out: 20, Stated: c.stated})
		if err != nil {
			t.Fatal(err)
		}
		total := &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Value: []byte(text), ModRevision: 1}}}
		w.found = purseOf(total, w.Part(), &escrow.Verdict{Cluster: 1}, c.at.UnixNano())
		var out strings.Builder
		b := w.shown()
		b.table(&out)
		said := out.String()
		if b.Elsewhere != c.elsewhere || b.Left != c.left || b.HandedOut != 20 || !strings.Contains(said, c.says) || strings.Contains(said, "Stopped") != (c.says == stop) || strings.Contains(said, "Elsewhere") != (c.elsewhere > 0) {
			t.Errorf("%+v\n%s", b, said)
		}
	}
}

// A count that is too low for a key is answered with the least. A key that an answer has stopped needs no larger limit.
func TestACountThatIsTooLowIsAnsweredWithTheLeast(t *testing.T) {
	until := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	w := &keyWindow{Budget: protocol.BudgetAt(quota.Limit{Permits: 120, Window: time.Hour}, time.UTC, until.Add(-time.Minute).UnixNano()), keyCount: keyCount{"a", 19}}
	for _, c := range []struct {
		stated escrow.Stated
		want   string
	}{
		{escrow.Stated{Left: 40, At: 20, Until: until.UnixNano()}, "give 20 or more; if the key needs more permits before 2027-01-01T12:00:00Z, give it a larger limit by quota-admin keys set"},
		{escrow.Stated{At: 20, Until: until.UnixNano()}, "give 20 or more, which ends the stop too"},
	} {
		text, err := escrow.Encode(escrow.Total{Cluster: 1, Out: 20, Stated: c.stated})
		if err != nil {
			t.Fatal(err)
		}
		total := &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Value: []byte(text), ModRevision: 1}}}
		w.found = purseOf(total, w.Part(), &escrow.Verdict{Cluster: 1}, until.Add(-time.Second).UnixNano())
		failed, _, err := correctKeys(t.Context(), nil, []*keyWindow{w})
		if len(failed) != 1 || err != nil || !strings.HasSuffix(failed[0].Error(), c.want) {
			t.Errorf("%+v: %v, %v, want %q", c.stated, failed, err, c.want)
		}
	}
}

// served returns how many permits of a key are issued until it is told that nothing is left, or that
// the rest is withheld.
func served(t *testing.T, l *consumer.Limiter, key string) (n int, why string) {
	t.Helper()
	await.Until(t, key+" is decided", func() bool {
		for l.Key(key).TryAcquire() {
			n++
		}
		err := l.Key(key).Acquire(t.Context(), 0)
		if err == nil {
			n++
			return false
		}
		why = err.Error()
		return strings.Contains(why, "the limit of 50/d is used up") || strings.Contains(why, "nothing more of")
	})
	return n, why
}

// After a restore an operator gives the counts of keys: of one, of several by a file, and of all
// others. What is withheld is said by budget, doctor, the refusal and the status.
func TestCountsOfKeysAfterARestore(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "1000/s", "--keys", "50/d", "--settle", "1s")
	if stdout, _ := b.want(exitDone, "budget", "p"); strings.Contains(stdout, "Withheld") {
		t.Errorf("a new provider: %s", stdout)
	}
	b.want(exitDone, "set", "fresh", "1000/s", "--keys", "50/d")
	if stdout, _ := b.want(exitDone, "budget", "fresh", "--keys-unused"); !strings.Contains(stdout, "quota-admin budget fresh --withhold") {
		t.Errorf("by its mark nothing is withheld of the provider, and that is not said: %s", stdout)
	}
	b.restored("p")
	l := b.join(server, "p", 1)[0]
	const way = "quota-admin budget p --key "
	n, why := served(t, l, "tenant")
	if n != 0 || !strings.Contains(why, way+"tenant --used N") {
		t.Errorf("%d permits, refused: %s", n, why)
	}
	await.Until(t, "the status says so", func() bool { return strings.Contains(l.Status().Problem, way+"tenant --used N") })
	for _, args := range [][]string{{"budget", "p"}, {"doctor"}} {
		_, stdout, _ := b.call(args...)
		if !strings.Contains(stdout, "quota-admin budget p --key KEY --used N, or --keys-file FILE; then --keys-unused") {
			t.Errorf("%q: %s", args, stdout)
		}
	}
	if stdout, _ := b.want(exitDone, "budget", "p", "--key", "one"); !strings.Contains(stdout, "0 of 50, 0 left") || !strings.Contains(stdout, "Withheld") {
		t.Errorf("%s", stdout)
	}
	if stdout, _ := b.want(exitDone, "budget", "p", "--key", "one", "--used", "47"); !strings.Contains(stdout, "47 of 50, 3 left") {
		t.Errorf("%s", stdout)
	}
	file := filepath.Join(t.TempDir(), "counts")
	if err := os.WriteFile(file, []byte("two 50\n\nwith space 1\t48\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _ := b.want(exitDone, "budget", "p", "--keys-file", file, "-o", "json")
	var got struct{ Keys []keyBudgetJSON }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Keys) != 2 || got.Keys[1].Key != "with space 1" || got.Keys[1].Left != 2 || got.Keys[1].Withheld != "" {
		t.Errorf("%s, %v", stdout, err)
	}
	for key, want := range map[string]int{"one": 3, "two": 0, "with space 1": 2, "four": 0} {
		if n, _ := served(t, l, key); n != want {
			t.Errorf("%d permits of key %s, want %d", n, key, want)
		}
	}
	b.want(exitDone, "budget", "p", "--keys-unused")
	if n, _ := served(t, l, "five"); n != 50 {
		t.Errorf("%d permits of a key that was not used, want 50", n)
	}
	if n, _ := served(t, l, "one"); n != 0 {
		t.Errorf("%d permits more of a key whose count was given", n)
	}
	if stdout, stderr := b.want(exitFailed, "budget", "p", "--key", "five", "--used", "7"); !strings.Contains(stdout, "50, 0 left") || !strings.Contains(stderr, "give 50 or more") {
		t.Errorf("a count below what was issued: %s%s", stdout, stderr)
	}
	b.want(exitDone, "budget", "p", "--withhold")
	if n, _ := served(t, l, "six"); n != 0 {
		t.Errorf("%d permits of a key that is withheld", n)
	}
}

// A count of a key that was mistyped, even above the limit, is taken back by another one, down to what etcd has handed
// out: that is never handed out again.
func TestACountOfAKeyIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"50/d", "50/h sliding"} {
		b := newBench(t, server)
		b.want(exitDone, "set", "p", "1000/s", "--keys", "14/s,"+limit, "--settle", "1s") // at most 14 are in hand
		key, issued := b.join(server, "p", 1)[0].Key("tenant"), 0
		await.Until(t, "permits of the key are issued", func() bool {
			if issued < 7 && key.TryAcquire() {
				issued++
			}
			return issued == 7
		})
		left := func(used int, want string) {
			t.Helper()
			if stdout, _ := b.want(exitDone, "budget", "p", "--key", "tenant", "--used", fmt.Sprint(used)); !strings.Contains(stdout, want+" left") || used > 7 && !strings.Contains(stdout, "used, by the provider's count, until ") {
				t.Errorf("%s, %d used: %s", limit, used, stdout)
			}
		}
		left(60, " 0")
		left(50, " 0")
		left(49, " 1")
		if _, stderr := b.want(exitFailed, "budget", "p", "--key", "tenant", "--used", "6"); !strings.Contains(stderr, " or more; if the key needs more permits before ") {
			t.Errorf("%s: fewer than are handed out: %s", limit, stderr)
		}
		left(30, " 20")
		stdout, _ := b.want(exitDone, "budget", "p", "--key", "tenant", "-o", "json")
		var got struct{ Keys []keyBudgetJSON }
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatal(err)
		}
		inHand := int(got.Keys[0].HandedOut) - issued
		rest := func(of string) (more int) {
			t.Helper()
			await.Until(t, "the rest is issued", func() bool {
				for key.TryAcquire() {
					more++
				}
				err := key.Acquire(t.Context(), 0)
				if err == nil {
					more++
				}
				return err != nil && strings.Contains(err.Error(), "the provider says that nothing more of "+of)
			})
			return more
		}
		more := rest("50/")
		// What is in hand may go back meanwhile or, of a limit that slides, at the end of its part be on its way.
		if more > 20+inHand || more < 20 && limit == "50/d" || more == 0 {
			t.Errorf("%s: %d permits after the count, want 20, and the %d in hand", limit, more, inHand)
		}
		// What a raise adds is had, though nothing was left.
		b.want(exitDone, "keys", "set", "p", "tenant", strings.Replace(strings.TrimSuffix(limit, " sliding"), "50", "80", 1))
		if more := rest("80/"); more > 30+inHand || more < 30 && limit == "50/d" || more == 0 {
			t.Errorf("%s: %d permits after a raise by 30", limit, more)
		}
	}
}

// A sliding limit of a key pauses after a restore if the key is called. An operator's word for all keys ends that pause
// for as much as is left by the total that the backup has brought, and not only for the first permits.
func TestTheWordForKeysEndsAPause(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "1000/s", "--keys", "50/h sliding", "--settle", "1s")
	k, err := keys.New(b.prefix)
	if err != nil {
		t.Fatal(err)
	}
	of := protocol.BudgetAt(quota.Limit{Permits: 50, Window: time.Hour, Sliding: true}, time.UTC, time.Now().UnixNano())
	text, err := escrow.Encode(escrow.Total{Limit: 50, Out: 44, Cluster: 1, Writes: 1, Newest: of.Part().Number, Parts: []int64{44}})
	if err != nil {
		t.Fatal(err)
	}
	b.put(etcdtest.NewClient(t, server), strings.TrimPrefix(k.BudgetOfKey("p", of.Name(), of.TotalStart(), "tenant"), b.prefix), text)
	b.restored("p")
	if n, why := served(t, b.join(server, "p", 1)[0], "tenant"); n != 0 || !strings.Contains(why, "nothing more of") {
		t.Errorf("%d permits of a total that a backup has brought: %s", n, why)
	}
	b.want(exitDone, "budget", "p", "--keys-unused")
	key, n, why := b.join(server, "p", 1)[0].Key("tenant"), 0, "" // the other instance believes for a while what it knows
	await.Until(t, "the key's permits are issued, or withheld again", func() bool {
		for key.TryAcquire() {
			n++
		}
		if err := key.Acquire(t.Context(), 0); err == nil {
			n++
		} else {
			why = err.Error()
		}
		return n >= 6 || strings.Contains(why, "nothing more of")
	})
	if n != 6 {
		t.Errorf("%d permits after the word, want 6: %s", n, why)
	}
}

// Flags and files that cannot be meant are refused before anything is written.
func TestCountsOfKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "20/s,100/h", "--keys", "50/h,500/d")
	b.want(exitDone, "set", "short", "20/s", "--keys", "5/s")
	b.want(exitDone, "set", "mixed", "20/s,100/h", "--keys", "5/s")
	b.want(exitDone, "set", "plain", "20/s")
	b.want(exitDone, "set", "long", "20/s,100/h")
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "counts")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"p --limit 50/h", "give them by --used"},
		{"p --key a --keys-unused", "do not go together"},
		{"p --keys-unused --used 3", "alone or with --key"},
		{"p --key a --used 3", "name the one that is counted by --limit"},
		{"p --key a --used -3", "must be a whole number"},
		{"p --key a --used 3 --limit h", "must be one limit"},
		{"p --key a --used 3 --limit 9/mo", "no limit of the window that --limit names, but '50/"},
		{"short --key a", "key a of short has no limit of more than a minute, and short has none either"},
		{"plain --key a", "no limit of more than a minute, for plain has no limits by key, and none of more than a minute"},
		{"long --key a", "for long has no limits by key: without --key the command shows those of the provider"},
		{"mixed --key a", "no limit of more than a minute: without --key"},
		{"p --limit 50/h --keys-file " + file(""), "has no keys"},
		{"p --limit 50/h --keys-file " + file("a\n"), "line 1"},
		{"p --limit 50/h --keys-file " + file("a 1\nb x\n"), "line 2"},
		{"p --limit 50/h --keys-file " + file("a 1\na 2\n"), "twice"},
	} {
		code, stdout, stderr := b.call(append([]string{"budget"}, strings.Fields(c.args)...)...)
		if code == exitDone || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("budget %s: exit %d, %s%s, want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}

// A count that was written since it was read is told apart, and can be given again.
func TestACountThatWasOvertakenIsGivenAgain(t *testing.T) {
	t.Parallel()
	client, ctx := etcdtest.NewClient(t, server), t.Context()
	folder := "/overtaken/" + t.Name() + "/"
	w := &keyWindow{Budget: protocol.BudgetAt(quota.Limit{Permits: 50, Window: 24 * time.Hour}, time.UTC, time.Now().UnixNano()), keyCount: keyCount{"a", 7}, path: folder + "a"}
	all := []*keyWindow{w}
	give := func() (failed []error, taken []*keyWindow) {
		t.Helper()
		failed, taken, err := correctKeys(ctx, client, all)
		if err != nil {
			t.Fatal(err)
		}
		return failed, taken
	}
	read := func() {
		t.Helper()
		if err := readKeys(ctx, client, folder+"mark", all); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if failed, taken := give(); len(failed)+len(taken) > 0 {
		t.Fatalf("%v, %v", failed, taken)
	}
	// It is read at revision 0, and is there by now.
	if failed, taken := give(); len(failed) > 0 || len(taken) != 1 || taken[0] != w {
		t.Errorf("%v, %v: want it told apart", failed, taken)
	}
	read()
	if failed, taken := give(); len(failed)+len(taken) > 0 || w.found.Left(50) != 43 {
		t.Errorf("again: %v, %v, %d are left", failed, taken, w.found.Left(50))
	}
}
