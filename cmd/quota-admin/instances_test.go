package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// An instance's report may be half a minute old. Explain shows a hold that it tells of for as long as that lasts, and
// compares the share that it tells with the share of the same window: three instances that share 1000/s have 333 or 334.
func TestExplainTakesAReportForTheTimeOfWhichItTells(t *testing.T) {
	t.Parallel()
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}}.WithDefaults()
	f := protocol.Fleet{Provider: "p", Policy: protocol.Stored{Policy: policy, Revision: 7}}
	for _, name := range []string{"a", "b", "c"} {
		f.Instances = append(f.Instances, protocol.InstanceStatus{Instance: protocol.Instance{ID: name, Name: name}})
	}
	view := f.View()
	a := func(at time.Time) int64 { // its share
		_, shares, _ := share.Of(&view, quota.WindowAt(time.Second, at.UnixNano()))
		return shares["a"]
	}
	more, less := fixed, fixed // instants of windows
	for ; a(more) != 334; more = more.Add(time.Second) {
	}
	for ; a(less) != 333; less = less.Add(time.Second) {
	}
	const held = "; permits are held for crashed until 2026-01-01T01:00:00Z"
	hold := fixed.Add(time.Hour)
	for _, c := range []struct {
		what        string
		now, report time.Time
		says        int64
		holds       bool // the report tells of a hold until hold
		want        string
	}{
		{"the odd permit moved", more, less, 333, false, ""},
		{"the odd permit moved on", less, more, 334, false, ""},
		{"a hold is on", hold.Add(-time.Second), hold.Add(-3 * time.Second), 250, true,
			held + "; its report, 2s old, says 250"},
		{"it is over", hold, hold.Add(-3 * time.Second), 250, true, ""},
		{"a cause of which nothing is told", fixed.Add(3 * time.Second), fixed, 250, false, "; its report, 3s old, says 250"},
		{"a removed limit of half a second", fixed.Add(2 * time.Second), fixed.Add(700 * time.Millisecond), 250, false, ""},
		{"the report is older than such a cause lasts", fixed.Add(4 * time.Second), fixed, 250, false, ""},
	} {
		r := protocol.Report{State: quota.StateActive, PolicyRevision: 7, Share: c.says, Instances: 3, Time: c.report}
		r.WindowStart = c.report.Truncate(500 * time.Millisecond) // so of the limit too, but for a report of the second half of a second
		if c.holds {
			r.HeldFor, r.HeldUntil = "crashed", hold
		}
		f.Instances[0].Share, f.Instances[0].ShareKnown, f.Instances[0].Report = a(c.now), true, &r
		var out bytes.Buffer
		if err := (&app{stdout: &out, stderr: &out, format: format.Table}).showInstances(&f, true, "a", c.now); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("a      a             %d     one of 3 equal parts%s\n", a(c.now), c.want); !strings.Contains(out.String(), want) {
			t.Errorf("%s: no %q in\n%s", c.what, want, out.String())
		}
	}
}

// A joiner's From is no window's start: it takes part from the first that starts then or later, and under a shape that
// looks back, a window's reach later.
func TestExplainSaysFromWhichWindowAJoinerTakesPart(t *testing.T) {
	t.Parallel()
	from := fixed.Truncate(10 * time.Second).Add(3 * time.Second)
	for shape, want := range map[quota.Shape]time.Time{
		quota.ShapeFixed:   from.Add(7 * time.Second),
		quota.ShapeSliding: from.Add(17*time.Second + 140*time.Millisecond),
	} {
		policy := quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: 10 * time.Second}}}
		policy.Shape = shape
		policy = policy.WithDefaults()
		f := protocol.Fleet{Provider: "p", Policy: protocol.Stored{Policy: policy, Revision: 7}, Instances: []protocol.InstanceStatus{
			{Instance: protocol.Instance{ID: "a", Name: "a"}}, {Instance: protocol.Instance{ID: "vm", Name: "vm", From: from}},
		}}
		var out bytes.Buffer
		if err := (&app{stdout: &out, stderr: &out, format: format.Table}).showInstances(&f, true, "vm", from.Add(4*time.Second)); err != nil {
			t.Fatal(err)
		}
		if says := "takes part from " + want.Format(time.RFC3339Nano) + "\n"; !strings.Contains(out.String(), says) {
			t.Errorf("%s: no %q in\n%s", shape, says, out.String())
		}
	}
}

// Limits of more than a minute and in flight have no shares: explain compares none.
func TestExplainComparesNoSharesOfLongLimits(t *testing.T) {
	t.Parallel()
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: 2 * time.Minute, InFlight: true}}}.WithDefaults()
	f := protocol.Fleet{Provider: "p", Policy: protocol.Stored{Policy: policy, Revision: 7}, Instances: []protocol.InstanceStatus{
		{Instance: protocol.Instance{ID: "a", Name: "a"}, Report: &protocol.Report{State: quota.StateActive, PolicyRevision: 7, Share: 90, Time: fixed}},
	}}
	var out bytes.Buffer
	if err := (&app{stdout: &out, stderr: &out, format: format.Table}).showInstances(&f, true, "", fixed.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "takes what its calls need") || strings.Contains(out.String(), "reports") {
		t.Errorf("it compares shares: %s", out.String())
	}
}
