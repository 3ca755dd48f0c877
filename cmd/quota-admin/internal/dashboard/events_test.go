package dashboard

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/quota"
)

// A change that ann announced stays hers: when it comes into force it is an event, and bob,
// who writes afterwards, changes only what he changes. One that was cancelled is none. A
// pause ends where it is resumed.
func TestEventsOfTheHistory(t *testing.T) {
	noon := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	limits := func(text string) []quota.Limit {
		l, err := quota.ParseLimits(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var records []admin.Record
	var last *quota.Policy
	write := func(m int, author string, edit func(p *quota.Policy)) {
		p := quota.Policy{}.WithDefaults()
		if last != nil {
			p = last.Clone()
		}
		edit(&p)
		records = slices.Insert(records, 0, admin.Record{Revision: int64(m + 1), Time: at(m), Author: author, Old: last, New: &p})
		last = &p
	}
	announce := func(m int, text string, p *quota.Policy, now int) quota.Policy {
		next, err := change.SetLimits(*p, *p, limits(text), change.Timing{At: at(m)}, at(now))
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	write(0, "eve", func(p *quota.Policy) { p.Limits = limits("100/s") })
	write(1, "ann", func(p *quota.Policy) { *p = announce(5, "200/s", p, 1) })
	write(2, "bob", func(p *quota.Policy) { *p = announce(20, "300/s", p, 2) })
	write(3, "cat", func(p *quota.Policy) { p.Guard = time.Millisecond })
	write(10, "bob", func(p *quota.Policy) {
		*p = change.Carry(*p, change.Current(*p, at(10)), at(10))
		p.Guard = 2 * time.Millisecond
	})
	write(11, "dan", func(p *quota.Policy) { p.Mode = quota.ModePause })
	write(12, "cat", func(p *quota.Policy) { p.Mode = quota.ModeEnforce })
	write(13, "cat", func(p *quota.Policy) {
		next, err := change.Cancel(*p, time.Time{}, at(13))
		if err != nil {
			t.Fatal(err)
		}
		*p = next
	})
	want := []live.Event{
		{At: at(0).UnixMilli(), Kind: "Change", Text: "nothing → 100/s by eve"},
		{At: at(1).UnixMilli(), Kind: "Change", Text: "next 2027-01-01T12:05:00Z – → 200/s by ann"},
		{At: at(2).UnixMilli(), Kind: "Change", Text: "next 2027-01-01T12:20:00Z – → 300/s by bob"},
		{At: at(3).UnixMilli(), Kind: "Change", Text: "guard 0s → 1ms by cat"},
		{At: at(5).UnixMilli(), Kind: "Change", Text: "200/s, as announced by ann"},
		{At: at(10).UnixMilli(), Kind: "Change", Text: "guard 1ms → 2ms by bob"},
		{At: at(11).UnixMilli(), Until: at(12).UnixMilli(), Kind: "Pause", Text: "Paused by dan"},
		{At: at(12).UnixMilli(), Kind: "Resumed", Text: "Resumed by cat"},
		{At: at(13).UnixMilli(), Kind: "Change", Text: "next 2027-01-01T12:20:00Z 300/s → – by cat"},
	}
	if diff := cmp.Diff(want, eventsOf(records)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if old, next := change.At(records[3].Old, at(10)), change.At(records[3].New, at(10)); change.Limits(old) != "200/s" || change.Limits(next) != "200/s" {
		t.Errorf("bob's record changes %s to %s", change.Limits(old), change.Limits(next))
	}
}
