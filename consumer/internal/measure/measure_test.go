package measure

import (
	"context"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// TestAWithheldLimitIsShown: the alert needs the metric, of long windows only.
func TestAWithheldLimitIsShown(t *testing.T) {
	t.Parallel()
	s := consumer.Status{Limits: []consumer.LimitUse{
		{Limit: quota.Limit{Permits: 10, Window: time.Second}},
		{Limit: quota.Limit{Permits: 20, Window: time.Hour}, Withheld: "etcd was restored from a backup"},
		{Limit: quota.Limit{Permits: 30, Window: 24 * time.Hour}},
	}}
	got := map[string]float64{}
	for _, m := range All {
		if m.Name == "quotient_limit_withheld" {
			m.Read(&s, func(v float64, label string) { got[label] = v })
		}
	}
	if want := map[string]float64{"h": 1, "d": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestLabelsAreShown: each label of a status is a value, and before a label is used there is none.
func TestLabelsAreShown(t *testing.T) {
	t.Parallel()
	s := consumer.Status{IssuedByLabel: map[string]int64{"a": 3, "other": 4}, RefusedByLabel: map[string]int64{"a": 5, "other": 0}}
	for name, want := range map[string]map[string]float64{
		"quotient_permits_issued_by_label_total": {"a": 3, "other": 4}, "quotient_permits_refused_by_label_total": {"a": 5, "other": 0},
	} {
		got := map[string]float64{}
		for _, m := range All {
			if m.Name == name && m.Label == "label" && m.Counter() {
				m.Read(&s, func(v float64, label string) { got[label] = v })
				m.Read(&consumer.Status{}, func(v float64, label string) { t.Errorf("%s of no label: %v of %q", name, v, label) })
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestCountersDoNotFall: a counter that falls is taken for one that began again. It does begin
// again with a limiter that is opened after the last one was closed.
func TestCountersDoNotFall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var set Set
		open := func() *consumer.Limiter {
			l, err := set.Open(t.Context(), consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}), "p",
				consumer.Options{Logger: slog.New(slog.DiscardHandler)}, func(context.Context, time.Duration, string) {})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		want := func(what string, n float64) {
			t.Helper()
			set.Read(func(m *Metric, _, label string, v float64) {
				if (m.Name == "quotient_permits_issued_total" || m.Name == "quotient_permits_issued_by_class_total" && label == "default") && v != n {
					t.Errorf("%s: %s is %v, want %v", what, m.Name, v, n)
				}
			})
		}
		l := open()
		p := l.TryTake(5)
		want("five permits", 5)
		if !p.Release() {
			t.Fatal("permits did not come back")
		}
		want("given back", 5)
		l.TryTake(6)
		want("six others", 6)
		_ = l.Close()
		l = open()
		l.TryTake(1)
		want("opened again", 1)
		_ = l.Close()
		set.Read(func(m *Metric, _, _ string, _ float64) { t.Errorf("%s of a closed limiter", m.Name) })
	})
}
