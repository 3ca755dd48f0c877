package ntp

import "time"

const (
	// register is how many samples of a server are kept, as NTP's clock filter
	// does (RFC 5905, section 10).
	register = 8
	// burst is how many samples are taken quickly at first, burstGap apart: so
	// fast, and no faster, as servers with rate limits accept (NTP's iburst).
	burst    = 4
	burstGap = 2 * time.Second
	// maxDoublings bounds the back-off: the interval grows by 2 to the power of it.
	maxDoublings = 5
	// maxPoll is the longest time between two questions, but after a refusal.
	maxPoll = 1024 * time.Second
	// refusedFor is how long a server that refuses service is left alone.
	refusedFor = time.Hour
	// reach is the number of intervals after which a server that has not answered
	// counts as away.
	reach = 4
)

type sample struct {
	mono   int64 // when it came
	offset int64
	// distance bounds the error: root distance, half of the round trip included.
	distance time.Duration
}

// spread returns where the true offset is at a monotonic instant, if the sample is
// right. The clock's rate errs by no more than growth, in ppm.
func (s sample) spread(now, growth int64) interval {
	d := int64(s.distance) + max(0, now-s.mono)/1e6*growth
	return interval{s.offset - d, s.offset + d}
}

// server is what is known of one server. Its methods take the interval between
// two questions.
type server struct {
	address  string
	samples  []sample // the newest last, at most register
	answers  int      // since the last time that all samples were dropped
	voter    bool     // it has answered, at any time
	failures int      // in a row
	slower   int      // doublings of the interval that the server asked for
	next     int64    // when to ask it again
	asked    bool     // a question is under way
	trouble  string   // why the last question got no good answer; empty if it did
}

func (s *server) take(now int64, a answer, every time.Duration) {
	s.asked, s.trouble = false, a.problem
	s.failures++
	if a.slower {
		s.slower = min(s.slower+1, maxDoublings)
	}
	wait := max(s.pause(every, max(s.slower, s.failures-1)), a.wait)
	if a.problem == "" {
		s.samples = append(s.samples[max(0, len(s.samples)+1-register):], a.sample)
		s.answers++
		s.voter, s.failures = true, 0
		if wait = s.pause(every, s.slower); s.answers < burst && s.slower == 0 {
			wait = min(wait, burstGap)
		}
	}
	s.next = now + int64(wait)
}

func (s *server) pause(every time.Duration, doublings int) time.Duration {
	return max(every, min(maxPoll, every<<min(max(doublings, 0), maxDoublings)))
}

// hurry makes the server due, though not before a server would mind, and only if
// it has not asked to be left alone.
func (s *server) hurry(now int64) {
	if s.slower == 0 && s.failures == 0 {
		s.next = min(s.next, now+int64(burstGap))
	}
	s.answers = 0
}

// best returns where the true offset is by the best of the samples: the one that
// bounds it most closely now. ok is false if the server is away.
func (s *server) best(now, growth int64, every time.Duration) (b interval, ok bool) {
	oldest := now - reach*int64(s.pause(every, s.slower))
	for _, x := range s.samples {
		if i := x.spread(now, growth); x.mono >= oldest && (!ok || i.hi-i.lo < b.hi-b.lo) {
			b, ok = i, true
		}
	}
	return b, ok
}
