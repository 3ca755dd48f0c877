package worker

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/load"
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
		s.use = func(_ limiter, n int64, as load.Request) { used += n; of[as.Start/window] += n }
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
	s.stop.Store(time.Now().Add(20 * time.Millisecond).UnixNano())
	g := s.generator()
	m := &member{calls: load.NewProcess(load.Steady, 1, 0, 1), part: 1} // a call would panic
	m.gone.Store(true)
	g.add(m)
	g.run()
	if len(g.members) != 0 {
		t.Errorf("%d members are left", len(g.members))
	}
}
