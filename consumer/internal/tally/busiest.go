package tally

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// Counters bounds how many keys have a counter.
	Counters = 200
	// Period is for how long permits are counted. Rates are of the last whole period.
	Period = 10 * time.Second
)

// Rate is what calls for one key, or of one label, got and did not get, in permits per second.
type Rate struct {
	Name            string
	Issued, Refused float64
}

// Busiest counts permits of the busiest keys, or labels, by the space-saving algorithm (Metwally and
// others, 2005): a new key takes the counter of the one with the lowest weight, and that
// weight. So its memory is bounded, and a key with more than one in Counters of all permits in a period
// always has a counter. The rates of a key begin when it gets its counter.
// Begin comes first; after it all methods are safe for concurrent use.
type Busiest struct {
	mu    sync.Mutex
	all   []counter      // Counters at most
	by    map[string]int // their places, by key
	began int64          // monotonic
	at    int64          // when last was made
	whole bool           // last is of a whole period
	last  []Rate

	issued, refused int64 // of all in this period
}

type counter struct {
	key             string
	weight          int64
	issued, refused int64
}

// Begin begins the first period, at a monotonic instant.
func (b *Busiest) Begin(now int64) { b.began = now }

// Add counts permits of a key. Where issued is negative some were given back: they stay in the
// weight.
func (b *Busiest) Add(key string, issued, refused int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.issued, b.refused = b.issued+issued, b.refused+refused
	i, counted := b.by[key]
	switch {
	case counted:
	case issued <= 0 && refused <= 0:
		return
	case len(b.all) < Counters:
		if i = len(b.all); i == 0 {
			b.by = map[string]int{}
		}
		b.all = append(b.all, counter{key: key})
		b.by[key] = i
	default:
		i = b.lowest()
		delete(b.by, b.all[i].key)
		b.all[i] = counter{key: key, weight: b.all[i].weight}
		b.by[key] = i
	}
	c := &b.all[i]
	c.weight, c.issued, c.refused = c.weight+max(0, issued)+refused, c.issued+issued, c.refused+refused
}

// lowest returns the place of the counter with the lowest weight.
func (b *Busiest) lowest() (i int) {
	for j := range b.all {
		if b.all[j].weight < b.all[i].weight {
			i = j
		}
	}
	return i
}

// Rates returns the busiest keys in the last whole period before the monotonic instant now, at most
// most of them, the busiest first. In the first period it is what there was until now. If rest is not
// empty, all others together have that name. The caller must not change the slice.
func (b *Busiest) Rates(now int64, most int, rest string) []Rate {
	b.mu.Lock()
	defer b.mu.Unlock()
	elapsed := time.Duration(now - b.began)
	over := elapsed >= Period
	if !over && (b.whole || time.Duration(now-max(b.at, b.began)) < time.Second) {
		return b.last
	}
	all := slices.SortedFunc(slices.Values(b.all), func(x, y counter) int {
		return cmp.Or(cmp.Compare(y.issued+y.refused, x.issued+x.refused), cmp.Compare(x.key, y.key))
	})
	b.last, b.at, b.whole = make([]Rate, 0, min(len(all), most)+1), now, over
	others := counter{key: rest, issued: b.issued, refused: b.refused}
	show := func(c *counter) {
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
