package consumer_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

var (
	useSeed  = flag.Uint64("use.seed", 0, "play this fleet of TestPermitsReachCallers only, and print it")
	useCount = flag.Uint64("use.count", 40, "how many fleets TestPermitsReachCallers plays; -short plays a quarter")
	useFrom  = flag.Uint64("use.from", 1, "the first of them")
	useAll   = flag.Bool("use.all", false, "print a line of each")
)

// lateSink is a sink that hears of all others late.
type lateSink struct {
	feed.Sink
	*party
}

// Apply implements feed.Sink.
func (l *lateSink) Apply(at clock.Instant, c protocol.Change) {
	if !l.opened {
		l.Sink.Apply(at, c)
		return
	}
	l.after(true, func() { l.Sink.Apply(l.limiterClock.Now(), c) })
}

// Borrow implements feed.Sink.
func (l *lateSink) Borrow(host string, n protocol.Note) {
	l.after(false, func() { l.Sink.Borrow(host, n) })
}

// Asked implements feed.Sink.
func (l *lateSink) Asked(guest string, n protocol.Note) {
	l.after(false, func() { l.Sink.Asked(guest, n) })
}

// Kinds of callers.
const (
	idle      = iota
	readyOnly // Ready, and nothing else
	greedy    // some always wait
	hasty     // more than the limit, without waiting
	modest    // a Poisson rate, without waiting
	patient   // a Poisson rate, each call waits for a while
	kinds
)

var kindNames = [kinds]string{"idle", "ready", "greedy", "hasty", "modest", "patient"}

// party is an instance of the fleet, and its callers.
type party struct {
	*fleetPlay
	id           int
	instance     *limittest.Instance
	limiter      *consumer.Limiter
	limiterClock *clock.Clock
	opened       bool

	mu      sync.Mutex
	rng     *rand.Rand // of its messages
	ordered int64      // no change before it
	gone    bool       // it crashed, or has left
	kind    int
	epoch   int // of its kind
	rate    float64
	wait    time.Duration
	next    float64 // ns of wall time: of its next call
	pending int64
	end     int64 // it has announced its end, until then

	joined    int64 // 0: long ago
	firstCall int64
	firstGot  int64
	began     map[int64]bool // windows in which other callers began
	always    map[int64]bool // windows in which some always waited
	wanted    map[int64]int64
	got       map[int64]int64
}

// Clock implements feed.Source.
func (p *party) Clock() *clock.Clock { return p.limiterClock }

// Subscribe implements feed.Source.
func (p *party) Subscribe(provider string, create func() feed.Sink) (feed.Sink, func() error, error) {
	var inner feed.Sink
	_, leave, err := feed.Inside[feed.Source](p.instance).Subscribe(provider, func() feed.Sink {
		inner = create()
		return &lateSink{inner, p}
	})
	p.opened = true
	return inner, leave, err
}

func (p *party) after(ordered bool, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := int64(time.Millisecond) + p.rng.Int64N(p.slowest)
	if ordered {
		d = max(d, p.ordered-now()+1)
		p.ordered = now() + d
	}
	time.AfterFunc(time.Duration(d), func() {
		p.mu.Lock()
		gone := p.gone && !ordered
		p.mu.Unlock()
		if !gone {
			f()
		}
	})
}

// fleetPlay is one fleet while it runs.
type fleetPlay struct {
	*testing.T
	rng     *rand.Rand
	about   string
	trace   []string
	policy  quota.Policy
	total   int64
	window  time.Duration
	slowest int64 // message, ns
	fleet   *limittest.Fleet
	all     []*party
	dead    []grave
	shares  map[int64]int64 // by window, after a crash
	start   int64
}

// grave is a share that nobody has.
type grave struct {
	from, to int64
	unknown  int64 // until then
}

func newFleetPlay(t *testing.T, seed uint64) *fleetPlay {
	f := &fleetPlay{T: t, rng: rand.New(rand.NewPCG(seed, 17)), shares: map[int64]int64{}}
	f.window = []time.Duration{250, 500, 1000, 1000, 2000, 5000}[f.rng.IntN(6)] * time.Millisecond
	rate := 5 * math.Pow(1000, f.rng.Float64())
	f.total = max(1, int64(rate*f.window.Seconds()))
	f.slowest = 1 + f.rng.Int64N(int64(24*time.Millisecond))
	f.policy = quota.Policy{Limits: []quota.Limit{{Permits: f.total, Window: f.window}}}.WithDefaults()
	n, ready := 1+f.rng.IntN(8), 0
	if f.rng.IntN(2) == 0 {
		ready = n
	}
	var err error
	if f.fleet, err = limittest.New(f.policy, ready); err != nil {
		t.Fatal(err)
	}
	f.start = now()
	f.about = fmt.Sprintf("%d per %v, messages to %v, %d instances, ready %v", f.total, f.window, time.Duration(f.slowest), n, ready > 0)
	for _, i := range f.fleet.Instances() {
		f.add(i)
	}
	for range n - ready {
		f.join()
	}
	return f
}

