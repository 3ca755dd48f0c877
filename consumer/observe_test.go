package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// Whatever the instant of a report, two of them tell what whole windows got.
func TestReportsTellWholeWindows(t *testing.T) {
	bubble(t, "10/s", Options{}, func(t *testing.T, _ context.Context, _ *FixedSource, l *Limiter) {
		report := func() protocol.Report { return l.core.Report(l.core.clock.Now()) }
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		begin := report()
		for range 7 {
			l.TryAcquire()
		}
		if r := report(); r.UsedBefore != begin.UsedBefore || r.Used != begin.Used+7 || !r.WindowStart.Equal(begin.WindowStart) {
			t.Errorf("within the window: %+v, after %+v", r, begin)
		}
		time.Sleep(1300 * time.Millisecond)
		l.TryTake(3).N()
		r := report()
		if r.UsedBefore != begin.UsedBefore+7 || r.Used != begin.Used+10 || !r.WindowStart.Equal(begin.WindowStart.Add(time.Second)) {
			t.Errorf("in the next window: %+v, after %+v", r, begin)
		}
	})
}

func TestRefusalsAreCountedByReason(t *testing.T) {
	bubble(t, "2/s", Options{MaxWaiters: 1}, func(t *testing.T, ctx context.Context, source *FixedSource, l *Limiter) {
		expect := func(want map[Reason]int64) {
			t.Helper()
			st := l.Status()
			got := maps.Clone(st.RefusedBy)
			maps.DeleteFunc(got, func(_ Reason, n int64) bool { return n == 0 })
			if diff := cmp.Diff(want, got); diff != "" || len(st.RefusedBy) != len(reasons) {
				t.Error(diff)
			}
			var sum int64
			for _, n := range want {
				sum += n
			}
			if st.Refused != sum {
				t.Errorf("refused %d in all, want %d", st.Refused, sum)
			}
		}
		expect(map[Reason]int64{})
		if got := l.TryTake(5).N(); got != 2 {
			t.Fatalf("took %d", got)
		}
		l.TryAcquire()
		_ = l.Acquire(ctx, 0)
		want := map[Reason]int64{ReasonSpent: 3 + 1 + 1}
		expect(want)

		_ = take(ctx, l, 3, time.Minute) // more than the limit: a mistake
		_ = take(ctx, l, 1e9, 0)
		if n := l.Status().Impossible; n != 2 {
			t.Errorf("%d calls for more than the limit, want 2", n)
		}
		expect(want)

		w := l.TakeFunc(1, Forever, func(Permit, error) {})
		_ = l.Acquire(ctx, Forever)
		w.Stop()
		want[ReasonQueueFull] = 1
		expect(want)

		l.PauseUntil(time.Now().Add(time.Minute))
		l.TryAcquire()
		want[ReasonPause] = 1
		expect(want)
		l.Resume()

		p := policyOf(t, "2/s")
		p.Mode = quota.ModePause
		if err := source.Set(p); err != nil {
			t.Fatal(err)
		}
		_ = l.Acquire(ctx, 0)
		want[ReasonPaused] = 1
		expect(want)
	})
}

// The check of what is issued counts nothing where shares shrink below what was
// issued under a larger one.
func TestBeyondIsZero(t *testing.T) {
	bubble(t, "10/s,15/2s", Options{}, func(t *testing.T, ctx context.Context, source *FixedSource, l *Limiter) {
		if l.TryTake(8).N() != 8 {
			t.Fatal("no permits")
		}
		if err := source.Set(policyOf(t, "3/s,15/2s")); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			p, err := l.Take(ctx, 2, Forever)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
			if err := l.Acquire(ctx, Forever); err != nil {
				t.Fatal(err)
			}
		}
		if st := l.Status(); st.OverIssued != 0 || st.Issued != 28 {
			t.Errorf("issued %d, beyond %d", st.Issued, st.OverIssued)
		}
	})
}

