package live

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

func fleet(mode quota.Mode, all ...protocol.InstanceStatus) *protocol.Fleet {
	p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Mode: mode}.WithDefaults()
	return &protocol.Fleet{Policy: protocol.Stored{Policy: p, Revision: 7}, Instances: all}
}

func instance(id string, share int64, applied int64, says string) protocol.InstanceStatus {
	return protocol.InstanceStatus{Instance: protocol.Instance{ID: id}, Share: share, ShareKnown: true, Report: &protocol.Report{PolicyRevision: applied, Problem: says}}
}

func TestLine(t *testing.T) {
	for want, f := range map[string]*protocol.Fleet{
		"total 10/s, 2 instances, sum of shares 10, policy revision 7 applied by 1 of 2":            fleet("", instance("a", 5, 7, ""), instance("b", 5, 3, "")),
		"total 10/s (mode pause), 1 instance, sum of shares 0, policy revision 7 applied by 0 of 1": fleet(quota.ModePause, instance("a", 0, 3, "")),
		"no policy in force, 1 instance, sum of shares 0":                                           {Instances: []protocol.InstanceStatus{instance("a", 0, 0, "")}},
		"no policy in force, 0 instances, sum of shares 0":                                          {Policy: protocol.Stored{Revision: 3, Problem: errors.New("broken")}},
	} {
		s := StatusOf(f, start)
		if got := s.Line(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Of a long limit the line has a bar of what nobody has taken, and when its window ends.
func TestLineOfALongLimit(t *testing.T) {
	f := fleet("")
	for _, left := range []int64{1, 95, 100} {
		b := protocol.BudgetUse{Budget: protocol.BudgetAt(quota.Limit{Permits: 100, Window: time.Hour}, time.UTC, start.UnixNano()), Left: left}
		f.Budgets = append(f.Budgets, b)
	}
	s := StatusOf(f, start)
	want := "total 10/s, 100/h [#         ] 1 left until 2027-01-01T01:00:00Z, 100/h [##########] 95 left until 2027-01-01T01:00:00Z, " +
		"100/h [##########] 100 left until 2027-01-01T01:00:00Z, 0 instances, sum of shares 0"
	if got := s.Line(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTroublesInCommonAreOneLine(t *testing.T) {
	broken := instance("b", 0, 7, "")
	broken.Problem, broken.Report = errors.New("cannot be\nread"), nil
	f := fleet("", instance("a", 5, 7, "etcd is away"), broken, instance("c", 5, 7, "etcd is away"), instance("d", 0, 7, "etcd is away"), instance("e", 0, 7, ""))
	left := instance("g", 0, 7, "")
	left.Report.Debt, left.Report.Time = 500, start
	f.Left = append(f.Left, left)
	want := []string{"instance b: cannot be; read", "instance a and 2 more: it says: etcd is away", "instance g: left at 2027-01-01T00:00:00Z with an unpaid debt of 500 permits"}
	if diff := cmp.Diff(want, StatusOf(f, start).Troubles); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := StatusOf(fleet(""), start).Troubles; got == nil || len(got) != 0 {
		t.Errorf("%#v, want an empty list", got)
	}
}

// TestTroublesAreBounded: whoever may write into etcd can give each of many thousand
// instances another one.
func TestTroublesAreBounded(t *testing.T) {
	var all []protocol.InstanceStatus
	for i := range 3 * troublesAtMost {
		all = append(all, instance(fmt.Sprint(i), 0, 7, fmt.Sprint("trouble ", i)))
	}
	got := StatusOf(fleet("", all...), start).Troubles
	if n := len(got); n != troublesAtMost+1 || got[n-1] != "and 200 other troubles" {
		t.Errorf("%d lines, the last %q", n, got[n-1])
	}
}

// TestSharesBeyondTheTotalAreTold: whoever may write into etcd can make shares sum
// to more, and nobody else would say so.
func TestSharesBeyondTheTotalAreTold(t *testing.T) {
	got := StatusOf(fleet("", instance("a", 70, 7, ""), instance("b", 3, 7, "")), start).Troubles
	if len(got) != 1 || got[0] != "shares sum to 73, more than the total of 10: somebody wrote into etcd by hand; see doctor" {
		t.Errorf("%q", got)
	}
}
