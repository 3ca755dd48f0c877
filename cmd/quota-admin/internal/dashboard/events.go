package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/quota"
)

// eventsOf returns what a provider's history says of its chart, oldest first: changes,
// pauses with their end, and announced changes when they come into force. The records come
// newest first.
func eventsOf(records []admin.Record) []live.Event {
	events := []live.Event{}
	paused := -1                    // the event of a pause that lasts
	var announced []announcedChange // that are not in force yet
	for i, r := range slices.Backward(records) {
		if r.Problem != nil {
			continue
		}
		old, next := change.At(r.Old, r.Time), change.At(r.New, r.Time)
		e := live.Event{At: r.Time.UnixMilli(), Kind: "Change", Text: wordsOf(old, next) + " by " + r.Author}
		switch pause := next != nil && next.Mode == quota.ModePause; {
		case pause && paused < 0:
			e.Kind, e.Text = "Pause", "Paused by "+r.Author
			paused = len(events)
		case !pause && paused >= 0:
			events[paused].Until, paused = e.At, -1
			e.Kind, e.Text = "Resumed", "Resumed by "+r.Author
		}
		events = append(events, e)
		announced = announcedBy(announced, next, &r)
		for _, a := range announced {
			// The next record says whether it was cancelled before.
			if i == 0 || a.From.Before(records[i-1].Time) {
				events = append(events, live.Event{At: a.From.UnixMilli(), Kind: "Change", Text: quota.FormatLimits(a.Limits) + ", as announced by " + a.author})
			}
		}
	}
	slices.SortStableFunc(events, func(x, y live.Event) int { return cmp.Compare(x.At, y.At) })
	return events
}

// announcedChange is a change for later, and who announced it.
type announcedChange struct {
	quota.LimitChange
	author string
}

// announcedBy returns what is announced after a record: what stays is of who announced it
// first.
func announcedBy(before []announcedChange, p *quota.Policy, r *admin.Record) (all []announcedChange) {
	if p == nil {
		return nil
	}
	next := p.Next
	if p.From.After(r.Time) {
		next = slices.Insert(slices.Clone(next), 0, quota.LimitChange{From: p.From, Limits: p.Limits})
	}
	for _, c := range next {
		a := announcedChange{c, r.Author}
		for _, b := range before {
			if b.From.Equal(c.From) && slices.Equal(b.Limits, c.Limits) {
				a.author = b.author
			}
		}
		all = append(all, a)
	}
	return all
}

// wordsOf says what a change changed.
func wordsOf(old, next *quota.Policy) string {
	var all []string
	if was, is := change.Limits(old), change.Limits(next); was != is {
		all = append(all, cmp.Or(was, "nothing")+" → "+cmp.Or(is, "deleted"))
	}
	for _, d := range change.Beside(old, next) {
		field, is := strings.ReplaceAll(d.Field, "_", " "), cmp.Or(d.New, "–")
		all = append(all, fmt.Sprintf("%s %s → %s", field, cmp.Or(d.Old, "–"), is))
	}
	return format.Clean(cmp.Or(strings.Join(all, "; "), change.Limits(next), "–"))
}
