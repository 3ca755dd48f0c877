package worker

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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
				r := judged(t, instances*share, seconds*time.Second, limiters, "")
				var b strings.Builder
				show.Verdict(&b, r)
				if r.Verdict != c.want || !strings.Contains(b.String(), c.says) {
					t.Errorf("%s%+v", b.String(), r.Summary)
				}
			})
		})
	}
}

// lateLimiter gives every second permit of its share 600 ms after it has labelled it.
type lateLimiter struct {
	modelLimiter
	asked atomic.Int64
}

func (l *lateLimiter) take() (permit, error) {
	if l.asked.Add(1)%2 == 0 {
		return permit{}, errSpent
	}
	return l.modelLimiter.take()
}

func (l *lateLimiter) wait(_ time.Duration, f func(permit, error)) {
	p, err := l.modelLimiter.take()
	if err != nil {
		f(permit{}, err)
		return
	}
	time.AfterFunc(600*ms, func() { f(p, nil) })
}

// A fleet that issues nothing, or little, exceeds no limit, and permits that come late hide
// what was issued when: none of these is HELD.
func TestTheJudgeFindsWhatExceedsNothing(t *testing.T) {
	const instances = 4
	model := func(share int64) *modelLimiter {
		return &modelLimiter{share: share, clock: func(now time.Time) int64 { return now.UnixNano() },
			label: func(w quota.Window, _ time.Time) (start, until int64) { return w.Start(), w.End() }, issued: map[int64]int64{}}
	}
	for _, c := range []struct {
		name    string
		limiter func() limiter
		wait    string
		want    load.Verdict
		says    string
	}{
		{"honest", func() limiter { return model(50) }, "100ms", load.Held, "\nUSED: 100.00% of the 2,000 permits that were due; in the worst window 100.00%\n"},
		{"nothing", func() limiter { return model(0) }, "0", load.Unused, "UNUSED: no permit was issued in 10 whole windows, though 2,000 were due: "},
		{"a tenth", func() limiter { return model(5) }, "0", load.Underused, "\nUSED: 10.00% of the 2,000 permits that were due, less than the 90% of --least-use; in the worst window 10.00%\n"},
		{"half of all 600 ms late", func() limiter {
			return &lateLimiter{modelLimiter: modelLimiter{share: 50, clock: model(0).clock, label: model(0).label, issued: map[int64]int64{}}}
		},
			"1s", load.Unknown, " permits were held up, so that they cannot be placed; issued as they came, a window has up to "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var limiters []limiter
				for range instances {
					limiters = append(limiters, c.limiter())
				}
				r := judged(t, instances*50, 10*time.Second, limiters, "--least-use 90 --max-wait "+c.wait)
				var b strings.Builder
				show.Verdict(&b, r)
				if r.Verdict != c.want || !strings.Contains(b.String(), c.says) {
					t.Errorf("%q, %s%+v", r.Verdict, b.String(), r.Summary)
				}
			})
		})
	}
}

// judged lets one generator make calls on limiters that share permits a second, and
// returns what the judge makes of that.
func judged(t *testing.T, permits int64, measure time.Duration, limiters []limiter, flags string) *load.Report {
	limits := []quota.Limit{{Permits: permits, Window: time.Second}}
	s := sharedOf(t, fmt.Sprintf("--limit %v --instances %d %s", limits[0], len(limiters), flags))
	g := s.generator()
	for i, l := range limiters {
		g.add(&member{limiter: l, calls: load.NewProcess(load.Steady, 1, i, len(limiters)), slot: i})
	}
	start := quota.WindowAt(time.Second, time.Now().UnixNano()).End()
	end := start + int64(measure)
	s.stop.Store(end)
	g.run()
	time.Sleep(s.c.MaxWait + time.Second) // in the bubble: until everybody who waits has an answer
	run := load.Run{
		Counts: g.tally.Counts(), Fleet: len(limiters), Servers: int64(len(limiters)), LeastUse: s.c.LeastUse / 100, Active: start, Start: start, End: end,
		Own:      load.Own{Came: g.came.Counts(), Cell: config.Bucket, Misplaced: g.misplaced.Counts(), Worst: time.Duration(g.worst.Load()), Tolerance: s.placing.Tolerance},
		Timeline: load.Timeline{Settle: quota.DefaultSettle, Changes: []load.Change{{Limits: limits}}},
	}
	run.Serving.Record(start, len(limiters), time.Second)
	r := &load.Report{LeastUse: run.LeastUse}
	r.Windows, r.Summary, r.Verdict = load.Judge(run)
	return r
}
