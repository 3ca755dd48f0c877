package simulation

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// world is one history while it happens: true time, what is due, etcd and the
// hosts.
type world struct {
	plan
	*rand.Rand // for what belongs to no host
	mutant     *Mutant

	now   int64 // true time
	queue queue

	etcd  etcd
	hosts []*host
	timed []timed // policies' timing, to know when S may be lowered
	// sealed are the ends that incarnations have promised, for others to repeat.
	sealed []quota.Instance
	loans  []loan
	// askers have written that they were told to wait; refused: one has that most of
	// its calls were refused; forged: somebody else has written so.
	askers          map[string]bool
	refused, forged bool

	policies  map[string]*quota.Policy // values that were read, by text
	instances map[string]quota.Instance
	levels    map[string]*protocol.Level
	paces     map[string]*protocol.Pace
	written   int // numbers the values
	reader    view.Reader

	lengths []time.Duration // every window length that a policy had
	exact   bool            // the rule hold promises an exact sum after the outage too
	outage  int64           // from when etcd is away for all, MaxInt64: never
	unset   bool            // there was no policy for a while
	broken  []Violation     // what was seen to go wrong on the way
	stats   Stats
}

// at plans what the world does, and host.at what a host does.
func (w *world) at(t int64, do func()) { w.put(item{at: t, do: do}) }

func (w *world) put(x item) {
	if x.at >= w.end {
		return
	}
	x.at = max(x.at, w.now)
	w.queue.push(x)
}

// run lets everything happen.
func (w *world) run() {
	for w.queue.len() > 0 {
		x := w.queue.pop()
		w.now = x.at
		if h := x.host; h != nil {
			if h.dead {
				continue
			}
			if at := blocked(x.at, h.stalls); at > x.at {
				x.at = at
				w.put(x)
				continue
			}
		}
		x.do()
	}
}

func newWorld(p plan, m *Mutant) *world {
	w := &world{plan: p, mutant: m, Rand: rand.New(rand.NewPCG(p.seed, 7)), outage: math.MaxInt64, queue: newQueue(),
		policies: map[string]*quota.Policy{}, instances: map[string]quota.Instance{},
		levels: map[string]*protocol.Level{}, paces: map[string]*protocol.Pace{}, askers: map[string]bool{}}
	w.reader = view.Reader{Policy: w.readPolicy, Instance: w.readInstance, Level: w.readLevel, Pace: w.readPace}
	w.etcd = newEtcd(w)
	w.setPolicy(w.first)
	for i := range p.size {
		w.startHost(rand.New(rand.NewPCG(p.seed, uint64(100+i))), false)
	}
	for i := range p.events {
		if e := &p.events[i]; !e.dropped {
			w.at(e.at, func() { w.happen(e) })
		}
	}
	w.noise()
	return w
}

// noise is what others write to etcd: revisions without an event for us.
func (w *world) noise() {
	w.etcd.commit(change{})
	w.at(w.now+1+w.Int64N(240*ms), w.noise)
}
