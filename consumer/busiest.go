package consumer

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Rate is what calls for one key, or of one label, got and did not get, in permits per second.
type Rate struct {
	Name            string
	Issued, Refused float64
}

const (
	keysShown      = 50
	busiestCounted = 4 * keysShown
	busiestPeriod  = 10 * time.Second
	// noteBatch is how many permits of a key are counted before the counters hear of them.
	noteBatch = 64
)

// busiest counts permits of the busiest keys, or labels, by the space-saving algorithm (Metwally and
// others, 2005): a new key takes the counter of the one with the lowest weight, and that
// weight. So its memory is bounded, and a key with more than 1/200 of all permits in a period
// always has a counter. The rates of a key begin when it gets its counter.
type busiest struct {
	mu    sync.Mutex
	all   []keyCounter   // busiestCounted at most
	by    map[string]int // their places, by key
	began int64          // monotonic
	at    int64          // when last was made
	whole bool           // last is of a whole period
	last  []Rate

	issued, refused int64 // of all in this period
}

type keyCounter struct {
	key             string
	weight          int64
	issued, refused int64
}

// add counts permits of a key. Where issued is negative some were given back: they stay in the
// weight.
func (b *busiest) add(key string, issued, refused int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.issued, b.refused = b.issued+issued, b.refused+refused
	i, counted := b.by[key]
	switch {
	case counted:
	case issued <= 0 && refused <= 0:
		return
	case len(b.all) < busiestCounted:
		if i = len(b.all); i == 0 {
			b.by = map[string]int{}
		}
		b.all = append(b.all, keyCounter{key: key})
		b.by[key] = i
	default:
		i = b.lowest()
		delete(b.by, b.all[i].key)
		b.all[i] = keyCounter{key: key, weight: b.all[i].weight}
		b.by[key] = i
	}
	c := &b.all[i]
	c.weight, c.issued, c.refused = c.weight+max(0, issued)+refused, c.issued+issued, c.refused+refused
}

// lowest returns the place of the counter with the lowest weight.
func (b *busiest) lowest() (i int) {
	for j := range b.all {
		if b.all[j].weight < b.all[i].weight {
			i = j
		}
	}
	return i
}

// rates returns the busiest keys in the last whole period, at most most, the busiest first. In
// the first period it is what there was until now. If rest is not empty, all others together
// have that name. The caller must not change the slice.
func (b *busiest) rates(now int64, most int, rest string) []Rate {
	b.mu.Lock()
	defer b.mu.Unlock()
	elapsed := time.Duration(now - b.began)
	over := elapsed >= busiestPeriod
	if !over && (b.whole || time.Duration(now-max(b.at, b.began)) < time.Second) {
		return b.last
	}
	all := slices.SortedFunc(slices.Values(b.all), func(x, y keyCounter) int {
		return cmp.Or(cmp.Compare(y.issued+y.refused, x.issued+x.refused), cmp.Compare(x.key, y.key))
	})
	b.last, b.at, b.whole = make([]Rate, 0, min(len(all), most)+1), now, over
	others := keyCounter{key: rest, issued: b.issued, refused: b.refused}
	show := func(c *keyCounter) {
		b.last = append(b.last, Rate{c.key, float64(max(0, c.issued)) / elapsed.Seconds(), float64(c.refused) / elapsed.Seconds()})
	}
	for i := range all {
		if c := &all[i]; len(b.last) < most && c.key != rest {
			others.issued, others.refused = others.issued-c.issued, others.refused-c.refused
			show(c)
		}
	}
	if rest != "" && (others.issued > 0 || others.refused > 0) {
		show(&others)
	}
	if over {
		b.by, b.all, b.began, b.issued, b.refused = nil, nil, now, 0, 0
	}
	return b.last
}

// note counts permits of a key for the busiest keys, in batches. The caller has the state's
// lock, or the state is nobody's.
func (y *keyState) note(m *keys, issued, refused int64) {
	issued, refused = issued+int64(y.issued), refused+int64(y.refused)
	if issued+refused >= noteBatch {
		m.busiest.add(y.key.Name, issued, refused)
		issued, refused = 0, 0
	}
	y.issued, y.refused = uint8(issued), uint8(refused)
}

// tellBusiest passes on what note has kept. The caller has the state's lock.
func (y *keyState) tellBusiest(m *keys) {
	if y.issued > 0 || y.refused > 0 {
		m.busiest.add(y.key.Name, int64(y.issued), int64(y.refused))
		y.issued, y.refused = 0, 0
	}
}

// lacksKey counts permits refused for want of a key's, or of room for it.
func (o *origin) lacksKey(n int64) {
	o.core.keys.refused.Add(n)
	o.labelled(0, n)
}

// refusedKey counts n permits refused for want of a key's, and has others asked for some. The caller
// has the state's lock.
func (o *origin) refusedKey(y *keyState, n int64, how way, now int64) {
	o.lacksKey(n)
	y.note(&o.core.keys, 0, n)
	want := n
	if how == upTo {
		want = max(1, min(n, y.use.MostOfBudgets()))
	}
	y.lacks(o.core, n, o.class, want, now)
}

// maxReported bounds what the keys take of a report, and the labels, in bytes of JSON.
const maxReported = 4096

// reported are those of the busiest keys or labels for which a report has room.
func reported(all []Rate) (reported []protocol.Rate) {
	size := 0
	for _, r := range all {
		one := protocol.Rate{Name: r.Name, Issued: math.Round(r.Issued*10) / 10, Refused: math.Round(r.Refused*10) / 10}
		text, _ := json.Marshal(one) // a string and numbers: there is nothing to fail
		if size += len(text) + 1; size > maxReported {
			break
		}
		reported = append(reported, one)
	}
	return reported
}
