package live_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// Instances take permits of keys' long limits from a real etcd: all of each, and no more, also of
// one who leaves. A restored store hands nothing more out.
func TestLongLimitsByKey(t *testing.T) {
	t.Parallel()
	p := exact(t, "3000/200ms", 500*ms)
	p.Keys = quota.Keys{Limits: []quota.Limit{{Permits: 30, Window: 24 * time.Hour}}}
	if time.Now().UTC().Hour() == 23 {
		p.Zone = "Etc/GMT+9"
	}
	store, client := newBackups(t)
	g := newGroup(t, client, p)
	all := g.join(3)
	for _, m := range all {
		m.stop() // keys are the load
	}
	issued := map[string]int{}
	const keys = 100
	use := func(m *member, most int) {
		for i := range keys {
			name := fmt.Sprint("tenant-", i)
			for range most {
				if m.limiter.Key(name).TryAcquire() {
					issued[name]++
				}
			}
		}
	}
	full := func(permits int) func() bool {
		return func() bool {
			for i := range keys {
				if issued[fmt.Sprint("tenant-", i)] != permits {
					return false
				}
			}
			return true
		}
	}
	g.await("each key has some", func() bool {
		use(all[0], 1)
		use(all[1], 1)
		return issued["tenant-99"] > 2 && issued["tenant-0"] > 2
	})
	if err := all[0].session.Shutdown(t.Context()); err != nil { // with permits in hand
		t.Fatal(err)
	}
	g.await("each key has all of its limit", func() bool { use(all[1], 2); use(all[2], 2); return full(30)() })
	for range 20 {
		use(all[1], 2)
		use(all[2], 2)
	}
	if !full(30)() {
		t.Errorf("%v", issued)
	}
	store.save("used")
	g.await("a new key has some", func() bool { return all[1].limiter.Key("new").TryAcquire() })
	taken := all[1].limiter.Key("new").Limits()
	store.restore("used")
	g.await("a key that is unknown to the restored store is withheld", func() bool {
		var limited consumer.LimitError
		for all[1].limiter.Key("new").TryAcquire() {
		}
		err := all[1].limiter.Key("new").Acquire(t.Context(), 0)
		return errors.As(err, &limited) && limited.Cause != nil && limited.Remaining == 0 && !limited.Taking
	})
	if len(taken) != 1 || taken[0].Limit.Permits != 30 {
		t.Errorf("%+v", taken)
	}
}

// What a key has used counts on where an operator gives it another length of a window, and where he takes that back: all
// of each limit is used, and no more. Other keys have theirs.
func TestAnOverrideOfAKeyCountsOn(t *testing.T) {
	t.Parallel()
	p := exact(t, "3000/200ms", 500*ms)
	p.Keys = quota.Keys{Limits: []quota.Limit{{Permits: 30, Window: 24 * time.Hour}}}
	if time.Now().UTC().Hour() == 23 {
		p.Zone = "Etc/GMT+9"
	}
	g := newGroup(t, etcdtest.NewClient(t, server), p)
	all := g.join(2)
	g.ready(all...)
	for _, m := range all {
		m.stop() // keys are the load
	}
	issued := map[string]int{}
	use := func(key string) int {
		for _, m := range all {
			for range 3 {
				if m.limiter.Key(key).TryAcquire() {
					issued[key]++
				}
			}
		}
		return issued[key]
	}
	override := func(text string) {
		t.Helper()
		var own *protocol.Override
		want := p.Keys.Limits
		if text != "" {
			var err error
			if own, err = protocol.ParseOverride(text); err != nil {
				t.Fatal(err)
			}
			want = own.Limits
		}
		if _, err := feed.Inside(g.admin).SetOverrides(t.Context(), provider, "", func(protocol.KeyOverrides) (map[string]*protocol.Override, error) {
			return map[string]*protocol.Override{"tenant": own}, nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			g.await("an instance hears of the override", func() bool {
				is := m.limiter.Key("tenant").Limits()
				return len(is) == 1 && is[0].Limit == want[0]
			})
		}
	}
	spent := func() bool {
		for _, m := range all {
			var limited consumer.LimitError
			if err := m.limiter.Key("tenant").Acquire(t.Context(), 0); !errors.As(err, &limited) || limited.Taking || limited.Remaining != 0 {
				if err == nil {
					issued["tenant"]++
				}
				return false
			}
		}
		return true
	}
	for _, step := range []struct {
		override string
		most     int
	}{{"", 30}, {"45/mo", 45}, {"", 45}, {"50/d", 50}, {"40/mo", 50}, {"", 50}} {
		if step.most > 30 {
			override(step.override)
		}
		g.await(fmt.Sprintf("%q: nothing is left", step.override), func() bool { return use("tenant") >= step.most && spent() })
		if n := issued["tenant"]; n != step.most {
			t.Fatalf("%q: %d are issued, want %d", step.override, n, step.most)
		}
	}
	g.await("another key has all of its limit", func() bool { return use("another") >= 30 })
	if n := use("another"); n > 30 {
		t.Errorf("another key has %d of 30", n)
	}
}

// A program's first call, for a key, right after Open, waits until etcd has told the limits and the share has
// settled.
func TestTheFirstCallIsForAKey(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]quota.Limit{
		"short": {Permits: 80, Window: time.Second},
		"long":  {Permits: 2500, Window: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := exact(t, "3000/200ms", 500*ms)
			p.Keys = quota.Keys{Limits: []quota.Limit{limit}}
			g := newGroup(t, etcdtest.NewClient(t, server), p)
			g.ready(g.join(1)...)
			session, err := coordinator.Join(t.Context(), g.client, coordinator.Options{Prefix: g.prefix, Logger: quiet, TTL: g.ttl})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			limiter, err := consumer.Open(t.Context(), g.trace.Wrap(session), provider, consumer.Options{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := limiter.Key("tenant").Acquire(ctx, consumer.Forever); err != nil {
				t.Error(err)
			}
		})
	}
}