func TestWaitedTellsOfThoseWhoWaited(t *testing.T) {
	type wait struct {
		ctx context.Context
		d   time.Duration
		err error
	}
	var waits []wait
	o := Options{OnWait: func(ctx context.Context, d time.Duration, err error) {
		waits = append(waits, wait{ctx, d, err})
	}}
	bubble(t, "1/s", o, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		_ = l.Acquire(ctx, Forever) // at once
		_ = l.Acquire(ctx, 0)       // refused at once
		done := make(chan struct{}, 1)
		call := func(Permit, error) { done <- struct{}{} }
		time.Sleep(200 * time.Millisecond)
		_ = l.Acquire(ctx, Forever)
		l.TakeFunc(1, Forever, call) // waits a whole window
		<-done
		c, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_ = l.Acquire(c, Forever)        // refused at once: the next window comes later
		l.TakeFunc(1, time.Second, call) // the next window
		<-done
		time.Sleep(1500 * time.Millisecond)
		l.TakeFunc(1, Forever, call) // at once
		<-done
		c, cancel = context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, cancel)
		_ = l.Acquire(c, Forever) // gives up
		synctest.Wait()
		none := context.Background()
		want := []wait{
			{ctx, 800 * time.Millisecond, nil}, {none, time.Second, nil}, {none, time.Second, nil}, {c, 100 * time.Millisecond, context.Canceled},
		}
		if len(waits) != len(want) {
			t.Fatalf("told of %v, want %v", waits, want)
		}
		for i := range want {
			if waits[i].ctx != want[i].ctx || waits[i].d != want[i].d || !errors.Is(waits[i].err, want[i].err) {
				t.Errorf("told of %v, want %v", waits[i], want[i])
			}
		}
	})
}

// Each limiter's OnWait is told of its own callers, though both are closures of one
// literal; the other options are those of the first Open.
func TestASecondOpenKeepsItsOnWait(t *testing.T) {
	waits := map[string]int{}
	counts := func(who string) Options {
		return Options{OnWait: func(context.Context, time.Duration, error) { waits[who]++ }}
	}
	first := counts("first")
	first.MaxWaiters, first.Logger = 7, quiet
	bubble(t, "1/s", first, func(t *testing.T, ctx context.Context, source *FixedSource, l *Limiter) {
		second, err := Open(ctx, source, "p", counts("second"))
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		if got := l.core.options.Load(); got.MaxWaiters != 7 || got.Logger != quiet {
			t.Errorf("%+v is in force", got)
		}
		for _, o := range []Options{{MaxWaiters: 8}, {Logger: slog.Default()}} {
			if _, err := Open(ctx, source, "p", o); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "leave it out") {
				t.Errorf("%+v: %v", o, err)
			}
		}
		for _, limiter := range []*Limiter{l, second, second} {
			if err := limiter.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if waits["first"] != 0 || waits["second"] != 2 { // the first was served immediately
			t.Errorf("told: %v", waits)
		}
	})
}

func TestLimitsTellEachWindow(t *testing.T) {
	bubble(t, "5/2s,2/500ms", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		begin := time.Now()
		for range 3 {
			if err := l.Acquire(ctx, Forever); err != nil {
				t.Fatal(err)
			}
		}
		l.TryTake(1).N()
		half := begin.Add(500 * time.Millisecond)
		want := []LimitUse{
			{quota.Limit{Permits: 2, Window: 500 * time.Millisecond}, 2, 2, 0, half, half.Add(500 * time.Millisecond), 0, 0, ""},
			{quota.Limit{Permits: 5, Window: 2 * time.Second}, 5, 4, 1, begin, begin.Add(2 * time.Second), 0, 0, ""},
		}
		if diff := cmp.Diff(want, l.Status().Limits); diff != "" {
			t.Error(diff)
		}
	})
}

// A limiter that flaps logs a few lines, says how many it kept back, and always
// ends with the state in which it stays.
func TestStateLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		drop := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: drop}))
		l, err := Open(t.Context(), Fixed(policyOf(t, "7/s")), "p", Options{Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for range 50 {
			l.PauseUntil(time.Now().Add(time.Hour))
			l.Resume()
		}
		if n := strings.Count(text.String(), "\n"); n != stateLines {
			t.Errorf("%d lines, want %d:\n%s", n, stateLines, text.String())
		}
		first, _, _ := strings.Cut(text.String(), "\n")
		if want := `level=INFO msg="limiter is active" provider=p was=joining total=7 share=7 instances=1 revision=1`; first != want {
			t.Errorf("got  %s\nwant %s", first, want)
		}
		text.Reset()
		time.Sleep(stateSpan)
		l.PauseUntil(time.Now().Add(time.Hour))
		l.core.Report(l.core.clock.Now())
		want := `level=INFO msg="limiter is pausing" provider=p was=active total=7 share=7 instances=1 revision=1 ` +
			`problem="this program paused the limiter until 01:00:10 UTC" ` +
			`do="nothing; the program's Resume ends it before" changes_not_logged=96` + "\n"
		if text.String() != want {
			t.Errorf("got  %swant %s", text.String(), want)
		}
		if n := l.Status().StateChanges; n != 102 {
			t.Errorf("%d changes, want 102", n)
		}
	})
}

