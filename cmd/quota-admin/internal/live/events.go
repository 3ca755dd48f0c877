package live

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Event is something that happened to a provider's instances. If its Kind is Lost or Gone, it happened between At and
// Until.
type Event struct {
	At    int64  `json:"t"`               // milliseconds since the Unix epoch
	Until int64  `json:"until,omitempty"` // the same; 0 where it has no end, or none yet
	Kind  string `json:"kind"`            // the first word of Text, or Change, Pause or Outage
	Text  string `json:"text"`
}

const (
	eventsAtMost = 100
	namesAtMost  = 5 // in an event
	// askedAtMost is of how many instances etcd is asked at one look how they ended: for so many that takes 0.3 s.
	askedAtMost = 1000
	// calm is how long nothing is refused until refusals have ended.
	calm = 5 * time.Second
)

func (p *Provider) event(now time.Time, kind, text string) {
	p.remember(Event{At: now.UnixMilli(), Kind: kind, Text: kind + " " + text})
}

// remember keeps an event, in its place, and the newest of all.
func (p *Provider) remember(e Event) {
	p.Events = append(p.Events, e)
	slices.SortStableFunc(p.Events, func(x, y Event) int { return cmp.Compare(x.At, y.At) })
	p.Events = p.Events[max(0, len(p.Events)-eventsAtMost):]
}

// seePauses notes the pauses that the provider asked instances for by a 429.
func (p *Provider) seePauses(now time.Time) {
	if p.Fleet.Throttle == nil {
		return
	}
	newest := p.asked
	for _, a := range p.Fleet.Throttle.Asks {
		if a.At.After(p.asked) && !a.At.After(now) {
			p.remember(Event{At: a.At.UnixMilli(), Until: a.Until.UnixMilli(), Kind: "Pause", Text: "Paused by the provider, as " + a.By + " was told: " + a.Why})
		}
		if a.At.After(newest) && !a.At.After(now) {
			newest = a.At
		}
	}
	p.asked = newest
}

// Outage says what instances do while etcd is away, by the policy's rule.
func (p *Provider) Outage() string {
	s := &p.Fleet.Policy
	switch policy := s.Policy.WithDefaults(); {
	case s.Revision == 0 || s.Problem != nil:
		return "instances issue nothing without a policy"
	case policy.Mode == quota.ModePause:
		return "instances stay paused"
	case policy.Outage == quota.OutageStop:
		return fmt.Sprintf("by rule stop, instances issue nothing from %v after etcd's last answer on", policy.Freshness)
	}
	return "by rule hold, instances go on with the shares they had; new ones get none"
}

// seeInstances notes who has come and who has gone since the look before. What the keys said last of those who have gone
// is in ended, unless they had announced it at the look before, or etcd did not tell.
func (p *Provider) seeInstances(before *protocol.Fleet, looked, now time.Time, ended map[string]protocol.Instance) {
	if looked.IsZero() {
		return
	}
	var left, lost, either []protocol.Instance
	for _, i := range missing(before, p.Fleet) {
		last, told := ended[i.ID]
		if told {
			i.Until = last.Until
		}
		switch {
		case over(&i, now):
			left = append(left, i)
		case told:
			lost = append(lost, i)
		default:
			either = append(either, i)
		}
	}
	slices.SortFunc(left, func(x, y protocol.Instance) int { return x.Until.Compare(y.Until) })
	for len(left) > 0 { // an event for all of a second
		first, n := left[0].Until, 1
		for n < len(left) && left[n].Until.Sub(first) < time.Second {
			n++
		}
		p.named(left[:n], Event{At: min(first.UnixMilli(), now.UnixMilli()), Kind: "Left"})
		left = left[n:]
	}
	within := ""
	if apart := now.Sub(looked).Round(time.Second); apart > 2*time.Second {
		within = fmt.Sprintf(" within the next %v", apart)
	}
	// etcd does not tell at which instant a lease ended. The instance was there at the look before.
	p.named(lost, Event{looked.UnixMilli(), now.UnixMilli(), "Lost", within})
	p.named(either, Event{looked.UnixMilli(), now.UnixMilli(), "Gone", within + " (left or lost: etcd does not tell)"})
	p.named(missing(p.Fleet, before), Event{At: now.UnixMilli(), Kind: "Joined"})
}

// missing returns the instances of one look that another one lacks.
func missing(of, in *protocol.Fleet) (all []protocol.Instance) {
	has := make(map[string]bool, len(in.Instances))
	for i := range in.Instances {
		has[in.Instances[i].Instance.ID] = true
	}
	for i := range of.Instances {
		if x := &of.Instances[i].Instance; !has[x.ID] {
			all = append(all, *x)
		}
	}
	return all
}

// over reports whether the end that an instance has announced has come. Clocks may differ by a second.
func over(i *protocol.Instance, now time.Time) bool {
	return !i.Until.IsZero() && !i.Until.After(now.Add(time.Second))
}

// unexplained returns the instances that a look finds no more, and that had not announced that at the look before: the
// first ones if there are many.
func (p *Provider) unexplained(now time.Time, f *protocol.Fleet) (ids []string) {
	for _, i := range missing(p.Fleet, f) {
		if !over(&i, now) {
			ids = append(ids, i.ID)
		}
	}
	return ids[:min(len(ids), askedAtMost)]
}

// named keeps an event of instances, if there are any. Its text is what follows on their names.
func (p *Provider) named(all []protocol.Instance, e Event) {
	if len(all) == 0 {
		return
	}
	var names []string
	for _, i := range all {
		names = append(names, cmp.Or(i.Name, i.ID))
	}
	slices.Sort(names)
	if more := len(names) - namesAtMost; more > 0 {
		names = append(names[:namesAtMost], fmt.Sprintf("%d more", more))
	}
	e.Text = e.Kind + " " + strings.Join(names, ", ") + e.Text
	p.remember(e)
}

// seeRefusals notes when refusals begin and end. The begin of those that a new page
// finds is unknown.
func (p *Provider) seeRefusals(now time.Time, refused float64) {
	switch {
	case refused > 0:
		if p.rated && !p.refusing {
			p.event(now, "Refusals", "began")
		}
		p.refusing, p.refused = true, now
	case p.refusing && now.Sub(p.refused) > calm:
		p.event(now, "Refusals", "ended")
		p.refusing = false
	}
	p.rated = true
}

// away notes that etcd does not answer, if the error says so.
func (w *Watcher) away(since time.Time, err error) {
	if !w.Away.IsZero() || !errors.Is(err, coordinator.ErrUnreachable) {
		return
	}
	w.Away = since
	for _, p := range w.seen {
		p.remember(Event{At: since.UnixMilli(), Kind: "Outage", Text: "etcd does not answer: " + p.Outage()})
	}
}

// back notes that etcd answers again.
func (w *Watcher) back(now time.Time) {
	if w.Away.IsZero() {
		return
	}
	for _, p := range w.seen {
		for i := range p.Events {
			if e := &p.Events[i]; e.Kind == "Outage" && e.Until == 0 {
				e.Until = now.UnixMilli()
				p.event(now, "Back", fmt.Sprintf("after %v: etcd answers", now.Sub(w.Away).Round(time.Second)))
				break
			}
		}
	}
	w.Away = time.Time{}
}