func (f *fleetPlay) note(format string, args ...any) {
	f.trace = append(f.trace, clockOf(now())+" "+fmt.Sprintf(format, args...))
}

func (f *fleetPlay) join() *party {
	p := f.add(f.fleet.Join())
	p.joined = now()
	return p
}

func (f *fleetPlay) add(i *limittest.Instance) *party {
	p := &party{
		fleetPlay: f, id: len(f.all), instance: i, limiterClock: feed.Inside[feed.Source](i).Clock(),
		rng: rand.New(rand.NewPCG(f.rng.Uint64(), 3)), began: map[int64]bool{}, always: map[int64]bool{}, wanted: map[int64]int64{}, got: map[int64]int64{},
	}
	p.limiter = open(f.T, feed.Over[feed.Source](p), consumer.Options{})
	f.all = append(f.all, p)
	p.turn(f.rng.IntN(kinds))
	return p
}

// turn gives it other callers.
func (p *party) turn(kind int) {
	f, ctx := p.fleetPlay, p.Context()
	p.mu.Lock()
	p.kind, p.next = kind, float64(now())
	p.began[p.index(now())] = true
	p.epoch++
	epoch := p.epoch
	limit := float64(f.total) / f.window.Seconds()
	waiters := 0
	switch kind {
	case readyOnly:
		go func() { _ = p.limiter.Ready(ctx) }()
	case greedy:
		waiters = 1 + f.rng.IntN(40)
	case hasty:
		p.rate = limit * (1 + f.rng.Float64())
	case modest, patient:
		p.rate = limit * f.rng.Float64() / 2
		p.wait = time.Duration(f.rng.Int64N(int64(f.window)))
	}
	f.note("instance %d is %s, %.1f/s, %d waiters, wait %v", p.id, kindNames[kind], p.rate, waiters, p.wait)
	p.mu.Unlock()
	for range waiters {
		p.stand(epoch)
	}
}

func (f *fleetPlay) index(at int64) int64 { return quota.WindowAt(f.window, at).Index }

// stand has a caller wait as long as the kind lasts, and again.
func (p *party) stand(epoch int) {
	p.mu.Lock()
	if p.firstCall == 0 {
		p.firstCall = now()
	}
	p.mu.Unlock()
	p.limiter.TakeFunc(1, consumer.Forever, func(_ consumer.Permit, err error) {
		p.mu.Lock()
		on := p.took(1, err) && p.epoch == epoch
		p.mu.Unlock()
		if on {
			p.stand(epoch)
		}
	})
}

// took notes an answer. The lock is held.
func (p *party) took(n int64, err error) (ok bool) {
	if err != nil || p.gone {
		return false
	}
	if p.firstGot == 0 {
		p.firstGot = now()
	}
	p.got[p.index(now())] += n
	return true
}

// tick has its callers call.
func (p *party) tick() {
	at := float64(now())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return
	}
	w := p.index(now())
	if p.kind == greedy {
		p.wanted[w], p.always[w] = p.total, true
	}
	if p.kind < hasty {
		return
	}
	for p.next <= at {
		gap := 1e9 / p.rate
		if p.kind != hasty {
			gap *= p.fleetPlay.rng.ExpFloat64()
		}
		p.next += gap
		p.wanted[w]++
		if p.firstCall == 0 {
			p.firstCall = now()
		}
		if p.kind != patient {
			if p.limiter.TryAcquire() {
				p.took(1, nil)
			}
			continue
		}
		p.pending++
		p.mu.Unlock()
		p.limiter.TakeFunc(1, p.wait, func(_ consumer.Permit, err error) {
			p.mu.Lock()
			p.took(1, err)
			p.pending--
			p.mu.Unlock()
		})
		p.mu.Lock()
	}
}

// left reports whether it has crashed or left.
func (p *party) left() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// living returns those that neither crashed nor left.
func (f *fleetPlay) living() (all []*party) {
	for _, p := range f.all {
		if !p.left() && p.end == 0 {
			all = append(all, p)
		}
	}
	return all
}

