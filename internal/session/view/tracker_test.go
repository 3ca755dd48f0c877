package view

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

func policy(revision int64, limits string) Key {
	return Key{Kind: Policy, Revision: revision, Value: []byte(`{"schema":1,"limits":[{"permits":` + limits + `,"window":"1s"}]}`)}
}

func instance(revision int64, id string) Key {
	return Key{Kind: Instance, ID: id, Revision: revision, Value: []byte(`{"schema":1,"name":"` + id + `"}`)}
}

func gone(k Key, revision int64) Key { k.Deleted, k.Value, k.Revision = true, nil, revision; return k }

func started(t *testing.T) *Tracker {
	t.Helper()
	var tr Tracker
	v := tr.List(10, []Key{policy(5, "100"), instance(6, "a"), {Kind: Other, Revision: 7}})
	if v.Revision != 10 || v.PolicyRevision != 5 || v.Policy.Limits[0].Permits != 100 || len(v.Instances) != 1 {
		t.Fatalf("listing gave %+v", v)
	}
	return &tr
}

// summary shows changes briefly: revision, what was put, deleted, limited.
func summary(changes []protocol.Change) []string {
	var s []string
	for _, c := range changes {
		line := string(rune('0'+c.Revision%10)) + ":"
		for _, i := range c.Put {
			line += " +" + i.ID
		}
		for _, id := range c.Deleted {
			line += " -" + id
		}
		if c.Policy != nil {
			line += " " + quota.FormatLimits(c.Policy.Limits)
		}
		if c.PolicyDeleted {
			line += " none"
		}
		s = append(s, line)
	}
	return s
}

func TestOneRevisionIsOneChange(t *testing.T) {
	tr := started(t)
	got := tr.Events([]Key{
		instance(11, "b"), policy(12, "50"), instance(12, "c"), // a transaction
		gone(instance(0, "a"), 13), {Kind: Other, Revision: 14}, gone(policy(0, ""), 15),
	})
	want := []string{"1: +b", "2: +c 50/s", "3: -a", "4:", "5: none"}
	if diff := cmp.Diff(want, summary(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if tr.Has("a") || !tr.Has("b") {
		t.Errorf("a %v, b %v", tr.Has("a"), tr.Has("b"))
	}
}

func TestALateOrRepeatedEventChangesNothing(t *testing.T) {
	tr := started(t)
	tr.Events([]Key{instance(12, "b")})
	if got := tr.Events([]Key{instance(11, "z"), instance(12, "b"), gone(instance(0, "b"), 9)}); got != nil {
		t.Errorf("old events gave %v", summary(got))
	}
	if got := tr.Events([]Key{instance(12, "b"), instance(13, "c")}); len(got) != 1 || got[0].Revision != 13 {
		t.Errorf("gave %v, want revision 13 alone", summary(got))
	}
}

// A field of an earlier version is not followed in silence. The policy that drops it ends that.
func TestAFieldThatWentIsAProblem(t *testing.T) {
	tr := started(t)
	old := policy(11, "100")
	old.Value = []byte(`{"schema":1,"limits":[{"permits":7,"window":"1s"}],"adaptive":{"floor_percent":20},"guard":"auto+20ms"}`)
	if got := tr.Events([]Key{old}); len(got) != 1 || got[0].Policy == nil || got[0].Policy.Limits[0].Permits != 7 || got[0].Policy.Guard != 70*time.Millisecond {
		t.Errorf("%+v, want the rest of the policy in force, and the most that the guard was", got)
	}
	if err := tr.Problem(); err == nil || !strings.Contains(err.Error(), "revision 11") || !strings.Contains(err.Error(), "adaptive and guard auto+20ms (now 70ms)") {
		t.Errorf("problem %v, want it to name the revision and the fields", err)
	}
	tr.Events([]Key{policy(13, "7")})
	if err := tr.Problem(); err != nil {
		t.Errorf("problem %v after the field was dropped", err)
	}
}

// Another rule of division that is gone may still be that of instances of an earlier version. By
// the policy that was in force before, this one's shares would add to theirs.
func TestAnotherDivisionGivesNothing(t *testing.T) {
	tr := started(t)
	old := policy(11, "100")
	old.Value = []byte(`{"schema":1,"limits":[{"permits":7,"window":"1s"}],"share":"weighted","weights":{"big":8}}`)
	if got := tr.Events([]Key{old}); len(got) != 1 || got[0].Policy == nil || len(got[0].Policy.Unsupported()) != 1 {
		t.Errorf("%+v, want a policy that is not supported in place of the one before", got)
	}
	if err := tr.Problem(); err == nil || !strings.Contains(err.Error(), "share weighted and weights") || !strings.Contains(err.Error(), "issue nothing") {
		t.Errorf("problem %v, want it to name the rule, and that nothing is issued", err)
	}
}

func TestWhatCannotBeReadNeverEnlargesAShare(t *testing.T) {
	tr := started(t)
	broken := policy(11, "100")
	broken.Value = []byte(`{"schema":1,"limits":[{"permits":`)
	got := tr.Events([]Key{broken})
	if len(got) != 1 || got[0].Policy != nil || got[0].PolicyDeleted {
		t.Errorf("a broken policy gave %+v, want the last good one to stay", got)
	}
	if err := tr.Problem(); err == nil || !strings.Contains(err.Error(), "revision 11") {
		t.Errorf("problem %v, want it to name revision 11", err)
	}
	bad := instance(12, "x")
	bad.Value = []byte("{")
	if got := tr.Events([]Key{bad}); len(got) != 1 || len(got[0].Put) != 1 || got[0].Put[0].ID != "x" {
		t.Errorf("a broken instance gave %+v, want it to take part", got)
	}
	tr.Events([]Key{policy(13, "7"), gone(bad, 14)})
	if err := tr.Problem(); err != nil {
		t.Errorf("problem %v after both were mended", err)
	}
	impossible := Key{Kind: Policy, Revision: 5, Value: []byte(`{"schema":1,"limits":[{"permits":-1,"window":"1s"}]}`)}
	if v := new(Tracker).List(5, []Key{impossible}); v.Policy != nil {
		t.Error("an invalid policy came into force by a listing")
	}
}