// Calls that can never be served do not count as refused.
func TestImpossibleCallsAreNoRefusals(t *testing.T) {
	bubble(t, "1000/s", Options{}, func(t *testing.T, ctx context.Context, _ *FixedSource, l *Limiter) {
		for range 12 {
			_ = take(ctx, l, 1e9, time.Second)
			time.Sleep(time.Second)
			if r := l.core.Report(l.core.clock.Now()); r.Refused != 0 {
				t.Fatalf("%d refused", r.Refused)
			}
		}
	})
}

// In shadow mode such calls pass, and do not count as shadowed.
func TestImpossibleCallsInShadowModeAreNoRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf(t, "1000/s")
		p.Mode = quota.ModeShadow
		l := open(t, Fixed(p), Options{})
		for range 12 {
			if err := take(t.Context(), l, 1e9, time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if r := l.core.Report(l.core.clock.Now()); r.Shadowed != 0 {
				t.Fatalf("%d shadowed", r.Shadowed)
			}
		}
		if n := l.Status().Impossible; n != 12 {
			t.Errorf("%d impossible calls", n)
		}
	})
}

// A line of the log with a part of the total missing says for whom it is held, and until when.
func TestTheLogSaysForWhomPermitsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := &stub{clock: clock.New()}
		l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		s.tell(1, withDefaults(policyOf(t, "100/s")), 6)
		time.Sleep(2200 * time.Millisecond)
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Deleted: []string{"b", "c", "d", "e", "f"}})
		time.Sleep(1500 * time.Millisecond)
		s.prove()
		r := l.core.Report(s.clock.Now())
		_, line, _ := strings.Cut(text.String(), `msg="limiter is active"`)
		gone := s.clock.Wall() - int64(1500*time.Millisecond)
		until := quota.WindowAt(time.Second, gone+int64(3*time.Second)).End()
		want := fmt.Sprintf(`total=100 share=%d instances=1 revision=2 held_for="b, c, d and 2 more" held_until="%s"`,
			l.Status().Shortest().Share, time.Unix(0, until).UTC().Format("15:04:05.000 UTC"))
		if !strings.Contains(line, want) || l.Status().Shortest().Share > 17 {
			t.Errorf("%s, want %s", text.String(), want)
		}
		if r.HeldFor != "b, c, d and 2 more" || r.HeldUntil.UnixNano() != until {
			t.Errorf("the report says %q until %v", r.HeldFor, r.HeldUntil)
		}
		time.Sleep(time.Duration(until-s.clock.Wall()) - time.Millisecond)
		s.prove()
		before := l.Status().Shortest().Share
		time.Sleep(time.Millisecond)
		if after := l.Status().Shortest().Share; before > 17 || after != 100 {
			t.Errorf("a share of %d until then, and of %d from then on", before, after)
		}
		if r := l.core.Report(s.clock.Now()); r.HeldFor != "" || !r.HeldUntil.IsZero() {
			t.Errorf("the report says %q until %v when nothing is held", r.HeldFor, r.HeldUntil)
		}
	})
}

// The log tells a pause as the problem, as calls do: also where the instance starts during the pause, and has no share yet.
// A pause is meant, so Status has no problem.
func TestTheLogTellsThePause(t *testing.T) {
	for _, starts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var text bytes.Buffer
			policy := policyOf(t, "100/s")
			source, s := Fixed(policy), &stub{clock: clock.New()}
			log := Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}
			policy.Mode, policy.Author, policy.Reason, policy.Time = quota.ModePause, "ann", "down", time.Now()
			var l *Limiter
			if starts {
				l = open(t, s.source(), log)
				s.tell(1, withDefaults(policy), 1)
			} else {
				l = open(t, source, log)
				if err := source.Set(policy); err != nil {
					t.Fatal(err)
				}
			}
			l.core.Report(l.core.clock.Now())
			_, line, _ := strings.Cut(text.String(), `msg="limiter is paused"`)
			if want := fmt.Sprintf("problem=%q do=", `paused by ann at 00:00 UTC ("down"); resume with quota-admin resume p`); !strings.Contains(line, want) {
				t.Errorf("starts %v: want %s in\n%s", starts, want, text.String())
			}
			if st := l.Status(); st.State != quota.StatePaused || st.Problem != "" {
				t.Errorf("starts %v: %s, %q", starts, st.State, st.Problem)
			}
		})
	}
}

// Each reason of a refusal has its words.
func TestEachReasonHasItsWords(t *testing.T) {
	if len(reasons) != len(cause.All) {
		t.Errorf("%d reasons, and words of %d causes", len(reasons), len(cause.All))
	}
	for i, c := range cause.All {
		if reasons[i] != Reason(c.Reason) {
			t.Errorf("%q has the words of %q", reasons[i], c.Reason)
		}
	}
}
