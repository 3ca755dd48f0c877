package lending

import "math"

// Flow is what an instance knows of the calls of its own callers: issued, refused and
// waiting permits. The zero Flow has seen nothing.
type Flow struct {
	at, calls  float64 // of the latest look
	last       float64 // when the latest call came
	waited     float64 // when somebody waited: who waits makes no other call meanwhile
	rate       float64 // smoothed
	since      float64 // when calls began to come, and how many had come by then
	from       float64
	before     float64    // calls before the window
	first      float64    // when in the window the first call came; negative: none has
	used       [2]float64 // rates of the last windows, the newest first
	window     int64
	started    bool
	askedAt    float64 // the latest ask, and the rate that it was made by; 0 before the first
	askedRate  float64
	windowFrom float64 // when the window began
}

// Look takes that so many calls have come by the instant at.
func (f *Flow) Look(at, calls float64) {
	if !f.started {
		*f = Flow{started: true, at: at, calls: calls, before: calls, first: -1, last: math.Inf(-1), windowFrom: at, window: math.MinInt64}
		return
	}
	dt, n := at-f.at, max(0, calls-f.calls)
	if dt <= 0 {
		return
	}
	f.rate += (n/dt - f.rate) * -math.Expm1(-dt/smoothed)
	if n > 0 {
		if at-f.last > smoothed {
			f.since, f.from = f.at, f.calls
		}
		if f.first < 0 {
			f.first = max(0, f.at-f.windowFrom)
		}
		f.last = at
	}
	f.at, f.calls = at, max(f.calls, calls)
}

// Waits notes that somebody waits at the instant of the latest look.
func (f *Flow) Waits() { f.waited = f.at }

// Begin notes that a window has begun at the instant from, which may have passed. Look has
// taken the calls of the windows before. The length is theirs.
func (f *Flow) Begin(window int64, from, length float64) {
	if window == f.window {
		return
	}
	use := (f.calls - f.before) / length
	if f.first > 0 && f.used[0] == 0 && f.calls-f.before > sparse { // it woke in that window
		use = (f.calls - f.before) / max(begins, length-f.first)
	}
	switch window {
	case f.window + 1:
		f.used = [2]float64{use, f.used[0]}
	case f.window + 2: // nobody has looked: there were no calls
		f.used = [2]float64{0, use}
	default:
		f.used = [2]float64{}
	}
	f.window, f.before, f.first, f.windowFrom = window, f.calls, -1, from
}

// Seen returns how many calls have come by the latest look.
func (f *Flow) Seen() float64 { return f.calls }

// Used returns the rate of calls in the window before.
func (f *Flow) Used() float64 { return f.used[0] }

// Silent returns how long no call has come.
func (f *Flow) Silent() float64 { return f.at - f.last }

// Enough returns for how long it has more permits than it asks at.
func (f *Flow) Enough(h Has) float64 {
	if rate := f.expected(); rate > 0 {
		return max(0, float64(h.Left-h.Kept-h.Waiting)/rate-lead)
	}
	return math.MaxInt32
}

// Lead returns how many permits it will want before an ask could bring some.
func (f *Flow) Lead() int64 { return int64(math.Ceil(f.expected() * lead)) }

// Asked notes that the instance has asked for permits by a rate.
func (f *Flow) Asked(rate float64) { f.askedAt, f.askedRate = f.at, rate }

// begun is the rate of calls that have just begun to come: what is sure of it.
func (f *Flow) begun() float64 {
	if age := f.at - f.since; age < begins && f.Silent() < begins/5 {
		k := f.calls - f.from
		return max(f.rate, (k-math.Sqrt(k))/max(age, 10))
	}
	return f.rate
}

// expected is the rate by which it asks.
func (f *Flow) expected() float64 {
	if f.at-f.windowFrom < begins {
		return max(f.begun(), 0.9*f.used[0])
	}
	return f.begun()
}

// wants is what it asks for over a span, with waiting permits. If few calls have come in the window, that is at most
// as many, or what the window before had in such a span.
func (f *Flow) wants(span float64, waiting int64) float64 {
	n := 1.1 * f.expected() * span
	if k := f.calls - f.before; k <= sparse {
		n = min(n, max(k, 1.1*f.used[0]*span))
	}
	return n + float64(waiting)
}

// mean is the rate of this window and the last one, unless the latest calls say
// significantly more.
func (f *Flow) mean(phase, length float64) float64 {
	calls := f.calls - f.before
	mean := (f.used[0]*length + calls) / (length + phase)
	if f.used[0] == 0 && calls > sparse {
		mean = calls / max(phase-max(0, f.first), begins)
	}
	if lately, usual := smoothed*f.rate, smoothed*mean; lately > usual+3*math.Sqrt(usual)+2 {
		return f.rate
	}
	return mean
}

// Forecast is how many permits its own callers will want until the window ends: waiting
// ones, and what their rate predicts.
func (f *Flow) Forecast(phase, length float64, waiting int64) float64 {
	rate := max(f.mean(phase, length), f.used[1]/2)
	if f.askedAt >= f.windowFrom && f.used[0] < 0.1*f.askedRate { // it woke
		rate = max(rate, f.askedRate)
	}
	if rate*(f.at-max(f.last, f.waited)) > silence {
		rate = f.rate
	}
	u := rate * max(0, length-phase)
	if length-phase <= ends {
		return margin*u + float64(waiting)
	}
	return margin*u + math.Sqrt(u)*min(1, u/few) + float64(waiting)
}