// event is something at random.
func (f *fleetPlay) event() {
	all := f.living()
	switch k := f.rng.IntN(10); {
	case k < 2 && len(all) < 8:
		f.note("instance %d joins", len(f.all))
		f.join()
	case len(all) == 0:
	case k < 4 && len(all) > 1:
		p := all[f.rng.IntN(len(all))]
		f.note("instance %d crashes", p.id)
		p.mu.Lock()
		p.gone = true
		p.mu.Unlock()
		lease := time.Duration(f.rng.Int64N(int64(5 * time.Second)))
		g := grave{now(), now() + int64(lease+f.policy.Settle+25*time.Millisecond), now()}
		if p.joined != 0 { // others lend it a part until they know
			g.unknown = min(now()+int64(lease+25*time.Millisecond), protocol.FirstWindow(p.joined, &f.policy).UnixNano())
			g.unknown = max(now(), g.unknown)
		}
		f.dead = append(f.dead, g)
		if err := p.limiter.Close(); err != nil {
			f.Error(err)
		}
		time.AfterFunc(lease, p.instance.Kill)
	case k < 6 && len(all) > 1:
		p := all[f.rng.IntN(len(all))]
		f.note("instance %d leaves", p.id)
		p.end = protocol.LastWindow(now(), &f.policy).UnixNano()
		p.instance.Leave()
		time.AfterFunc(time.Duration(p.end-now()), func() {
			p.mu.Lock()
			p.gone = true
			p.mu.Unlock()
			p.instance.Kill()
		})
	default:
		all[f.rng.IntN(len(all))].turn(f.rng.IntN(kinds))
	}
}

// run plays the fleet.
func (f *fleetPlay) run() {
	long := max(12*time.Second, 8*f.window)
	start := now()
	last := start + int64(long)*2/3
	events := f.rng.IntN(6)
	times := make([]int64, events)
	for i := range times {
		times[i] = start + f.rng.Int64N(last-start)
	}
	slices.Sort(times)
	time.Sleep(500 * time.Microsecond)
	for now() < start+int64(long) {
		for len(times) > 0 && times[0] <= now() {
			times = times[1:]
			f.event()
		}
		for _, p := range f.all {
			p.tick()
		}
		if w := f.index(now()); f.index(now()+int64(time.Millisecond)) != w {
			for _, p := range f.all {
				p.mu.Lock()
				if p.end == 0 || now()+int64(time.Millisecond) < p.end {
					p.wanted[w+1] += p.pending
				}
				p.mu.Unlock()
			}
		}
		f.sample()
		time.Sleep(time.Millisecond)
	}
	for _, p := range f.all {
		p.mu.Lock()
		p.gone = true
		p.epoch++
		p.mu.Unlock()
	}
}

// exists returns how many permits of a window the instances that live can have. What a crash
// leaves to nobody is what they say that they lack.
func (f *fleetPlay) exists(w quota.Window) int64 {
	owners := slices.ContainsFunc(f.all, func(p *party) bool {
		joined := p.joined == 0 || protocol.FirstWindow(p.joined, &f.policy).UnixNano() <= w.Start()
		return joined && (p.end == 0 || w.Start() < p.end)
	})
	if !owners {
		return 0 // all that live are new
	}
	for _, g := range f.dead {
		if g.from < w.End() && w.Start() <= g.unknown {
			return 0 // nobody knows what it has used, or does not use
		}
		if g.from < w.End() && g.to > w.Start() {
			return f.shares[w.Index]
		}
	}
	return f.total
}

// sample notes what the shares sum to, in the middle of a window after a crash.
func (f *fleetPlay) sample() {
	if (now()-f.start)%int64(f.window) != int64(f.window)/2+int64(500*time.Microsecond) {
		return
	}
	if *useSeed == 0 && !slices.ContainsFunc(f.dead, func(g grave) bool { return g.to > now()-int64(f.window) }) {
		return
	}
	f.shares[f.index(now())] = 0
	for _, p := range f.all {
		if st := p.limiter.Status(); !p.left() && len(st.Limits) > 0 {
			f.shares[f.index(now())] += st.Limits[0].Share
			if *useSeed != 0 {
				f.note("%d: %v share %d used %d left %d, borrowed %d lent %d asks %d, instances %d", p.id, st.State, st.Limits[0].Share, st.Limits[0].Used, st.Limits[0].Left, st.Borrowed, st.Lent, st.Asks, st.Instances)
			}
		}
	}
}

// slowestFirst returns by how much more than a window a newcomer's callers have waited for a first
// permit at most, where they waited all the time, and others had shares. Of few permits
// some get none for windows.
func (f *fleetPlay) slowestFirst() (most time.Duration) {
	for _, p := range f.all {
		w := quota.WindowAt(f.window, p.firstCall)
		if p.joined == 0 || !p.always[w.Index] || p.gone && p.firstGot == 0 || f.exists(w) < f.total || f.total < 2*int64(len(f.all)) {
			continue
		}
		got := p.firstGot
		if got == 0 {
			got = now()
		}
		most = max(most, time.Duration(got-p.firstCall)-f.window)
	}
	return most
}

