package consumer_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// labelled opens a limiter of 100/s in a bubble and waits for its first permits.
func labelled(t *testing.T, p quota.Policy, f func(t *testing.T, l *consumer.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p.Limits = []quota.Limit{{Permits: 100, Window: time.Second}}
		l, err := consumer.Open(t.Context(), consumer.Fixed(p), "p", consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(t, l)
	})
}

// wantLabels compares the counts of a limiter by label; "other" is 0 unless it is named.
func wantLabels(t *testing.T, l *consumer.Limiter, issued, refused map[string]int64) {
	t.Helper()
	st := l.Status()
	for _, c := range []struct {
		what      string
		want, got map[string]int64
	}{{"issued", issued, st.IssuedByLabel}, {"refused", refused, st.RefusedByLabel}} {
		want := map[string]int64{"other": 0}
		for name := range st.IssuedByLabel {
			want[name] = 0
		}
		maps.Copy(want, c.want)
		if diff := cmp.Diff(want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

// Every method counts issued and refused permits for the handle's label. The limiter's own
// counts do not depend on labels.
func TestEachCallCountsForItsLabel(t *testing.T) {
	labelled(t, quota.Policy{}, func(t *testing.T, l *consumer.Limiter) {
		for i, ways := range []func(l *consumer.Limiter){
			func(l *consumer.Limiter) { l.TryAcquire() },
			func(l *consumer.Limiter) { _ = l.Acquire(t.Context(), 0) },
			func(l *consumer.Limiter) { _, _ = l.Take(t.Context(), 1, time.Millisecond) },
			func(l *consumer.Limiter) { l.TryTake(1) },
			func(l *consumer.Limiter) {
				told := make(chan struct{})
				l.TakeFunc(1, time.Millisecond, func(consumer.Permit, error) { close(told) })
				<-told
			},
			func(l *consumer.Limiter) {
				_, _ = consumer.TakeAll(t.Context(), 0, map[consumer.Taker]int64{l: 1})
			},
		} {
			time.Sleep(time.Second) // a new window
			label := l.Label(fmt.Sprint("way ", i))
			ways(label.Class(consumer.Critical))
			l.TryTake(100)
			ways(label)
			st, name := l.Status(), fmt.Sprint("way ", i)
			if st.IssuedByLabel[name] != 1 || st.RefusedByLabel[name] != 1 || st.IssuedBy[consumer.Critical] != int64(i+1) {
				t.Errorf("%s: issued %d, refused %d, by class %v; want 1, 1 and %d critical", name, st.IssuedByLabel[name], st.RefusedByLabel[name], st.IssuedBy, i+1)
			}
		}
		if st := l.Status(); st.Issued != 600 || st.Refused != 6+6 {
			t.Errorf("issued %d, refused %d, not 600 and 12", st.Issued, st.Refused)
		}
	})
}

// A call that waits counts when it is served, by whatever way it waits.
func TestCallsThatWaitCountForTheirLabel(t *testing.T) {
	labelled(t, quota.Policy{}, func(t *testing.T, l *consumer.Limiter) {
		l.TryTake(100)
		a, b := l.Label("a"), l.Class(consumer.Sheddable).Label("b")
		var late consumer.Permit
		b.TakeFunc(3, forever, func(p consumer.Permit, _ error) { late = p })
		if _, err := a.Take(t.Context(), 2, forever); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		wantLabels(t, l, map[string]int64{"a": 2, "b": 3}, nil)
		if !late.Release() || l.Status().IssuedBy[consumer.Sheddable] != 0 {
			t.Error("a permit of TakeFunc is not of its class and label")
		}
		wantLabels(t, l, map[string]int64{"a": 2, "b": 0}, nil)
	})
}

// What is given back counts no more, and a cost above the permits counts at once.
func TestCostsCountForTheirLabel(t *testing.T) {
	labelled(t, quota.Policy{}, func(t *testing.T, l *consumer.Limiter) {
		a := l.Label("a")
		for _, cost := range []int64{0, 4, 30} {
			p, err := a.Take(t.Context(), 10, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Settle(cost); err != nil {
				t.Error(err)
			}
		}
		wantLabels(t, l, map[string]int64{"a": 34}, nil)
	})
}

// A key's calls count for the limiter's label, those too that the key has no permits for.
func TestKeysCountForTheirLabel(t *testing.T) {
	p := quota.Policy{}
	p.Keys.Limits = []quota.Limit{{Permits: 5, Window: time.Second}}
	labelled(t, p, func(t *testing.T, l *consumer.Limiter) {
		y := l.Label("a").Key("tenant")
		p := y.TryTake(7)
		if p.N() != 5 || y.TryAcquire() {
			t.Errorf("%d permits of 5, and then another one", p.N())
		}
		if err := y.Acquire(t.Context(), 0); !errors.Is(err, consumer.ErrLimited) {
			t.Error(err)
		}
		wantLabels(t, l, map[string]int64{"a": 5}, map[string]int64{"a": 2 + 1 + 1})
		if err := p.Settle(4); err != nil {
			t.Error(err)
		}
		if _, err := y.Take(t.Context(), 3, forever); err != nil {
			t.Error(err)
		}
		wantLabels(t, l, map[string]int64{"a": 7}, map[string]int64{"a": 4})
	})
}

// Calls of a handle whose label has no name that a label can have get ErrInvalid and count as
// nothing. Its limiter is the same.
func TestLabelsWithBadNamesAreRefused(t *testing.T) {
	p := quota.Policy{}
	p.Keys.Limits = []quota.Limit{{Permits: 5, Window: time.Second}}
	labelled(t, p, func(t *testing.T, l *consumer.Limiter) {
		for _, name := range []string{"", strings.Repeat("x", 65), "a\nb", "\xff"} {
			b := l.Label(name).Class(consumer.Critical)
			_, take := b.Take(t.Context(), 1, time.Second)
			_, byKey := b.Key("k").Take(t.Context(), 1, 0)
			told := make(chan error)
			b.TakeFunc(1, 0, func(_ consumer.Permit, err error) { told <- err })
			for _, err := range []error{take, byKey, <-told, b.Acquire(t.Context(), 0)} {
				if !errors.Is(err, consumer.ErrInvalid) || !strings.Contains(err.Error(), "label ") {
					t.Errorf("label %q: %v", name, err)
				}
			}
			if b.TryAcquire() || b.TryTake(1).N() != 0 || b.Key("k").TryAcquire() || b.Key("k").TryTake(1).N() != 0 {
				t.Errorf("label %q: a permit", name)
			}
			if !b.Label("good").TryAcquire() {
				t.Error("a good label after a bad one")
			}
		}
		if !l.Label(strings.Repeat("é", 32)).TryAcquire() {
			t.Error("64 bytes are too many")
		}
		if st := l.Status(); st.Issued != 5 || st.Refused+st.KeysRefused != 0 {
			t.Errorf("issued %d, refused %d", st.Issued, st.Refused)
		}
	})
}

// Closing a handle closes the limiter, also for handles with labels that were made before.
func TestClosingALabelClosesTheLimiter(t *testing.T) {
	labelled(t, quota.Policy{}, func(t *testing.T, l *consumer.Limiter) {
		other, err := consumer.Open(t.Context(), consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: time.Second}}}), "p", consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		a := l.Label("a")
		if err := l.Label("b").Close(); err != nil {
			t.Error(err)
		}
		if err := a.Acquire(t.Context(), forever); !errors.Is(err, consumer.ErrClosed) || l.TryAcquire() || a.Status().State != quota.StateClosed {
			t.Errorf("open: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Twenty labels are counted by name, the first ones, for as long as the limiter is open: so
// metrics have no more series, whatever names come. All later ones are "other", as is the label
// of that name.
func TestFewLabelsAreCountedByName(t *testing.T) {
	labelled(t, quota.Policy{}, func(t *testing.T, l *consumer.Limiter) {
		if st := l.Status(); st.IssuedByLabel != nil || len(st.BusiestLabels) > 0 {
			t.Errorf("labels before one is used: %v, %v", st.IssuedByLabel, st.BusiestLabels)
		}
		l.Label("other").TryAcquire()
		want := map[string]int64{"other": 3}
		for i := range 22 {
			l.Label(fmt.Sprint(i)).TryAcquire()
			if i < 20 {
				want[fmt.Sprint(i)] = 2
			}
		}
		for i := range 20 { // the order does not matter any more
			l.Label(fmt.Sprint(19 - i)).TryAcquire()
		}
		wantLabels(t, l, want, nil)
	})
}

// The labels that want most now are shown by name, however late they come, then all others
// together. Calls without a label have a row too. The rows sum to all permits.
func TestStatusHasTheBusiestLabels(t *testing.T) {
	labelled(t, quota.Policy{}, func(t *testing.T, l *consumer.Limiter) {
		for i := range 30 { // these take the counters by name
			l.Label(fmt.Sprint("early ", i)).TryAcquire()
		}
		time.Sleep(20 * time.Second)
		l.Status() // a period begins
		for range 10 {
			l.TryTake(30)
			l.Label("late").TryTake(20)
			for i := range 30 {
				l.Label(fmt.Sprintf("small %02d", i)).TryAcquire()
			}
			l.Label("late").TryTake(30) // of which 10 are refused
			time.Sleep(time.Second)
		}
		got := l.Status().BusiestLabels
		want := []consumer.Rate{{Name: "late", Issued: 40, Refused: 10}, {Name: "", Issued: 30}}
		for i := range 18 {
			want = append(want, consumer.Rate{Name: fmt.Sprintf("small %02d", i), Issued: 1})
		}
		want = append(want, consumer.Rate{Name: "other", Issued: 12})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Second)
		if got := l.Status().BusiestLabels; len(got) != 0 {
			t.Errorf("busy while nobody calls: %v", got)
		}
	})
}
