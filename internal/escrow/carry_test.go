package escrow

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// The model of a limit whose windows change: instances follow a policy, a little late, and take permits of the
// totals of its windows. An operator changes when these begin, and whether they slide. Of a key he changes how long they
// are too, by overrides that come, change and go.
const (
	changingWindow = 2 * time.Minute
	changingError  = 200 * time.Millisecond // of each clock; a call to the provider takes as long at most
	changingSettle = 20 * time.Second
)

// issued is a permit by the provider's own count.
type issued struct {
	epoch   int   // the policy by which it was taken
	clock   int64 // of the issuer
	arrives int64 // at the provider
}

type follower struct {
	off   int64
	epoch int // of the policy that it knows
	of    protocol.Budget
	purse Purse
	used  int64
}

// changing plays one history.
type changing struct {
	r         *rand.Rand
	now       int64
	limit     int64
	key       string       // that has overrides; empty: it is the provider's limit
	each      quota.Policy // of all keys
	override  *protocol.Override
	policies  []quota.Policy // by epoch: what the provider or the key has
	since     []int64        // when each was set
	was       []protocol.Was
	totals    map[string][]byte
	revisions map[string]int64
	revision  int64
	all       []*follower
	late      []func()
	permits   []issued
	carried   int
	log       []string
}

func (h *changing) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf("%.1f: ", float64(h.now)/1e9)+fmt.Sprintf(format, args...))
}

func policyOf(limit quota.Limit) quota.Policy {
	return quota.Policy{Limits: []quota.Limit{limit}, Timing: quota.Timing{Settle: changingSettle, ClockError: changingError}}
}

func (h *changing) set(limit quota.Limit) {
	next, now := policyOf(limit), time.Unix(0, h.now+h.error())
	if n := len(h.policies); n > 0 && h.key == "" {
		h.was = protocol.ReplaceLong(h.was, &h.policies[n-1], &next, now)
	}
	h.follow(next)
}

// follow lets the windows be those of a policy from now on.
func (h *changing) follow(p quota.Policy) {
	h.policies, h.since = append(h.policies, p), append(h.since, h.now)
	h.note("policy %d: %v", len(h.policies)-1, p.Limits[0])
}

// setKeys sets the limit of all keys, or an override of the key or, if limit is zero, deletes it.
func (h *changing) setKeys(limit quota.Limit, all bool) {
	now, own := time.Unix(0, h.now+h.error()), h.override
	if all {
		next := h.each
		next.Keys.Limits = []quota.Limit{limit}
		h.was = protocol.ReplaceLong(h.was, &h.each, &next, now)
		h.each = next
	} else {
		if own = nil; limit.Window != 0 {
			own = &protocol.Override{Limits: []quota.Limit{limit}}
		}
		h.was = protocol.ReplaceLongOfKeys(h.was, &h.each, map[string]protocol.KeyChange{h.key: {Old: h.override, New: own}}, now)
		h.override = own
	}
	h.follow(policyOf(own.In(h.each.Keys).Limits[0]))
}

func (h *changing) error() int64 {
	return h.r.Int64N(2*int64(changingError)+1) - int64(changingError)
}

func nameOf(b *protocol.Budget) string { return fmt.Sprintf("%s/%d", b.Name(), b.TotalStart()) }

// learn brings an instance to a newer policy, at the latest once the former has been replaced for the settle time.
func (h *changing) learn(p *follower) {
	newest := len(h.policies) - 1
	if p.epoch < newest && (h.r.IntN(60) == 0 || h.now > h.since[p.epoch+1]+int64(changingSettle)) {
		p.epoch = newest
		p.of, p.purse, p.used = protocol.Budget{}, Purse{}, 0
	}
	now := protocol.BudgetAt(h.policies[p.epoch].Limits[0], time.UTC, h.now+p.off)
	if now.Start > p.of.Start {
		purse := Purse{Part: now.Part()}
		if now.Sliding && p.of.Sliding {
			purse = p.purse.In(now.Part()) // what is left of the part before is lost
		}
		p.of, p.purse, p.used = now, purse, 0
	}
}

