package worker

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// scripted is a limiter that gives the windows of a script, and refuses where it
// says 0. Before each answer it looks at what the generator has counted.
type scripted struct {
	t      *rapid.T
	g      *generator
	script []int64 // starts of windows
	given  int64
}

func (s *scripted) take() (permit, error) {
	if n := issuedBy(s.g); n != s.given+1 {
		s.t.Fatalf("%d permits were taken, and one is about to be: %d are counted", s.given, n)
	}
	start := s.script[0]
	s.script = s.script[1:]
	if start == 0 {
		return permit{}, errors.New("refused")
	}
	s.given++
	return permit{start, start + int64(time.Second)}, nil
}

func (s *scripted) wait(time.Duration, func(permit, error)) { s.t.Fatal("nobody was to wait") }

func issuedBy(g *generator) (n int64) {
	for _, c := range g.tally.Counts() {
		n += c.Issued
	}
	return n
}

// A permit is counted before it is taken, by the window that it turns out to be
// of; a refusal leaves no trace. Who is used up are as many as were taken.
func TestPermitsAreCountedBeforeTheyAreTaken(whole *testing.T) {
	const window = int64(time.Second)
	rapid.Check(whole, func(t *rapid.T) {
		used, of := int64(0), map[int64]int64{}
		s := sharedOf(whole, "")
		s.use = func(n int64, as load.Request) { used += n; of[as.Start/window] += n }
		sheet := s.c.Sheet(100 * window)
		g := newGenerator(s, sheet.New())
		now := 100*window + rapid.Int64Range(0, window-1).Draw(t, "now")
		script := rapid.SliceOf(rapid.SampledFrom([]int64{0, 99 * window, 100 * window, 101 * window})).Draw(t, "script")
		want := map[int64]int64{}
		for _, start := range script {
			if start != 0 {
				want[start/window]++
			}
		}
		l := &scripted{t: t, g: g, script: script}
		g.call(&member{limiter: l}, int64(len(script)), false, now)
		total := int64(0)
		for _, c := range g.tally.Counts() {
			if c.Issued != want[c.Index] {
				t.Errorf("window %d: %d counted, want %d", c.Index, c.Issued, want[c.Index])
			}
			if of[c.Index] != want[c.Index] {
				t.Errorf("window %d: %d used, want %d", c.Index, of[c.Index], want[c.Index])
			}
			total += c.Issued
		}
		if total != l.given || used != l.given || g.issued.Load() != l.given {
			t.Errorf("%d taken, %d counted, %d used, %d told", l.given, total, used, g.issued.Load())
		}
	})
}

// An instance that has left makes no calls any more.
func TestWhoIsGoneIsNotAsked(t *testing.T) {
	s := sharedOf(t, "")
	g := s.generator()
	m := &member{calls: load.NewProcess(load.Steady, 1, 0, 1)} // a call would panic
	m.gone.Store(true)
	g.add(m)
	for len(g.members) != 0 { // a busy machine may let all the time pass before the first look
		s.stop.Store(time.Now().Add(20 * time.Millisecond).UnixNano())
		g.run()
	}
}

// counting is a limiter that counts the calls, and refuses them.
type counting struct{ calls int64 }

func (l *counting) take() (permit, error) { l.calls++; return permit{}, errors.New("refused") }

func (l *counting) wait(time.Duration, func(permit, error)) { l.calls = -1 }

// The calls move with the ranks, within a window too: each instance makes those that are due to
// its part until then, and none is lost or made twice, however seldom the generator looks.
func TestCallsMoveWithTheRanks(t *testing.T) {
	for _, step := range []time.Duration{2 * time.Millisecond, 70 * time.Millisecond, 330 * time.Millisecond} {
		s := sharedOf(t, "--limit 1000/s --demand 1 --instances 4 --hot 1 --move 1500ms --max-wait 0")
		start := quota.WindowAt(time.Second, time.Now().UnixNano()).End() + 10*int64(time.Second)
		s.start.Store(start)
		s.stop.Store(start + int64(time.Hour))
		g := s.generator()
		var members [4]*member
		var calls [4]*counting
		for i := range members {
			calls[i] = &counting{}
			members[i] = &member{limiter: calls[i], slot: i, calls: load.NewProcess(load.Steady, 1, i, 4)}
		}
		look := func(at time.Duration) {
			g.spread(start + int64(at))
			for _, m := range members {
				g.advance(m, start+int64(at))
			}
		}
		made := func() (all [4]int64) {
			for i, l := range calls {
				all[i] = l.calls
			}
			return all
		}
		for at := time.Duration(0); at < 4*time.Second; at += step {
			look(at)
		}
		look(4 * time.Second)
		// They move after 945 ms, 2,445 ms and 3,945 ms.
		for i, want := range []int64{945, 1500, 1500, 55} {
			if n := made()[i]; n < want-3 || n > want+3 {
				t.Errorf("looking each %v: instance %d made %d calls, want %d: %v", step, i, n, want, made())
			}
		}
	}
}
