package consumer

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// While etcd is away the log says what goes on by each kind of limit, those of keys included.
func TestALogWhileEtcdIsAway(t *testing.T) {
	const rule = " (outage rule hold); quota-admin doctor finds the cause"
	for _, c := range []struct{ limits, keys, want string }{
		{"5 inflight hold=10m", "", "no call begins until etcd answers" + rule},
		{"20/h", "", "the limiter issues what is in hand, and no more" + rule},
		{"20/s,100/h", "", "the limiter goes on with its share for as long as that lasts, but of limits above a minute it issues what is in hand, and no more" + rule},
		{"20/s", "14/s,5000/h sliding", "the limiter goes on with its share for as long as that lasts, but of limits above a minute it issues what is in hand, and no more" + rule},
		{"20/s", "14/s", "the limiter goes on with its share for as long as that lasts" + rule},
	} {
		synctest.Test(t, func(t *testing.T) {
			var text bytes.Buffer
			s := &stub{clock: clock.New()}
			l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
			policy := policyOf(t, c.limits)
			if c.keys != "" {
				policy.Keys.Limits = policyOf(t, c.keys).Limits
			}
			s.tell(1, withDefaults(policy), 2)
			time.Sleep(4 * time.Second)
			s.prove() // it has a share
			time.Sleep(10 * time.Second)
			l.core.Report(s.clock.Now())
			if !strings.Contains(text.String(), `do="`+c.want+`"`) {
				t.Errorf("%s: %s", c.limits, text.String())
			}
		})
	}
}

// While etcd refuses, the log does not say that the limiter goes on, nor that to wait helps: it says what does.
func TestALogWhileEtcdRefuses(t *testing.T) {
	for _, outage := range []quota.Outage{quota.OutageHold, quota.OutageStop} {
		synctest.Test(t, func(t *testing.T) {
			var text bytes.Buffer
			s := &stub{clock: clock.New()}
			l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
			p := policyOf(t, "20/s")
			p.Outage = outage
			s.tell(1, withDefaults(p), 2)
			time.Sleep(4 * time.Second)
			s.prove() // it has a share
			s.sink.Trouble(fmt.Errorf("watch: %w", cause.ErrDenied))
			time.Sleep(10 * time.Second)
			l.core.Report(s.clock.Now())
			s.tell(2, withDefaults(p), 2) // it has started over
			l.core.Report(s.clock.Now())
			for _, state := range []string{"stale", "joining"} {
				if !strings.Contains(text.String(), "limiter is "+state) {
					t.Errorf("%s: not %s: %s", outage, state, text.String())
				}
			}
			if strings.Count(text.String(), "problem=") != strings.Count(text.String(), `do="quota-admin roles consumer p --to USER grants it"`) {
				t.Errorf("%s: %s", outage, text.String())
			}
		})
	}
}

// While etcd is away the log says in how many places calls begin, and until when: to the end of the part of time in which
// they were taken, whether they are free at present or not. If that has passed it names no instant.
func TestALogOfPlacesWhileEtcdIsAway(t *testing.T) {
	for _, passed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var text bytes.Buffer
			bank, sinks, all := longFleet(t, withDefaults(policyOf(t, "8 inflight hold=10m")), "a", "b")
			l := all[0]
			l.core.options.Store(&Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
			var had Permit
			for had = l.TryTake(1); had.N() == 0; had = l.TryTake(1) {
				sinks[0].prove()
				time.Sleep(time.Second)
				bank.serve(sinks...)
			}
			part, places := l.Status().Shortest(), 1
			for l.TryTake(1).N() > 0 {
				places++
			}
			want := fmt.Sprintf("calls begin until %s, at most %d at once, then none (outage rule hold)", part.End.UTC().Format("15:04:05.000 UTC"), places)
			if passed {
				time.Sleep(time.Until(part.End))
				want = "no call begins until etcd answers (outage rule hold)"
			} else {
				time.Sleep(10 * time.Second)
			}
			l.core.Report(sinks[0].clock.Now())
			if !strings.Contains(text.String(), `do="`+want) {
				t.Errorf("passed %v: %s\nwant %s", passed, text.String(), want)
			}
			had.Done()
			if again := l.TryTake(1).N() == 1; again == passed {
				t.Errorf("passed %v: a call begins: %v", passed, again)
			}
		})
	}
}
