package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// --limit finds a limit by its text, with or without when its windows begin or that it slides. Else the
// error names the limits that there are.
func TestOneOfSeveralLimitsIsNamed(t *testing.T) {
	t.Parallel()
	limits, err := quota.ParseLimits("5000/h sliding,10000/d@12:00,90000/mo")
	if err != nil {
		t.Fatal(err)
	}
	var all []*budgetJSON
	for _, l := range limits {
		all = append(all, &budgetJSON{Limit: l.String(), window: protocol.Budget{Limit: l}})
	}
	for limit, want := range map[string]*budgetJSON{
		"5000/h sliding": all[0], "5000/h": all[0], "10000/d@12:00": all[1], "10000/d": all[1], "90000/mo": all[2],
		"": nil, "5000": nil, "4000/h": nil, "5000/h@17m": nil, "10000/d sliding": nil, "/h": nil,
	} {
		found, err := chosenBudget(all, limit)
		if found != want || (err == nil) != (want != nil) || err != nil && !strings.Contains(err.Error(), "'5000/h sliding', '10000/d@12:00', '90000/mo'") {
			t.Errorf("%q: %+v, %v, want %+v", limit, found, err, want)
		}
	}
	if found, err := chosenBudget(all[:1], ""); found != all[0] || err != nil {
		t.Errorf("the only limit: %+v, %v", found, err)
	}
	if found, err := chosenBudget(nil, ""); found != nil || err == nil || !strings.Contains(err.Error(), "--key KEY") {
		t.Errorf("only keys have limits: %+v, %v", found, err)
	}
}

// How much of a limit that slides was used is what etcd counts less what is in hand. So nobody knows it while etcd may
// not count all, and it must not be taken for a count to give. Of other limits the instances say it.
func TestWhatWasUsedIsNotKnownWhereEtcdMayNotCountIt(t *testing.T) {
	t.Parallel()
	for limit, withheld := range map[string][2]string{"5000/h sliding": {"4711", "not known"}, "5000/h": {"4711", "4711"}} {
		limits, err := quota.ParseLimits(limit)
		if err != nil {
			t.Fatal(err)
		}
		for i, why := range []string{"", "etcd was restored"} {
			var out strings.Builder
			b := budgetJSON{Limit: limit, Used: 4711, Withheld: why, window: protocol.Budget{Limit: limits[0]}}
			b.table(&out)
			if fields := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(fields, "Used "+withheld[i]) {
				t.Errorf("%s, withheld %q: %s", limit, why, out.String())
			}
		}
	}
}

// What the provider's answer says was used elsewhere is shown of its own limits as of a key's, and so is a stop by an answer
// that names no limit. A count ends both.
func TestABudgetSaysWhatWasUsedElsewhere(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"50/d", "50/h sliding"} {
		b := newBench(t, server)
		b.want(exitDone, "set", "p", limit, "--settle", "1s")
		l := b.join(server, "p", 1)[0]
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		for _, c := range []struct {
			of, left      int64
			says, saysNot string
		}{
			{50, 10, "used, by the provider's count, until " + until.Format(time.RFC3339), "Stopped"},
			{0, 0, "nothing more until " + until.Format(time.RFC3339) + ", by an answer that named no limit, such as one with Retry-After; to end it sooner give the provider's count by --used N", "Elsewhere"},
		} {
			l.Stated(c.of, c.left, until)
			var stdout string
			await.Until(t, limit+": budget says "+c.says, func() bool {
				stdout, _ = b.want(exitDone, "budget", "p")
				return strings.Contains(stdout, c.says)
			})
			if strings.Contains(stdout, c.saysNot) {
				t.Errorf("%s: %s", limit, stdout)
			}
			stdout, _ = b.want(exitDone, "budget", "p", "-o", "json")
			var got struct{ Budgets []budgetJSON }
			if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Budgets) != 1 || !got.Budgets[0].StatedUntil.Equal(until) {
				t.Fatalf("%s: %s, %v", limit, stdout, err)
			}
			if a := got.Budgets[0]; c.of > 0 && a.HandedOut+a.Left+a.Elsewhere != 50 || c.of == 0 && a.Elsewhere != 0 {
				t.Errorf("%s: %s", limit, stdout)
			}
		}
		if stdout, _ := b.want(exitDone, "budget", "p", "--used", "20"); strings.Contains(stdout, "Stopped") || strings.Contains(stdout, "Elsewhere") {
			t.Errorf("%s: after a count: %s", limit, stdout)
		}
	}
}
