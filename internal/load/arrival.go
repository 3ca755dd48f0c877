package load

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// Arrival names a process by which calls arrive in time.
type Arrival string

// The arrival processes.
const (
	// Steady spaces the calls of a window evenly; instances are out of step
	// with each other.
	Steady Arrival = "steady"
	// Poisson has exponential gaps.
	Poisson Arrival = "poisson"
	// Burst has all calls of a window at one instant, the same for the whole fleet. It
	// lies at random in the first nine tenths of the window.
	Burst Arrival = "burst"
	// Sine is Steady with a rate that swings by sineSwing around its mean, once
	// in sinePeriod windows.
	Sine Arrival = "sine"
)

const (
	sineSwing  = 0.8
	sinePeriod = 16
	burstSpan  = 0.9
)

// Process tells when the calls of one instance arrive. It is a function of its
// seed, the instance and the window: the same ones give the same arrivals. Not
// safe for concurrent use.
type Process struct {
	kind     Arrival
	seed     uint64
	instance uint64
	phase    float64 // place in a gap, 0 to 1: what sets instances out of step

	n  int64   // calls in this window; unused by Poisson
	at float64 // Burst: when, as a fraction of the window

	// Poisson: time is scaled so that the mean gap is 1 and the window is span long.
	source rand.ChaCha8
	random *rand.Rand
	span   float64
	next   float64 // when the next call arrives
	done   int64   // calls that arrived
}

// NewProcess returns the arrivals of one instance out of instances, 0 <=
// instance < instances.
func NewProcess(kind Arrival, seed uint64, instance, instances int) *Process {
	p := &Process{
		kind:     kind,
		seed:     seed,
		instance: uint64(instance),
		phase:    (float64(instance) + 0.5) / float64(instances),
	}
	p.random = rand.New(&p.source)
	return p
}

// Begin starts the window with that index. The instance makes mean calls in it
// on average, and never fewer than floor.
func (p *Process) Begin(window int64, mean float64, floor int64) {
	switch p.kind {
	case Poisson:
		var key [32]byte
		binary.LittleEndian.PutUint64(key[0:], p.seed)
		binary.LittleEndian.PutUint64(key[8:], p.instance)
		binary.LittleEndian.PutUint64(key[16:], uint64(window))
		p.source.Seed(key)
		p.span, p.done = p.stretch(mean, floor), 0
		p.next = p.random.ExpFloat64()
		return
	case Burst:
		// The instance is left out: the whole fleet bursts together.
		random := rand.New(rand.NewPCG(p.seed, uint64(window)))
		p.at = random.Float64() * burstSpan
	case Sine:
		turn := float64(window%sinePeriod) / sinePeriod
		mean *= 1 + sineSwing*math.Sin(2*math.Pi*turn)
	}
	p.n = max(wholeCalls(mean, window, p.phase), floor)
}

// Due returns how many calls of the current window have arrived by the given
// fraction of it, 0 to 1. The fraction must not go back within a window.
func (p *Process) Due(fraction float64) int64 {
	switch p.kind {
	case Poisson:
		// A gap that ends at the span itself belongs to the next window.
		for p.next < p.span && p.next <= fraction*p.span {
			p.done++
			p.next += p.random.ExpFloat64()
		}
		return p.done
	case Burst:
		if fraction < p.at {
			return 0
		}
		return p.n
	}
	// Call j arrives at (j + phase) / n.
	due := int64(math.Floor(fraction*float64(p.n)-p.phase)) + 1
	return min(max(due, 0), p.n)
}

// wholeCalls rounds mean to whole calls so that over many windows the average
// is mean: the fraction is carried from one window to the next.
func wholeCalls(mean float64, window int64, phase float64) int64 {
	whole, part := math.Modf(mean)
	// Only the fraction is multiplied by the window's index, which is large.
	carry := math.Floor(part*float64(window+1)+phase) - math.Floor(part*float64(window)+phase)
	return int64(whole) + int64(carry)
}

// stretch draws the window's first floor gaps, to be drawn again, and returns its span.
// Where they do not fit into mean, time is stretched until they do: given their number,
// the calls of a Poisson process lie uniformly, and they still do after that.
func (p *Process) stretch(mean float64, floor int64) float64 {
	before, last := p.source, 0.0
	for range floor {
		last += p.random.ExpFloat64()
	}
	if last > mean {
		mean = last + p.random.ExpFloat64()
	}
	p.source = before
	return mean
}