func (h *changing) take(p *follower) {
	verdict, name, epoch := &Verdict{Cluster: 1}, nameOf(&p.of), p.epoch
	rule := Rule{Limit: h.limit, Instances: int64(len(h.all)), Share: h.r.Int64N(9) - 1, Nonce: h.r.Uint32() | 1}
	p.purse.Read(h.totals[name], h.revisions[name], verdict)
	if to := protocol.CarriedTo(h.was, &p.of, h.key); to > p.purse.Total().CarriedTo {
		var before []Before
		for _, w := range protocol.Overlapping(h.was, &p.of, h.key) {
			b := Before{WasWindow: w, Purse: Purse{Part: w.Part()}}
			b.Purse.Read(h.totals[nameOf(&w.Budget)], h.revisions[nameOf(&w.Budget)], verdict)
			before = append(before, b)
		}
		rule.Carried, rule.CarriedTo = Carry(before, &p.of), to
	}
	next, n, ok := p.purse.Next(rule, Use{Used: p.used, Need: h.r.Int64N(4), Rate: h.r.Int64N(4)}, Back{}, verdict)
	if !ok {
		return
	}
	at := p.purse.Revision()
	commit := func() bool {
		if h.revisions[name] != at || epoch != len(h.policies)-1 {
			return false
		}
		text, err := Encode(next)
		if err != nil {
			panic(err)
		}
		h.revision++
		h.totals[name], h.revisions[name] = []byte(text), h.revision
		if len(next.Carried) > 0 {
			h.carried++
		}
		return true
	}
	switch h.r.IntN(8) {
	case 0:
		h.late = append(h.late, func() { h.note("late %+v: %v", next, commit()) })
	case 1:
		h.note("unanswered %+v: %v", next, commit())
	default:
		if commit() {
			p.purse.Committed(next, n, h.revision, verdict)
			h.note("took %d of %v by policy %d: %+v", n, p.of.Limit, epoch, next)
		}
	}
}

func (h *changing) issue(p *follower) {
	for range min(p.purse.Taken-p.used, 1+h.r.Int64N(3)) {
		p.used++
		h.permits = append(h.permits, issued{p.epoch, h.now + p.off, h.now + h.r.Int64N(int64(changingError)+1)})
	}
}

func (h *changing) step() {
	p := h.all[h.r.IntN(len(h.all))]
	h.now += h.r.Int64N(int64(changingWindow) / 80)
	h.learn(p)
	switch k := h.r.IntN(100); {
	case k < 45:
		if h.take(p); h.r.IntN(3) == 0 {
			h.issue(p)
		}
	case k < 90:
		h.issue(p)
	case k < 94 && len(h.late) > 0:
		i := h.r.IntN(len(h.late))
		h.late[i]()
		h.late = slices.Delete(h.late, i, i+1)
	case k < 96: // crash, and another one
		*p = follower{off: h.error(), epoch: len(h.policies) - 1}
	case k < 97 && h.key != "":
		h.changeKeys()
	case k < 97:
		h.set([]quota.Limit{
			{Permits: h.limit, Window: changingWindow},
			{Permits: h.limit, Window: changingWindow, Phase: 50 * time.Second},
			{Permits: h.limit, Window: changingWindow, Phase: 90 * time.Second},
			{Permits: h.limit, Window: changingWindow, Sliding: true},
			{Permits: h.limit, Window: changingWindow, Sliding: true},
		}[h.r.IntN(5)])
	}
}

// changeKeys changes the limit of all keys, or that of the key alone: of its length or of others, which come and go.
func (h *changing) changeKeys() {
	limit := quota.Limit{Permits: h.limit, Window: changingWindow * time.Duration(1+h.r.IntN(3))}
	switch h.r.IntN(6) {
	case 0:
		h.setKeys(quota.Limit{}, false)
	case 1, 2:
		limit.Sliding = h.r.IntN(3) == 0
		if !limit.Sliding {
			limit.Phase = time.Duration(h.r.IntN(3)) * 25 * time.Second
		}
		h.setKeys(limit, true)
	default:
		h.setKeys(limit, false)
	}
}

