package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// Budget is a limit of more than a minute in the window that runs, or one of calls in flight.
type Budget struct {
	Limit   string    `json:"limit"`
	Permits int64     `json:"permits"`
	Left    int64     `json:"left"`         // taken by no instance
	End     time.Time `json:"end,omitzero"` // of the window; one that slides, or is in flight, has none
	// Flight is what instances have of a limit in flight, by their reports; nil for another limit.
	Flight *Flight `json:"in_flight,omitempty"`
}

// LeftOfKey names the command that shows what is left of a key, after what shows the keys; nothing if the policy gives keys no
// limit of more than a minute: then the command has nothing to show.
func LeftOfKey(p *quota.Policy, provider string) string {
	if of := protocol.OfKeys(p); of == nil || len(protocol.Long(of)) == 0 {
		return ""
	}
	return ", quota-admin budget " + provider + " --key KEY what is left of one"
}

// Flight are calls that are under way, and places for calls that instances have in hand: by their reports, and no more
// than are handed out.
type Flight struct {
	UnderWay int64 `json:"under_way"`
	InHand   int64 `json:"in_hand"`
	// Ended are places of which no report tells: those that instances took since, and those that none has that runs. The
	// latter are back by Back.
	Ended int64     `json:"ended,omitempty"`
	Back  time.Time `json:"back,omitzero"`
	// Forgotten are calls of which nobody has said that they ended, since the instances began.
	Forgotten int64 `json:"forgotten,omitempty"`
}

// BudgetOf returns a limit of a fleet.
func BudgetOf(b *protocol.BudgetUse, instances []protocol.InstanceStatus) Budget {
	of := Budget{Limit: b.String(), Permits: b.Permits, Left: b.Left}
	if !b.ByParts() {
		of.End = time.Unix(0, b.End).UTC()
	}
	if b.InFlight {
		of.Flight = &Flight{}
		silent := false
		for i := range instances {
			if r := instances[i].Report; r != nil {
				hand, used := r.InHand(&b.Budget)
				of.Flight.UnderWay, of.Flight.InHand = of.Flight.UnderWay+used, of.Flight.InHand+hand
				of.Flight.Forgotten += r.Forgotten
			} else {
				silent = true
			}
		}
		if b.Withheld == "" {
			of.Flight.UnderWay, of.Flight.InHand = Told(b.Taken, of.Flight.UnderWay, of.Flight.InHand)
		}
		if ended := b.Taken - of.Flight.UnderWay - of.Flight.InHand; ended > 0 && !silent && b.Withheld == "" {
			of.Flight.Ended, of.Flight.Back = ended, time.Unix(0, b.Back).UTC()
		}
	}
	return of
}

// Told returns how many calls are under way, and how many places in hand, by reports of instances and by what etcd
// has handed out. Reports are of different times: a place that went from one instance to another can be in both.
func Told(out, underWay, inHand int64) (int64, int64) {
	underWay = min(underWay, out)
	return underWay, min(inHand, out-underWay)
}

// Exhausted returns the instant at which nothing is left if so many permits a second are
// issued from now on; the zero time if the window ends before.
func (b Budget) Exhausted(perSecond float64, now time.Time) time.Time {
	if perSecond <= 0 || b.End.IsZero() {
		return time.Time{}
	}
	if last := float64(b.Left) / perSecond; last < b.End.Sub(now).Seconds() {
		return now.Add(time.Duration(last * float64(time.Second))).UTC().Truncate(time.Second)
	}
	return time.Time{}
}

// Foretell says when the budget is used up at that rate; "" if its window ends before.
func (b Budget) Foretell(perSecond float64, now time.Time) string {
	at := b.Exhausted(perSecond, now)
	if at.IsZero() {
		return ""
	}
	return fmt.Sprintf("at %.4g/s, %s is used up at %s, %v before its window ends", perSecond, b.Limit, format.When(at), b.End.Sub(at).Round(time.Second))
}

// Foreseen is a budget and when it is used up at the present rate; left out if its window
// ends before, or the rate is not known.
type Foreseen struct {
	Budget
	Exhausted time.Time `json:"exhausted,omitzero"`
}

// Budgets returns the limits of more than a minute, and what becomes of them. It is never
// nil, so that it is a list in JSON.
func (p *Provider) Budgets() []Foreseen {
	all := []Foreseen{}
	for _, b := range p.Status.Budgets {
		f := Foreseen{Budget: b}
		if p.Row.Issued != nil {
			f.Exhausted = b.Exhausted(*p.Row.Issued, p.At)
		}
		all = append(all, f)
	}
	return all
}

// barLength is the length of a bar in characters.
const barLength = 10

// String draws a bar of what is left.
func (b Budget) String() string {
	full := int((b.Left*barLength + b.Permits - 1) / max(1, b.Permits))
	text := fmt.Sprintf("%s [%-*s] ", b.Limit, barLength, strings.Repeat("#", min(full, barLength)))
	switch {
	case b.Flight != nil:
		text += fmt.Sprintf("%d under way, %d in hand, %d free", b.Flight.UnderWay, b.Flight.InHand, b.Left)
		if b.Flight.Ended > 0 {
			text += fmt.Sprintf(", %d %s", b.Flight.Ended, cause.Stranded)
		}
		return text
	case b.End.IsZero():
		return text + fmt.Sprintf("%d left", b.Left)
	}
	return text + fmt.Sprintf("%d left until %s", b.Left, format.Exact(b.End))
}
