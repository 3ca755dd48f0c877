package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
)

// mark asks what a provider's mark says: by which one it is replaced before permits are taken, and
// after an operator's word for all keys; and whether permits of a window are taken and given back by
// it and the total that is there.
func mark(r *rand.Rand) question {
	coin := func() bool { return r.IntN(2) == 0 }
	one := func(is bool) int64 {
		if is {
			return 1
		}
		return 0
	}
	text := func(value string, err error) []byte {
		if err != nil {
			panic(err)
		}
		return []byte(value)
	}
	var l line
	l.WriteString("mark")
	here := 1 + r.Uint64N(2)

	// The mark.
	kept := escrow.Mark{Cluster: 1 + r.Uint64N(2), Before: max(0, r.Int64N(40)-10), KeysTold: r.IntN(3) == 0}
	var m escrow.MarkAt
	switch kind := r.Int64N(5); {
	case kind < 2: // 0: there is none; 1: it cannot be read
		revision := kind * (1 + r.Int64N(9))
		m = escrow.ReadMark([]byte("rubbish"), revision, here)
		l.ints(kind)
	default:
		m = escrow.ReadMark(text(escrow.Encode(kept)), 1+r.Int64N(9), here)
		l.ints(2, int64(kept.Cluster), kept.Before, one(kept.KeysTold))
	}
	left, clock, bound := int64(0), 1+r.Int64N(40), r.Int64N(5)
	switch r.IntN(3) {
	case 0:
		left = 1 + r.Int64N(40)
	case 1: // at the edge
		left = max(0, kept.Before-4*bound-2+r.Int64N(3))
	}
	l.ints(int64(here), left, clock, bound)
	said := func(m escrow.Mark) string { return fmt.Sprint(m.Cluster, ",", m.Before, ",", one(m.KeysTold)) }
	answers := []string{"0"}
	if next, ok := m.Renewed(left, clock, time.Duration(bound)); ok {
		answers = []string{"1", said(next)}
	}
	answers = append(answers, said(m.WithKeysTold(clock, time.Duration(bound))))

	// The window.
	start, ofKey := r.Int64N(40), coin()
	if coin() { // at the edge
		start = max(0, kept.Before-r.Int64N(2))
	}
	store := m.Of(start, ofKey)
	l.ints(m.Revision, start, one(ofKey))
	answers = append(answers, fmt.Sprint(one(store.Lost != ""), ",", store.Told))

	// Its total.
	var p escrow.Purse
	total, revision, value := escrow.Total{Cluster: 1 + r.Uint64N(2), Out: 1 + r.Int64N(9)}, int64(0), []byte(nil)
	if r.IntN(3) == 0 {
		total.Withheld = "an instance knows of more"
	}
	there, readable := r.IntN(3) > 0, r.IntN(4) > 0
	if there {
		revision = 1 + r.Int64N(9)
		if value = text(escrow.Encode(total)); !readable {
			value = []byte("rubbish")
		}
	}
	l.ints(one(there), int64(total.Cluster), one(total.Withheld != ""), one(!readable), revision)
	p.Read(value, revision, store)
	rule := escrow.Rule{Limit: 20, Instances: 1, Share: -1}
	took, n, takes := p.Next(rule, escrow.Use{Need: 1}, escrow.Back{}, store)
	gave, _, gives := p.Next(rule, escrow.Use{}, escrow.Back{N: 1}, store)
	if !there { // there is nothing to be given back
		gives, gave = takes, took
	}
	answers = append(answers, fmt.Sprint(one(p.Withheld() == ""), ",", one(takes && n > 0), ",", one(gives)))
	for _, next := range []escrow.Total{took, gave} { // it names its writer
		answers = append(answers, fmt.Sprint(next.Cluster))
	}
	return question{l.String(), strings.Join(answers, ",")}
}
