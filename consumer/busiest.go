package consumer

import (
	"encoding/json"
	"math"

	"github.com/quotient-limiter/quotient/consumer/internal/tally"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Rate is what calls for one key, or of one label, got and did not get, in permits per second.
type Rate struct {
	Name            string
	Issued, Refused float64
}

const (
	// keysShown bounds Status.BusiestKeys.
	keysShown = 50
	// noteBatch is how many permits of a key are counted before the counters hear of them.
	noteBatch = 64
)

// ratesOf makes rates public.
func ratesOf(all []tally.Rate) []Rate {
	rates := make([]Rate, 0, len(all))
	for _, r := range all {
		rates = append(rates, Rate(r))
	}
	return rates
}

// note counts permits of a key for the busiest keys, in batches. issued is less than 0 if permits came back. The caller
// has the state's lock, or the state is nobody's.
func (y *keyState) note(m *keys, issued, refused int64) {
	issued, refused = issued+int64(y.issued), refused+int64(y.refused)
	if issued < 0 || issued+refused >= noteBatch {
		m.busiest.Add(y.key.Name, issued, refused)
		issued, refused = 0, 0
	}
	y.issued, y.refused = uint8(issued), uint8(refused)
}

// tellBusiest passes on what note has kept. The caller has the state's lock.
func (y *keyState) tellBusiest(m *keys) {
	if y.issued > 0 || y.refused > 0 {
		m.busiest.Add(y.key.Name, int64(y.issued), int64(y.refused))
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
	y.noteLack(o.core, n, o.class, how != upTo && y.large(o.core, n), want, now)
}

// tellQuiet has refused hear of what the front of the key that is quiet has refused. The caller holds no lock of a key.
func (m *keys) tellQuiet() {
	if y := m.quiet.Load(); y != nil {
		y.hold(m)
		y.mu.Unlock()
	}
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
