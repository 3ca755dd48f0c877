package worker

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/show"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// modelLimiter issues its share of each second, by its own clock, and labels
// permits with that second. Mutants change one of the three.
type modelLimiter struct {
	share int64
	clock func(now time.Time) int64
	// label is the window that a permit of the second w tells.
	label func(w quota.Window, now time.Time) (start, until int64)

	mu     sync.Mutex
	issued map[int64]int64
}

var errSpent = errors.New("spent")

func (m *modelLimiter) take() (permit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	w := quota.WindowAt(time.Second, m.clock(now))
	start, until := m.label(w, now)
	if m.issued[start] >= m.share {
		return permit{}, errSpent
	}
	m.issued[start]++
	return permit{start, until}, nil
}

func (m *modelLimiter) wait(maxWait time.Duration, f func(permit, error)) {
	go func() {
		for end := time.Now().Add(maxWait); ; time.Sleep(time.Millisecond) {
			if p, err := m.take(); err == nil || !time.Now().Before(end) {
				f(p, err)
				return
			}
		}
	}()
}

// The judge finds each mistake in what a limiter tells of its permits, by its own
// clock, though no window that is told has a permit too many; and none where there
// is none. The clock is that of the bubble.
func TestTheJudgeFindsWrongClocksAndLabels(t *testing.T) {
	const share, instances, seconds = 50, 4, 10
	right := func(now time.Time) int64 { return now.UnixNano() }
	honest := func(w quota.Window, _ time.Time) (start, until int64) { return w.Start(), w.End() }
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of every bubble
	fast := func(percent int64) func(time.Time) int64 {
		return func(now time.Time) int64 { return now.UnixNano() + now.Sub(began).Nanoseconds()*percent/100 }
	}
	apart := func(by time.Duration) func(time.Time) int64 {
		return func(now time.Time) int64 { return now.Add(by).UnixNano() }
	}
	for _, c := range []struct {
		name  string
		clock func(time.Time) int64
		label func(quota.Window, time.Time) (start, until int64)
		want  load.Verdict
		says  string
	}{
		{"honest", right, honest, load.Held, "none over its limit\n"},
		{"a clock that errs by what it may", apart(49 * ms), honest, load.Held, "none over its limit"},
		{"a clock that errs so the other way", apart(-49 * ms), honest, load.Held, "none over its limit"},
		{"a clock 1.5 times too fast", fast(50), honest, load.NotHeld, "came outside their windows"},
		{"a clock 2% too fast", fast(2), honest, load.NotHeld, "came outside their windows"},
		{"a clock half as fast", fast(-50), honest, load.NotHeld, "came outside their windows"},
		{"a clock that is ahead by 150 ms", apart(150 * ms), honest, load.NotHeld, "by up to 10"},
		{"a clock that is behind by 150 ms", apart(-150 * ms), honest, load.NotHeld, "by up to 9"},
		{"windows that flip 100 ms late", right, func(w quota.Window, now time.Time) (start, until int64) {
			return honest(quota.WindowAt(time.Second, now.Add(-100*ms).UnixNano()), now)
		}, load.NotHeld, "came outside their windows"},
		{"a label that is one window ahead", right, func(w quota.Window, _ time.Time) (start, until int64) {
			return w.End(), w.End() + int64(time.Second)
		}, load.NotHeld, "by up to 9"},
		{"windows of half the length", right, func(w quota.Window, now time.Time) (start, until int64) {
			half := quota.WindowAt(time.Second/2, now.UnixNano())
			return half.Start(), half.End()
		}, load.NotHeld, "of"},
		{"windows of half the length, told as whole ones", right, func(w quota.Window, now time.Time) (start, until int64) {
			start = quota.WindowAt(time.Second/2, now.UnixNano()).Start()
			return start, start + int64(time.Second)
		}, load.NotHeld, "of"},
		{"a label without an end", right, func(w quota.Window, _ time.Time) (start, until int64) {
			return w.Start(), w.Start()
		}, load.NotHeld, "came outside their windows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var limiters []limiter
				for range instances {
					limiters = append(limiters, &modelLimiter{share: share, clock: c.clock, label: c.label, issued: map[int64]int64{}})
				}
				s, windows, verdict := judged(t, instances*share, seconds*time.Second, limiters)
				var b strings.Builder
				show.Verdict(&b, verdict, windows, &s)
				if verdict != c.want || !strings.Contains(b.String(), c.says) {
					t.Errorf("%s%+v", b.String(), s)
				}
			})
		})
	}
}

// judged lets one generator make calls on limiters that share permits a second, and
// returns what the judge makes of that.
func judged(t *testing.T, permits int64, measure time.Duration, limiters []limiter) (load.Summary, []load.Window, load.Verdict) {
	limits := []quota.Limit{{Permits: permits, Window: time.Second}}
	s := sharedOf(t, fmt.Sprintf("--limit %v --instances %d", limits[0], len(limiters)))
	g := s.generator()
	for i, l := range limiters {
		g.add(&member{limiter: l, calls: load.NewProcess(load.Steady, 1, i, len(limiters)), part: 1 / float64(len(limiters))})
	}
	start := quota.WindowAt(time.Second, time.Now().UnixNano()).End()
	end := start + int64(measure)
	s.stop.Store(end)
	g.run()
	time.Sleep(s.c.MaxWait + time.Second) // in the bubble: until everybody who waits has an answer
	run := load.Run{
		Counts: g.tally.Counts(), Fleet: len(limiters), Active: start, Start: start, End: end,
		Own:      load.Own{Came: g.came.Counts(), Cell: config.Bucket, Misplaced: g.misplaced.Counts(), Worst: time.Duration(g.worst.Load()), Tolerance: s.placing.Tolerance},
		Timeline: load.Timeline{Settle: quota.DefaultSettle, Changes: []load.Change{{Limits: limits}}},
	}
	windows, summary, verdict := load.Judge(run)
	return summary, windows, verdict
}