// over returns what a provider has counted too much, by the windows of the policy by which each permit was issued:
// empty if nothing.
func (h *changing) over() string {
	for _, z := range h.permits {
		limit := h.policies[z.epoch].Limits[0]
		count := func(from, to int64, at func(issued) int64) (n int64) {
			for _, o := range h.permits {
				if o.epoch <= z.epoch && at(o) >= from && at(o) < to {
					n++
				}
			}
			return n
		}
		if !limit.Sliding {
			w := protocol.BudgetAt(limit, time.UTC, z.clock)
			if n := count(w.Start, w.End, func(o issued) int64 { return o.clock }); n > h.limit {
				return fmt.Sprintf("%d in the window of %v from %.1f", n, limit, float64(w.Start)/1e9)
			}
			continue
		}
		for _, first := range h.permits {
			if from := first.arrives; from <= z.arrives && z.arrives <= from+int64(limit.Window) {
				if n := count(from, from+int64(limit.Window)+1, func(o issued) int64 { return o.arrives }); n > h.limit {
					return fmt.Sprintf("%d in the %v from %.1f", n, limit, float64(from)/1e9)
				}
			}
		}
	}
	return ""
}

// Where the windows of a limit change, a provider that counts by the new ones counts what was handed out before too.
func TestChangesOfWindowsCarryTheCount(t *testing.T) {
	t.Parallel()
	permits, carried, changes := 0, 0, 0
	for seed := range uint64(800) {
		h := &changing{r: rand.New(rand.NewPCG(seed+1000, 5)), now: int64(time.Hour), totals: map[string][]byte{}, revisions: map[string]int64{}}
		h.limit = 5 + h.r.Int64N(20)
		long := changingWindow * time.Duration(1+h.r.IntN(2))
		first := quota.Limit{Permits: h.limit, Window: long}
		if seed%2 == 1 {
			h.key, h.each = "tenant", policyOf(quota.Limit{Permits: 1, Window: time.Second})
			h.each.Keys.Limits = []quota.Limit{first}
		}
		h.set(first)
		for range 1 + h.r.IntN(3) {
			h.all = append(h.all, &follower{off: h.error()})
		}
		for range 600 {
			h.step()
		}
		if what := h.over(); what != "" {
			t.Fatalf("seed %d: of %d permits %s\n%s", seed, h.limit, what, strings.Join(h.log, "\n"))
		}
		permits, carried, changes = permits+len(h.permits), carried+h.carried, changes+len(h.policies)-1
	}
	t.Logf("%d permits, %d changes, %d totals with permits of others", permits, changes, carried)
	if carried < 1000 {
		t.Error("nothing was tested")
	}
}

// Permits count until the last of them may have been issued: by the end of the old window, or of the policy. Where
// nobody knows how many there were, they are taken for all.
func TestWhatIsCarriedCountsUntilItsEnd(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour)
	old := func(from, out int64, withheld string) Before {
		text, err := Encode(Total{Limit: 50, Out: out, Cluster: 1, Withheld: withheld})
		if err != nil {
			t.Fatal(err)
		}
		limit := quota.Limit{Permits: 50, Window: time.Hour}
		b := Before{WasWindow: protocol.WasWindow{Budget: protocol.BudgetAt(limit, time.UTC, from), Replaced: 10*hour + hour/2}}
		b.Purse.Read([]byte(text), 1, &Verdict{Cluster: 1})
		return b
	}
	windows := []Before{old(10*hour, 30, ""), old(9*hour, 20, ""), old(8*hour, 0, "")}
	fixed := protocol.BudgetAt(quota.Limit{Permits: 50, Window: time.Hour, Phase: time.Minute}, time.UTC, 10*hour+hour/3)
	sliding := protocol.BudgetAt(quota.Limit{Permits: 50, Window: time.Hour, Sliding: true}, time.UTC, 10*hour+hour/3)
	for _, c := range []struct {
		in   protocol.Budget
		all  []Before
		want []Carried
	}{
		{fixed, windows, []Carried{{N: 50}}},
		{sliding, windows, []Carried{{30, 1049}, {20, 999}}},
		{fixed, []Before{old(10*hour, 7, "a restore")}, []Carried{{N: 50}}},
		{sliding, []Before{old(9*hour, 7, "a restore")}, []Carried{{50, 1049}}},
		{fixed, nil, nil},
	} {
		if got := Carry(c.all, &c.in); !slices.Equal(got, c.want) {
			t.Errorf("%v: %+v, want %+v", c.in.Limit, got, c.want)
		}
	}
}
