package consumer

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
)

var placesSeed = flag.Uint64("liveness.places", 0, "play this history of TestLivenessOfPlaces only, and print it")

// TestLivenessOfPlaces plays random histories of fleets with a limit in flight. Calls begin and end in any part of time,
// some are never ended, and instances crash. Sessions ask etcd when their limiter says so, and look seldom. What must
// hold: nobody stands who could be served. A place that is free for all that wait, wherever it is, is taken by one of
// them at once.
func TestLivenessOfPlaces(t *testing.T) {
	t.Parallel()
	if *placesSeed != 0 {
		placesHistory(t, *placesSeed)
		return
	}
	n := uint64(40)
	if testing.Short() {
		n /= 6
	}
	calls := 0
	for seed := uint64(1); seed <= n && !t.Failed(); seed++ {
		calls += placesHistory(t, seed)
	}
	t.Logf("%d histories, %d calls", n, calls)
}

const (
	// seldom is how often sessions look here, which is more seldom than they do, so that asks outlast it.
	seldom = 2500 * time.Millisecond
	// atOnce is within what time a place is taken that could be: a few answers of etcd.
	atOnce = 150 * time.Millisecond
)

// places is such a history while it runs.
type places struct {
	*testing.T
	*treasury
	r      *rand.Rand
	limit  protocol.Budget
	held   sync.Mutex // guards what is below, and what a placed has but for its limiter and its stub
	all    []*placed
	trace  []string
	made   int
	gives  bool      // some callers give up
	stands time.Time // since then somebody could be served, and nobody was
	calm   time.Time // no ask stood of an instance that was mute for as long before that as sessions do not look
}

// placed is an instance.
type placed struct {
	*stub
	l      *Limiter
	dead   bool
	asks   []escrow.KeyUse // that etcd is asked now
	commit time.Time       // when it commits what it is asked; zero from then on
	answer time.Time       // when it has answered
	away   time.Time       // until then the session may not have looked again since etcd did not answer
	keeps  time.Time       // the same, but no longer than until etcd answers
	look   time.Time
	taken  map[int64]int64 // permits by the number of their part, as etcd knows
	lost   map[int64]int64 // of these what was to be given back when etcd was asked and did not answer
	open   map[*Permit]bool
	waits  int
	by     uint64 // its name in asks
}

func placesHistory(t *testing.T, seed uint64) (calls int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 21))
		limit := policyOf(t, fmt.Sprintf("%d inflight hold=%ds", 1+r.IntN(9), []int{4, 8, 60}[r.IntN(3)]))
		names := strings.Split("abcde", "")[:2+r.IntN(4)]
		bank, sinks, all := longFleet(t, withDefaults(limit), names...)
		bank.told, bank.late = sinks, time.Duration(r.Int64N(int64(20*time.Millisecond)))
		h := &places{T: t, treasury: bank, r: r, gives: r.IntN(3) == 0, limit: protocol.Budget{Limit: limit.Limits[0]}}
		for i, s := range sinks {
			h.all = append(h.all, &placed{stub: s, l: all[i], taken: map[int64]int64{}, lost: map[int64]int64{}, open: map[*Permit]bool{}})
		}
		ctx, end := context.WithCancel(t.Context())
		h.play(ctx)
		end()
		synctest.Wait()
		if calls = h.made; t.Failed() || *placesSeed != 0 {
			t.Logf("-liveness.places %d: %s\n%s", seed, limit.Limits[0], strings.Join(h.trace[max(0, len(h.trace)-60):], "\n"))
		}
	})
	return calls
}

