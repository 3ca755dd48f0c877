package coordinator

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

func TestReportsAreWrittenUnderTheLease(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	s := f.join(Options{Name: "a"})
	a, _ := f.subscribe(s, "p")
	await.Until(t, "a report", func() bool {
		all, err := f.instances("p")
		if err != nil {
			t.Fatal(err)
		}
		return len(all) == 1 && all[0].Report != nil && all[0].Report.State == quota.StateActive && all[0].Instance.ID == a.told().self
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := f.client.Get(t.Context(), f.prefix+"reports/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 0 {
		t.Errorf("%d reports are left, %v", len(r.Kvs), err)
	}
}

func TestReportsAreFew(t *testing.T) {
	r := func(used int64, state quota.State) *protocol.Report {
		return &protocol.Report{Used: used, State: state}
	}
	with := func(used int64, instances int) *protocol.Report {
		return &protocol.Report{Used: used, State: quota.StateActive, Instances: instances}
	}
	long := func(used int64) *protocol.Report {
		return &protocol.Report{Used: used, State: quota.StateStale, Instances: 2, Window: 4 * time.Second}
	}
	var l reporting
	const s = int64(time.Second)
	for _, step := range []struct {
		at     int64
		report *protocol.Report
		want   bool
	}{
		{s, r(0, quota.StateJoining), true},
		{2 * s, r(0, quota.StateJoining), false},
		{3 * s, r(0, quota.StateActive), true},       // the state
		{4 * s, r(1000, quota.StateActive), false},   // the rate, but too soon
		{8 * s, r(5000, quota.StateActive), true},    // the rate
		{14 * s, r(11100, quota.StateActive), false}, // about the same rate
		{37 * s, r(34000, quota.StateActive), false},
		{38 * s, r(35000, quota.StateActive), true}, // 30 s
		{40 * s, with(37000, 2), false},             // the instances, but too soon
		{43 * s, with(40000, 2), true},
		{45 * s, long(42000), true},  // the state
		{51 * s, long(52000), false}, // the rate, but too few windows
		{65 * s, long(76000), true},
	} {
		next, due := l.next(step.report, step.at, false)
		if due != step.want {
			t.Errorf("at %ds: due %v, want %v", step.at/s, due, step.want)
		}
		if due {
			l = next
		}
	}
	owing := long(86500)
	owing.Debt = 7
	if _, due := l.next(owing, 70*s, false); !due {
		t.Error("a debt is not reported")
	}
	if _, due := l.next(long(76000), 66*s, true); !due {
		t.Error("somebody looks, and nothing is reported")
	}
}

// Observers are looked for at every second tick, also where ticks are a little early or late: so top has rates soon.
func TestObserversAreLookedForEveryOtherSecond(t *testing.T) {
	o, looks := observing{}, 0
	for tick := range int64(20) {
		now := int64(time.Second)*(tick+1) + (tick%3-1)*int64(50*time.Millisecond)
		if o.due(now) {
			o.looked = now
			looks++
		}
	}
	if looks != 10 {
		t.Errorf("%d looks in 20 ticks, want 10", looks)
	}
}
