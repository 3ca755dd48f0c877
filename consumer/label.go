package consumer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quotient-limiter/quotient/consumer/internal/tally"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

const (
	labelsShown   = 20
	labelsCounted = 20 // by name since the start
)

// Label returns a handle of this limiter whose calls have a label, such as the job that makes
// them: Status, metrics, quota-admin and its dashboard say how many permits calls of each label
// got. A label changes nothing else. All handles have one counter and one queue. The handle
// keeps the class, Class keeps the label, and Key keeps both. A label of a handle that has one
// replaces it.
//
// A name is 1 to 64 bytes of valid UTF-8 without control characters. Calls with another name get
// ErrInvalid. Name kinds of work, not users: 20 labels are shown by name, and all others
// together as "other". Permits given back count no more, and a cost above the permits counts
// when it is settled. Calls that shadow mode lets pass do not count.
//
// A call with a label takes a lock, for some 20 ns. Each Label makes a new handle: keep it where
// calls are many. It needs no Close: closing one handle closes the limiter.
func (l *Limiter) Label(name string) *Limiter {
	if protocol.ValidateLabel(name) != nil {
		return l.with(l.class, &label{name: name}, true)
	}
	return l.with(l.class, l.core.labels.named(name), false)
}

// with returns a handle for calls of a class with a label.
func (l *Limiter) with(c queue.Class, of *label, bad bool) *Limiter {
	return &Limiter{origin{l.core, c, of}, bad, l.all}
}

// invalid returns the error for a call for n permits that cannot be meant.
func (l *Limiter) invalid(ctx context.Context, n int64) error {
	switch {
	case ctx == nil:
		return fmt.Errorf("consumer: %s: %w", l.core.provider, errNilContext)
	case l.bad:
		return fmt.Errorf("consumer: %s: %w: %w", l.core.provider, ErrInvalid, protocol.ValidateLabel(l.label.name))
	}
	return invalid(n)
}

// labelledFunc is the function of TakeFunc of a handle with a label.
type labelledFunc struct {
	of *origin
	f  func(Permit, error)
}

// callback is what the dispatcher calls f by.
func (l *Limiter) callback(f func(Permit, error)) any {
	if l.label == nil {
		return f
	}
	return &labelledFunc{&l.origin, f}
}

// labels count permits by label. The first names have counters of their own until the limiter
// is closed, so that metrics have few series. The busiest names change.
type labels struct {
	busiest tally.Busiest
	rest    labelCount // of all labels but the first

	mu    sync.RWMutex
	first map[string]*labelCount

	// bare are the permits of calls without a label as busiest counts them; guarded by core.mu.
	bareIssued, bareRefused int64
	bareCosts               atomic.Pointer[tally.Costs] // of calls without a label
}

// label is a label of calls.
type label struct {
	name  string
	count *labelCount
}

// labelCount counts permits since the start, and knows what calls have cost of late.
type labelCount struct {
	issued, refused atomic.Int64
	costs           atomic.Pointer[tally.Costs] // nil until Usual is called
}

// named returns the label with a valid name.
func (m *labels) named(name string) *label {
	m.mu.RLock()
	count := m.first[name]
	m.mu.RUnlock()
	if count == nil {
		count = m.enter(name)
	}
	return &label{name, count}
}

// enter returns the counter of a name: a new one, if it is among the first.
func (m *labels) enter(name string) *labelCount {
	m.mu.Lock()
	defer m.mu.Unlock()
	if count := m.first[name]; count != nil {
		return count
	}
	if name == protocol.OtherLabel || len(m.first) == labelsCounted {
		return &m.rest
	}
	if m.first == nil {
		m.first = map[string]*labelCount{}
	}
	name = strings.Clone(name)
	count := &labelCount{}
	m.first[name] = count
	return count
}

// add counts permits of a label; a negative number was given back.
func (m *labels) add(of *label, issued, refused int64) {
	of.count.issued.Add(issued)
	of.count.refused.Add(refused)
	m.busiest.Add(of.name, issued, refused)
}

// labelled counts permits of the label, if there is one. It is inlined.
func (o *origin) labelled(issued, refused int64) {
	if o.label != nil {
		o.core.labels.add(o.label, issued, refused)
	}
}

// tell adds the uses by label to a status, which has all permits. Calls without a label are all
// others, so that they count no more than without labels. The caller has core.mu.
func (m *labels) tell(st *Status, now int64) {
	issued, refused := m.rest.issued.Load(), m.rest.refused.Load()
	m.mu.RLock()
	used := len(m.first) > 0 || issued != 0 || refused != 0
	if used {
		st.IssuedByLabel, st.RefusedByLabel = map[string]int64{protocol.OtherLabel: issued}, map[string]int64{protocol.OtherLabel: refused}
	}
	for name, c := range m.first {
		st.IssuedByLabel[name], st.RefusedByLabel[name] = c.issued.Load(), c.refused.Load()
		issued, refused = issued+st.IssuedByLabel[name], refused+st.RefusedByLabel[name]
	}
	m.mu.RUnlock()
	bareIssued, bareRefused := max(m.bareIssued, st.Issued-issued), max(m.bareRefused, st.Refused+st.KeysRefused-refused)
	if used {
		m.busiest.Add("", bareIssued-m.bareIssued, bareRefused-m.bareRefused)
	}
	m.bareIssued, m.bareRefused = bareIssued, bareRefused
	st.BusiestLabels = ratesOf(m.busiest.Rates(now, labelsShown, protocol.OtherLabel))
}
