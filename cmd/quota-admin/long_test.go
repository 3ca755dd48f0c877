package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

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
		if text := stdout + stderr; strings.Contains(text, "000000000000") || strings.Contains(text, "e+1") || !strings.Contains(text, "/h") && !strings.Contains(args, "doctor") {
			t.Errorf("quota-admin %s:\n%s", args, text)
		}
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
		stdout, _ := b.want(exitDone, append(strings.Fields(args), "-o", "json")...)
		if !strings.Contains(stdout, `"exhausted":`) {
			t.Errorf("%s -o json: %s", args, stdout)
		}
	}
}
