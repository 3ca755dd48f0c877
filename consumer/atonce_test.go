package consumer_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

// A call that cannot be served by its deadline, unless something is changed, is refused at once: while the provider is
// paused, by whomever, and before a policy begins. So is one of an instance that joins and to which nobody lends. If
// others may lend it waits until its deadline.
func TestWhoCannotBeServedIsToldAtOnce(t *testing.T) {
	t.Parallel()
	const patience, pause = 1500 * time.Millisecond, 20 * time.Second
	for _, c := range []struct {
		what  string
		lends bool // also plays where nothing is lent
		waits bool // until its deadline
		known bool // when it is worth trying again
	}{
		{"paused", false, false, false},
		{"paused", true, false, false},
		{"a 429", false, false, true},
		{"a 429", true, false, true},
		{"PauseUntil", true, false, true},
		{"begins later", false, false, true},
		{"begins later", true, false, true},
		{"joins", false, false, true},
		{"joins", true, true, true},
	} {
		t.Run(fmt.Sprintf("%s, lends %v", c.what, c.lends), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 5, Window: time.Second}}}}
				if !c.lends {
					p.Lend = "off"
				}
				if c.what == "begins later" {
					p.From = time.Now().Add(pause)
				}
				fleet, err := limittest.New(p, 3)
				if err != nil {
					t.Fatal(err)
				}
				i := fleet.Instances()[0]
				if c.what == "joins" {
					i = fleet.Join()
				} else {
					time.Sleep(8 * time.Second)
				}
				l, err := consumer.Open(t.Context(), i, "p", consumer.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				switch c.what {
				case "paused":
					paused := p
					paused.Mode = quota.ModePause
					if err := fleet.Set(paused); err != nil {
						t.Fatal(err)
					}
				case "a 429":
					l.Throttled(pause, "it is busy")
				case "PauseUntil":
					l.PauseUntil(time.Now().Add(pause))
				}
				synctest.Wait()
				for name, acquire := range map[string]func() error{
					"Acquire":     func() error { return l.Acquire(t.Context(), patience) },
					"Key.Acquire": func() error { return l.Key("k").Acquire(t.Context(), patience) },
				} {
					began := time.Now()
					err := acquire()
					var refusal consumer.LimitError
					if took := time.Since(began); !errors.As(err, &refusal) || took > 0 != c.waits || took > patience {
						t.Errorf("%s: %v after %v", name, err, took)
					}
					if again := refusal.RetryAt; again.IsZero() == c.known || time.Until(again) > 2*pause {
						t.Errorf("%s: %v, to be tried again at %v", name, err, again)
					}
				}
				if c.what == "paused" {
					time.AfterFunc(pause, func() { _ = fleet.Set(p) })
				}
				began := time.Now()
				if err := l.Acquire(t.Context(), consumer.Forever); err != nil {
					t.Errorf("%v after %v, though it waits for as long as it takes", err, time.Since(began))
				}
			})
		})
	}
}