// sums returns what was due and came in windows.
func sums(all []windowUse) (due, came int64) {
	for _, u := range all {
		due, came = due+u.due, came+min(u.came, u.due)
	}
	return due, came
}

// windowUse is what became of a window.
type windowUse struct {
	waited            bool // some have waited for all of it
	w                 quota.Window
	exists, due, came int64
	by                string
}

func (f *fleetPlay) windows() (all []windowUse) {
	for at := f.start; at+int64(f.window) <= now(); at += int64(f.window) {
		w := quota.WindowAt(f.window, at)
		u := windowUse{w: w, exists: f.exists(w)}
		wanted := int64(0)
		for _, p := range f.all {
			u.waited = u.waited || p.always[w.Index] && !p.began[w.Index]
			if p.began[w.Index] { // others learn how much it wants
				wanted += p.got[w.Index]
			} else {
				wanted += p.wanted[w.Index]
			}
			u.came += p.got[w.Index]
			u.by += fmt.Sprintf(" %s%d %d/%d", kindNames[p.kind], p.id, p.got[w.Index], p.wanted[w.Index])
		}
		u.due = min(u.exists, wanted)
		all = append(all, u)
	}
	return all
}

// wasted is what did not come, as a part of what was due: of all windows, and of the worst three.
type wasted struct {
	all, three float64
	due, came  int64
}

// waste returns what was wasted in some windows, but for a permit of each instance and window: a
// share is a whole number, and the last permit is hard to lend.
func (f *fleetPlay) waste(windows []windowUse) (w wasted) {
	part := func(some []windowUse) float64 {
		due, came := sums(some)
		return max(0, float64(due-came-int64(len(some)*len(f.all)))/float64(max(1, due)))
	}
	for i := range len(windows) - 2 {
		w.three = max(w.three, part(windows[i:i+3]))
	}
	w.all = part(windows)
	w.due, w.came = sums(windows)
	return w
}

// verdict is what a fleet has wasted: while some always waited, and else, and slowestFirst.
type verdict struct {
	waited, other wasted
	first         time.Duration
	about         string
}

// playFleet plays the fleet of one seed.
func playFleet(t *testing.T, seed uint64) (v verdict) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleetPlay(t, seed)
		f.run()
		var waited, other []windowUse
		var all strings.Builder
		for _, u := range f.windows() {
			if u.came > f.total {
				t.Errorf("seed %d: %d permits came in %v", seed, u.came, u.w)
			}
			if u.due > 0 && u.waited {
				waited = append(waited, u)
			} else if u.due > 0 {
				other = append(other, u)
			}
			fmt.Fprintf(&all, "%s: of %d, %d were due, and %d came:%s\n", clockOf(u.w.Start()), u.exists, u.due, u.came, u.by)
		}
		v = verdict{f.waste(waited), f.waste(other), f.slowestFirst(), f.about}
		if *useSeed != 0 {
			t.Logf("%s\n%s", strings.Join(f.trace, "\n"), all.String())
		}
	})
	return v
}

// TestPermitsReachCallers plays small fleets at random in fake time, with messages that take up to
// 25 ms, joins, ends and crashes. It counts which part of the permits that were due did not come.
// Due is what callers want in a window, up to the shares of instances that live. What an instance
// wants in a window in which its callers have just begun is not due: others do not know it yet.
func TestPermitsReachCallers(t *testing.T) {
	if *useSeed != 0 {
		t.Logf("%+v", playFleet(t, *useSeed))
		return
	}
	var due, came int64
	count := *useCount
	if testing.Short() {
		count /= 4
	}
	for seed := *useFrom; seed < *useFrom+count; seed++ {
		v := playFleet(t, seed)
		due, came = due+v.waited.due+v.other.due, came+v.waited.came+v.other.came
		if *useAll {
			t.Logf("seed %d: %+v", seed, v)
		}
		// The worst are two instances that both want more than their shares, so both rest for up to
		// four windows, when the callers of one of them end.
		if v.waited.all > 0.25 || v.waited.three > 0.55 || v.other.all > 0.25 || v.other.three > 0.55 {
			t.Errorf("-use.seed %d: too much is wasted: %+v", seed, v)
		}
		if v.first > 100*time.Millisecond {
			t.Errorf("-use.seed %d: a newcomer's first permit takes a window and %v", seed, v.first)
		}
	}
	if used := float64(came) / float64(max(1, due)); used < 0.99 && count >= 40 {
		t.Errorf("%.4f of all permits that were due came", used)
	} else {
		t.Logf("%.4f of the %d permits that were due came", used, due)
	}
}
