package load

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var arrivals = []Arrival{Steady, Poisson, Burst, Sine}

// Whatever the process, a window's calls come in order, none before its start,
// none after its end, and at least as many as promised.
func TestCallsLieInTheirWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(arrivals).Draw(t, "kind")
		n := rapid.IntRange(1, 100).Draw(t, "instances")
		p := NewProcess(kind, rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, n-1).Draw(t, "instance"), n)
		mean := rapid.Float64Range(0, 300).Draw(t, "mean")
		floor := rapid.Int64Range(0, 300).Draw(t, "floor")
		for k := range int64(4) {
			p.Begin(1_800_000_000+k, mean, floor)
			last := int64(0)
			for step := range 51 {
				due := p.Due(float64(step) / 50)
				if due < last {
					t.Fatalf("window %d: %d calls had arrived, then %d", k, last, due)
				}
				last = due
			}
			if last < floor {
				t.Fatalf("window %d: %d calls, want %d or more", k, last, floor)
			}
			if again := p.Due(1); again != last {
				t.Fatalf("window %d: %d calls at the end, then %d", k, last, again)
			}
		}
	})
}

func TestTheSameSeedGivesTheSameCalls(t *testing.T) {
	for _, kind := range arrivals {
		calls := func(seed uint64) (list []int64) {
			p := NewProcess(kind, seed, 3, 8)
			for k := range int64(20) {
				p.Begin(k, 100, 0)
				list = append(list, p.Due(0.3), p.Due(1))
			}
			return list
		}
		a, b := calls(7), calls(7)
		for i := range a {
			if a[i] != b[i] {
				t.Errorf("%s: draw %d is %d, then %d", kind, i, a[i], b[i])
			}
		}
	}
}

// A mean that is no whole number is kept on average, by every process.
func TestTheMeanIsKept(t *testing.T) {
	const windows, mean = 16 * 500, 2.3
	for _, kind := range arrivals {
		p := NewProcess(kind, 1, 40, 96)
		total := int64(0)
		for k := range int64(windows) {
			p.Begin(1_800_000_000+k, mean, 0)
			total += p.Due(1)
		}
		got := float64(total) / windows
		// Six standard errors of a Poisson mean.
		if math.Abs(got-mean) > 6*math.Sqrt(mean/windows) {
			t.Errorf("%s: %v calls per window on average, want %v", kind, got, mean)
		}
	}
}

// Also across a fleet: few calls must not all fall into the same windows.
func TestTheMeanIsKeptInEveryWindow(t *testing.T) {
	for k := range int64(100) {
		total := int64(0)
		for i := range 96 {
			p := NewProcess(Steady, 1, i, 96)
			p.Begin(k, 0.5, 0)
			total += p.Due(1)
		}
		if total < 47 || total > 49 {
			t.Fatalf("window %d: %d calls of 96 instances with a mean of 0.5", k, total)
		}
	}
}

func TestSteadyCallsAreEvenlySpaced(t *testing.T) {
	p := NewProcess(Steady, 1, 0, 1) // phase one half
	p.Begin(5, 4, 0)
	for _, step := range []struct {
		at   float64
		want int64
	}{{0, 0}, {0.124, 0}, {0.126, 1}, {0.374, 1}, {0.376, 2}, {0.626, 3}, {0.876, 4}, {1, 4}} {
		if got := p.Due(step.at); got != step.want {
			t.Errorf("at %v: %d calls, want %d", step.at, got, step.want)
		}
	}
}

// Counts of a Poisson process vary as much as they should, and no more: their
// variance equals their mean.
func TestPoissonVaries(t *testing.T) {
	const windows, mean = 20000, 12.0
	p := NewProcess(Poisson, 9, 0, 1)
	var sum, squares, half float64
	for k := range int64(windows) {
		p.Begin(k, mean, 0)
		half += float64(p.Due(0.5))
		n := float64(p.Due(1))
		sum += n
		squares += n * n
	}
	average := sum / windows
	variance := squares/windows - average*average
	if variance < 0.93*mean || variance > 1.07*mean {
		t.Errorf("variance %v, want about %v", variance, mean)
	}
	if part := half / sum; part < 0.49 || part > 0.51 {
		t.Errorf("%v of the calls came in the first half", part)
	}
}

func TestABurstIsFleetWide(t *testing.T) {
	a, b := NewProcess(Burst, 4, 0, 10), NewProcess(Burst, 4, 9, 10)
	for k := range int64(50) {
		a.Begin(k, 100, 0)
		b.Begin(k, 100, 0)
		for f := 0.0; f <= 1; f += 0.01 {
			if x, y := a.Due(f), b.Due(f); x != y || x != 0 && x != 100 {
				t.Fatalf("window %d at %v: %d and %d calls", k, f, x, y)
			}
		}
	}
}

func TestSineSwings(t *testing.T) {
	p := NewProcess(Sine, 1, 0, 1)
	least, most := int64(math.MaxInt64), int64(0)
	for k := range int64(sinePeriod) {
		p.Begin(k, 1000, 0)
		n := p.Due(1)
		least, most = min(least, n), max(most, n)
	}
	if least > 210 || most < 1790 {
		t.Errorf("from %d to %d calls around 1000", least, most)
	}
}

// The load must stay far cheaper than what it measures.
func BenchmarkDue(b *testing.B) {
	for _, kind := range arrivals {
		b.Run("kind="+string(kind), func(b *testing.B) {
			p := NewProcess(kind, 1, 0, 96)
			ticks := int64(time.Second / (2 * time.Millisecond))
			for i := range b.N {
				tick := int64(i) % ticks
				if tick == 0 {
					p.Begin(int64(i)/ticks, 4687.5, 3126)
				}
				p.Due(float64(tick) / float64(ticks))
			}
		})
	}
}