func (h *places) note(format string, args ...any) {
	h.trace = append(h.trace, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (h *places) play(ctx context.Context) {
	busy := h.r.IntN(3)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && !h.Failed(); time.Sleep(5 * time.Millisecond) {
		h.held.Lock()
		if h.r.IntN(20*(1+busy)) == 0 {
			h.call(ctx, h.all[h.r.IntN(len(h.all))])
		}
		if i := h.all[h.r.IntN(len(h.all))]; h.r.IntN(2000) == 0 && h.alive() > 1 && !i.dead {
			i.dead = true
			h.note("%s crashes", i.name(h))
		}
		for _, i := range h.all {
			if !i.dead {
				h.serve(i)
			}
		}
		h.held.Unlock()
		synctest.Wait()
		h.held.Lock()
		h.judge()
		h.held.Unlock()
	}
}

func (h *places) alive() (n int) {
	for _, i := range h.all {
		if !i.dead {
			n++
		}
	}
	return n
}

func (i *placed) name(h *places) string {
	for k, o := range h.all {
		if o == i {
			return string(rune('a' + k))
		}
	}
	return ""
}

// mute reports whether the instance can tell etcd nothing: it has crashed, or etcd did not answer it.
func (i *placed) mute() bool { return i.dead || !time.Now().After(i.keeps) }

// call has somebody ask for a place, or a few, of an instance.
func (h *places) call(ctx context.Context, i *placed) {
	if i.dead || i.waits > 4 {
		return
	}
	n, wait := int64(1), Forever
	if h.gives && h.r.IntN(4) == 0 {
		wait = time.Duration(h.r.Int64N(int64(2 * time.Second)))
	}
	lasts := time.Duration(h.r.Int64N(int64([]time.Duration{50 * time.Millisecond, time.Second, 6 * time.Second}[h.r.IntN(3)])))
	never := h.r.IntN(12) == 0
	i.waits++
	h.made++
	go func() {
		p, err := i.l.Take(ctx, n, wait)
		h.held.Lock()
		defer h.held.Unlock()
		i.waits--
		if err != nil || i.dead {
			return
		}
		h.stands = time.Time{}
		h.note("%s has a place", i.name(h))
		i.open[&p] = true
		if !never {
			time.AfterFunc(lasts, func() {
				h.held.Lock()
				defer h.held.Unlock()
				if !i.dead {
					delete(i.open, &p)
					p.Done()
					h.note("a call of %s ends", i.name(h))
				}
			})
		}
	}()
}

// serve plays the session of an instance.
func (h *places) serve(i *placed) {
	now := time.Now()
	i.prove()
	if len(i.asks) > 0 {
		if !i.commit.IsZero() && !now.Before(i.commit) {
			i.commit = time.Time{}
			h.answers(i)
		}
		if now.Before(i.answer) {
			return
		}
		i.sink.Fund(i.asks)
		i.asks = nil
	}
	select {
	case <-i.sink.Wanting():
	default:
		if now.Before(i.look) {
			return
		}
	}
	i.asks, _ = i.sink.Uses(10)
	i.commit, i.look = now.Add(time.Duration(h.r.Int64N(int64(10*time.Millisecond)))), now.Add(seldom)
	i.answer = i.commit.Add(time.Duration(h.r.Int64N(int64(10 * time.Millisecond))))
}

// answers has etcd do what an instance asks, or seldom nothing.
func (h *places) answers(i *placed) {
	h.away = h.r.IntN(60) == 0
	for k := range i.asks {
		u := &i.asks[k]
		was := u.Purse.Taken
		i.by = max(i.by, u.Use.By)
		h.answer(u, int64(len(h.all)))
		i.taken[u.Purse.Part.Number] += u.Purse.Taken - was
		if *placesSeed != 0 {
			h.note("%s asks: %+v, back %+v, has %d", i.name(h), u.Use, u.Back, u.Purse.Taken)
		}
		if !u.Away {
			i.taken[u.Back.Of.Number] -= u.Back.N
			i.keeps = time.Time{}
			continue
		}
		if u.Unsent = h.r.IntN(2) == 0; !u.Unsent {
			i.lost[u.Back.Of.Number] += u.Back.N
		}
		i.away = time.Now().Add(window.AwayAgain + seldom)
		i.keeps = i.away
		h.note("%s has no answer: %+v, back %+v", i.name(h), u.Use, u.Back)
	}
}

// free returns how many places are free for an instance, whoever has them. What an instance has that etcd did not answer is
// not free before it has asked again, and been answered: only then others can have its idle places. It asks again after
// window.AwayAgain, to spare an etcd that is away. Neither is what counts no more where it is, since the next part runs
// there already: the call has outlasted its permit's Until, or nobody lacked the place before. Nobody gives it back, and it
// is free when it counts no more here either.
func (h *places) free(i *placed) int64 {
	mine, free := h.part(i), h.limit.Permits
	for _, o := range h.all {
		theirs := h.part(o)
		place := func(number, n int64, kept bool) {
			keeps := o.mute() || !countsIn(theirs, number)
			if countsIn(mine, number) && keeps == kept {
				free -= n
			}
		}
		for number, n := range o.taken {
			place(number, n, true)
		}
		for number, n := range o.lost {
			place(number, n, false)
		}
		for p := range o.open {
			place(h.limit.PartAt(p.Start().UnixNano()).Number, p.N(), false)
		}
	}
	return free
}

// part is the part of the limit that runs at an instance.
func (h *places) part(i *placed) protocol.Part {
	return h.limit.PartAt(i.l.Status().Limits[0].Start.UnixNano())
}

// countsIn reports whether permits of the part with a number count in another one.
func countsIn(part protocol.Part, number int64) bool { return number > part.Number-part.Counted }

// phantom reports whether an instance that has crashed asks for permits, or one that etcd did not answer, which cannot take
// its ask back. Others leave it a place until its ask is void.
func (h *places) phantom() bool {
	for _, text := range h.totals {
		for _, a := range escrow.ReadTotal(text, 7).Asks {
			for _, i := range h.all {
				if i.by == a.By && a.Poor > 0 && a.Until > time.Now().UnixNano() && i.mute() {
					return true
				}
			}
		}
	}
	return false
}

// judge looks whether somebody stands who could be served.
func (h *places) judge() {
	waits, could, now := 0, true, time.Now()
	for _, i := range h.all {
		if st := i.l.Status(); !i.dead && st.Waiting > 0 {
			waits++
			could = could && h.free(i) >= st.HeadPermits && now.After(i.away)
		}
	}
	if h.phantom() {
		h.calm = now.Add(seldom)
	}
	switch {
	case waits == 0 || !could || now.Before(h.calm):
		h.stands = time.Time{}
	case h.stands.IsZero():
		h.stands = now
	case now.Sub(h.stands) > atOnce:
		for _, i := range h.all {
			st := i.l.Status()
			h.note("%s: dead %v, %d wait, %d free for it, taken %v, lost %v, %+v", i.name(h), i.dead, st.Waiting, h.free(i), i.taken, i.lost, st.Limits[0])
		}
		for key, total := range h.totals {
			h.note("%s: %s", key, total)
		}
		h.Errorf("%d instances have callers that wait, and a place is free for each since %v", waits, now.Sub(h.stands))
	}
}
