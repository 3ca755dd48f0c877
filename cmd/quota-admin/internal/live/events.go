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

// Event is something that happened to a provider's instances.
type Event struct {
	At    int64  `json:"t"`               // milliseconds since the Unix epoch
	Until int64  `json:"until,omitempty"` // the same; 0 where it has no end, or none yet
	Kind  string `json:"kind"`            // the first word of Text, or Change, Pause or Outage
	Text  string `json:"text"`
}

const (
	eventsAtMost = 100
	namesAtMost  = 5 // in an event
	// calm is how long nothing is refused until refusals have ended.
	calm = 5 * time.Second
)

func (p *Provider) event(now time.Time, kind, text string) {
	p.remember(Event{At: now.UnixMilli(), Kind: kind, Text: kind + " " + text})
}

// remember keeps an event, and the newest of those before.
func (p *Provider) remember(e Event) {
	p.Events = append(p.Events, e)
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

func (p *Provider) seeInstances(now time.Time) {
	here, names := make(map[string]protocol.Instance, len(p.Fleet.Instances)), map[string][]string{}
	for _, s := range p.Fleet.Instances {
		here[s.Instance.ID] = s.Instance
		if _, ok := p.here[s.Instance.ID]; !ok && p.here != nil {
			names["Joined"] = append(names["Joined"], cmp.Or(s.Instance.Name, s.Instance.ID))
		}
	}
	for id, i := range p.here {
		if _, ok := here[id]; !ok {
			kind := "Lost"
			if !i.Until.IsZero() && !i.Until.After(now.Add(time.Second)) { // it had announced its end
				kind = "Left"
			}
			names[kind] = append(names[kind], cmp.Or(i.Name, id))
		}
	}
	p.here = here
	for _, kind := range []string{"Lost", "Left", "Joined"} {
		if all := names[kind]; len(all) > 0 {
			slices.Sort(all)
			if more := len(all) - namesAtMost; more > 0 {
				all = append(all[:namesAtMost], fmt.Sprintf("%d more", more))
			}
			p.event(now, kind, strings.Join(all, ", "))
		}
	}
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
