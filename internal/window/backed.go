package window

import "github.com/quotient-limiter/quotient/internal/clock"

// leastLeft: at least this many permits for all classes must be left before some may back a front. So what backs it is at
// most an eighth of them.
const leastLeft = 8 * MostOut

// Back has permits of the segment s back a front on which calls crowd (see Front). It fills them up to MostOut, of what the
// segment has left. Back does nothing if s does not run any more, has too few left, or backs another front, if
// callers wait, or if another goroutine has the gate's lock.
func (g *Gate) Back(s *Segment, f *Front) {
	if !s.mayBack(f) || !g.mu.TryLock() {
		return
	}
	defer g.unlock()
	if s != g.segment.Load() || g.mu.queue.Len() > 0 {
		return
	}
	for s.mayBack(f) {
		n, left := MostOut-Part(f.state.Load()).backs(), s.left.Load() // calls may take of both meanwhile
		if left-s.floor >= leastLeft && s.left.CompareAndSwap(left, left-n) {
			s.backed.Store(f)
			f.state.Add(uint64(n) << partBacks)
			return
		}
	}
}

// mayBack reports whether the segment may have more permits back a front.
func (s *Segment) mayBack(f *Front) bool {
	switch of := s.backed.Load(); {
	case of == f && Part(f.state.Load()).backs() >= few:
		return false
	case of != nil && of != f && Part(of.state.Load()).backs() > 0:
		return false
	}
	return s.left.Load()-s.floor >= leastLeft
}

// Backs reports whether permits of the segment back a front.
func (s *Segment) Backs() bool { return s.backs() > 0 }

// backs returns how many permits of the segment back a front.
func (s *Segment) backs() int64 {
	if f := s.backed.Load(); f != nil {
		return Part(f.state.Load()).backs()
	}
	return 0
}

// unback takes away the permits that back a front, and returns their number. No call can take them from then on. The gate's
// lock is held.
func (s *Segment) unback() int64 {
	f := s.backed.Load()
	if f == nil {
		return 0
	}
	s.backed.Store(nil)
	return Part(f.state.And(^uint64(MostOut << partBacks))).backs()
}

// Unback puts what backs a front into the segment again, for callers who look for it there. It returns false if the segment
// backs none.
func (g *Gate) Unback(at clock.Instant, s *Segment) bool {
	if !s.Backs() {
		return false
	}
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	return true
}
