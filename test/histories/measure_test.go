package histories

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/ntp"
)

// This file is what the hosts of kind measured know of true time: the real ntp.Watch asks
// modelled servers over a modelled network, and corrects the session's clock.

// timeServer is one NTP server of an instance.
type timeServer struct {
	err      int64 // of its clock
	distance int64 // what it says that its error is at most
	lies     bool
	heard    bool // it has answered
}

// newTimeServers makes three servers. Their errors lie within the bounds that they tell,
// but for one that may lie: by so much that it agrees with nobody. One that lies by less
// pulls the estimate, though never out of what another server holds possible
// (ntp.majority). It does not answer before the others have: those that answer first are
// a majority as long as they are the only ones.
func newTimeServers(r *rand.Rand) []timeServer {
	all := make([]timeServer, 3)
	for i := range all {
		all[i].distance = 1*ms + r.Int64N(6*ms)
		all[i].err = r.Int64N(2*all[i].distance+1) - all[i].distance
	}
	if liar := &all[0]; r.IntN(3) == 0 {
		liar.lies = true
		if liar.err = 300*ms + r.Int64N(1000*ms); r.IntN(2) == 0 {
			liar.err = -liar.err
		}
	}
	return all
}

// measure starts to ask time servers, and launches the process when they have answered.
func (i *instance) measure() {
	i.servers = newTimeServers(i.r)
	w, err := ntp.New(i.clock, []string{"a", "b", "c"}, ntp.MinInterval, quiet)
	if err != nil {
		panic(err)
	}
	i.ntp = w
	i.askTime(false)
}

// askTime asks the servers that are due, again and again.
func (i *instance) askTime(launched bool) {
	if i.w.over() {
		return
	}
	i.measuring.Lock()
	defer i.measuring.Unlock()
	due, next := i.ntp.Due(i.reader.read())
	for _, q := range due {
		i.query(q)
	}
	if _, known := i.clock.Measured(); known && !launched {
		launched = true
		i.launch(1)
	}
	at := i.w.now() + max(ms, min(next-i.reader.read().Mono, 300*ms))
	i.w.at(i.reader.until(at), func() { i.askTime(launched) })
}

// query asks one server, under the lock. A lost question is given up after a while; the way
// back may take longer than the way there.
func (i *instance) query(q ntp.Question) {
	w := i.w
	r := w.aside(i.name + " asks " + string(rune('a'+q.Server)))
	s, asked := &i.servers[q.Server], i.reader.read()
	there, back := 1+r.Int64N(8*ms), 1+r.Int64N(8*ms)
	if r.IntN(12) == 0 {
		back += r.Int64N(200 * ms)
	}
	others := slices.DeleteFunc(slices.Clone(i.servers), func(s timeServer) bool { return s.lies || !s.heard })
	if r.IntN(20) == 0 || s.lies && len(others) < 2 {
		w.at(i.reader.until(w.now()+300*ms), func() {
			i.measuring.Lock()
			defer i.measuring.Unlock()
			i.ntp.Answered(i.reader.read(), q, 0, 0, "no answer")
		})
		return
	}
	told := epoch + w.now() + there + s.err
	w.at(i.reader.until(w.now()+there+back), func() {
		i.measuring.Lock()
		defer i.measuring.Unlock()
		s.heard = true
		at := i.reader.read()
		trip := at.Mono - asked.Mono
		i.ntp.Answered(at, q, told-asked.Mono-trip/2, time.Duration(trip/2+s.distance), "")
	})
}
