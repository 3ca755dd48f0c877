package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/diagnose"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/ntp"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/internal/testkit/golden"
	"github.com/quotient-limiter/quotient/quota"
)

// member is an endpoint that is well, at a revision.
func member(name string, revision int64) endpointFacts {
	return endpointFacts{endpoint: name, took: 700 * time.Microsecond, status: &clientv3.StatusResponse{
		Header: &etcdserverpb.ResponseHeader{ClusterId: 7, Revision: revision}, Version: "3.6.5", Leader: 1,
		DbSize: 20 << 20, DbSizeInUse: 12 << 20, DbSizeQuota: 2 << 30,
	}}
}

// well is a cluster that is well.
func well() *etcdFacts {
	f := &etcdFacts{endpoints: []endpointFacts{member("a", 5000), member("b", 5000), member("c", 4999)}, revision: 5000, members: 3}
	f.quorum.took = 1200 * time.Microsecond
	return f
}

// joined is what an instance says that joined a moment ago.
var joined = cause.Joined(now.Add(-2*time.Second), now.Add(2*time.Second), 3*time.Second)

var now = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

// worker is an instance that is well.
func worker(name string) protocol.InstanceStatus {
	return protocol.InstanceStatus{
		Instance: protocol.Instance{ID: name + ".1.1", Name: name, Version: "v0.1.0", Started: now.Add(-time.Hour)},
		Report: &protocol.Report{
			Schema: 1, State: quota.StateActive, PolicyRevision: 40, ClockError: "2ms", ProofAge: "300ms", Time: now.Add(-20 * time.Second),
		},
	}
}

func workers(change func(i *protocol.InstanceStatus)) *protocol.Fleet {
	f := &protocol.Fleet{Provider: "payments/charge", Policy: protocol.Stored{Revision: 40, Policy: quota.Policy{
		Limits: []quota.Limit{{Permits: 5, Window: time.Second}}, Time: now.Add(-time.Minute),
	}}, Instances: []protocol.InstanceStatus{worker("w1"), worker("w2")}}
	if change != nil {
		change(&f.Instances[1])
	}
	return f
}

// The findings for facts that no test can bring about for real, as a record.
func TestDoctorFindings(t *testing.T) {
	etcd := func(change func(f *etcdFacts)) func(*Chart) {
		return func(c *Chart) { f := well(); change(f); judgeEtcd(c, f) }
	}
	status := func(change func(s *clientv3.StatusResponse)) func(*Chart) {
		return etcd(func(f *etcdFacts) { change(f.endpoints[1].status) })
	}
	host := func(f clockFacts) func(*Chart) { return func(c *Chart) { judgeClock(c, &f) } }
	instance := func(change func(i *protocol.InstanceStatus)) func(*Chart) {
		return func(c *Chart) { judgeFleet(c, workers(change), now, nil, absence{}) }
	}
	fleet := func(change func(f *protocol.Fleet)) func(*Chart) {
		return func(c *Chart) { f := workers(nil); change(f); judgeFleet(c, f, now, nil, absence{}) }
	}
	server := func(a string, off time.Duration, agrees bool) ntp.ServerStatus {
		return ntp.ServerStatus{Address: a, Answers: true, Offset: off, Distance: 3 * time.Millisecond, Agrees: agrees}
	}
	var text strings.Builder
	for _, test := range []struct {
		name  string
		judge func(c *Chart)
	}{
		{"all is well", etcd(func(*etcdFacts) {})},
		{"a member is down", etcd(func(f *etcdFacts) {
			f.endpoints[2] = endpointFacts{endpoint: "c", err: context.DeadlineExceeded, found: &diagnose.Found{Says: "connection refused", Do: "start it, or correct the address"}}
		})},
		{"a member that answers late", etcd(func(f *etcdFacts) {
			f.endpoints[2] = endpointFacts{endpoint: "c", err: context.DeadlineExceeded}
		})},
		{"no majority", etcd(func(f *etcdFacts) { f.quorum.err = fmt.Errorf("read: %w", coordinator.ErrUnreachable) })},
		{"no address answers", etcd(func(f *etcdFacts) {
			f.endpoints = []endpointFacts{{endpoint: "c", err: context.DeadlineExceeded}}
			f.quorum.err, f.members, f.revision = fmt.Errorf("read: %w", coordinator.ErrUnreachable), 0, 0
		})},
		{"no user given", etcd(func(f *etcdFacts) {
			f.endpoints = []endpointFacts{{endpoint: "c", err: rpctypes.ErrUserEmpty}}
			f.quorum.err, f.members, f.revision = etcdcall.Wrap(context.Background(), "read", rpctypes.ErrUserEmpty), 0, 0
			f.admit = "no user was given: set --user"
		})},
		{"slow reads", etcd(func(f *etcdFacts) { f.quorum.took = 150 * time.Millisecond })},
		{"never compacted", etcd(func(f *etcdFacts) { f.longHistory = true })},
		{"history not told", etcd(func(f *etcdFacts) { f.revision = 0 })},
		{"two members", etcd(func(f *etcdFacts) { f.members, f.endpoints = 2, f.endpoints[:2] })},
		{"one member", etcd(func(f *etcdFacts) { f.members, f.endpoints = 1, f.endpoints[:1] })},
		{"one endpoint of three", etcd(func(f *etcdFacts) { f.endpoints = f.endpoints[:1] })},
		{"two clusters", etcd(func(f *etcdFacts) { f.endpoints[1].status.Header.ClusterId = 8 })},
		{"members that list others", etcd(func(f *etcdFacts) {
			f.endpoints[0].list = []string{"m1 (1) at https://a:2380", "m2 (2) at https://b:2380"}
			f.endpoints[1].list = []string{"m2 (2) at https://b:2380"}
			f.endpoints[2].list = f.endpoints[0].list
		})},
		{"clusters of one member each", etcd(func(f *etcdFacts) {
			for i := range f.endpoints {
				f.endpoints[i].status.Header.MemberId, f.endpoints[i].list = 1, []string{"default (1) at http://localhost:2380"}
			}
		})},
		{"a member that lags", etcd(func(f *etcdFacts) { f.endpoints[0], f.endpoints[1] = member("a", 50_000), member("b", 20_000) })},
		{"too old", status(func(s *clientv3.StatusResponse) { s.Version = "3.5.9" })},
		{"no leader", status(func(s *clientv3.StatusResponse) { s.Leader, s.Errors = 0, []string{"etcdserver: no leader"} })},
		{"a learner", status(func(s *clientv3.StatusResponse) { s.IsLearner = true })},
		{"full", status(func(s *clientv3.StatusResponse) { s.Errors, s.DbSize = []string{"memberID:2 alarm:NOSPACE"}, 2<<30 })},
		{"all full", etcd(func(f *etcdFacts) {
			for i := range f.endpoints {
				f.endpoints[i].status.Errors = []string{"memberID:1 alarm:NOSPACE", "memberID:2 alarm:NOSPACE"}
				f.endpoints[i].status.DbSize = 4 << 30
			}
		})},
		{"full of what is in use", etcd(func(f *etcdFacts) {
			for i := range f.endpoints {
				s := f.endpoints[i].status
				s.Errors, s.DbSize, s.DbSizeInUse = []string{"memberID:1 alarm:NOSPACE"}, 2<<30, 2000<<20
			}
		})},
		{"full of what is in use, quota not told", status(func(s *clientv3.StatusResponse) {
			s.Errors, s.DbSizeQuota, s.DbSize, s.DbSizeInUse = []string{"memberID:2 alarm:NOSPACE"}, 0, 64<<20, 60<<20
		})},
		{"nearly full of what is in use", status(func(s *clientv3.StatusResponse) { s.DbSize, s.DbSizeInUse = 1900<<20, 1800<<20 })},
		{"corrupt", status(func(s *clientv3.StatusResponse) { s.Errors = []string{"memberID:2 alarm:CORRUPT"} })},
		{"something else", status(func(s *clientv3.StatusResponse) { s.Errors = []string{"of a later version"} })},
		{"nearly full, quota not told", status(func(s *clientv3.StatusResponse) { s.DbSizeQuota, s.DbSize = 0, 1800<<20 })},
		{"clock unknown", host(clockFacts{})},
		{"clock by the kernel", host(clockFacts{kernel: 4 * time.Millisecond, kernelKnown: true})},
		{"clock loose by the kernel", host(clockFacts{kernel: 400 * time.Millisecond, kernelKnown: true})},
		{"clock measured", host(clockFacts{
			servers: []ntp.ServerStatus{server("a", 0, true), server("b", 300*time.Millisecond, false), {Address: "c", Problem: "no answer in 3s"}, server("d", 0, true)},
			health:  clock.Health{Servers: 4, Answering: 3, Agreeing: 2}, offset: -time.Millisecond, bound: 3 * time.Millisecond, measured: true,
		})},
		{"clock off", host(clockFacts{servers: []ntp.ServerStatus{server("a", 0, true)}, offset: -5 * time.Second, bound: 3 * time.Millisecond, measured: true})},
		{"servers disagree", host(clockFacts{
			servers: []ntp.ServerStatus{server("a", 0, false), server("b", time.Second, false)}, health: clock.Health{Problem: "no majority"},
		})},
		{"a fleet that is well", instance(nil)},
		{"stale", instance(func(i *protocol.InstanceStatus) {
			i.Report.State, i.Report.Problem = quota.StateStale, "etcd is out of reach"
		})},
		{"silent", instance(func(i *protocol.InstanceStatus) { i.Report.Time = now.Add(-5 * time.Minute) })},
		{"never reported", instance(func(i *protocol.InstanceStatus) { i.Report = nil })},
		{"not reported yet", instance(func(i *protocol.InstanceStatus) { i.Report, i.Instance.Started = nil, now.Add(-time.Second) })},
		{"dated ahead", instance(func(i *protocol.InstanceStatus) { i.Report.Time = now.Add(3 * time.Second) })},
		{"clock behind", func(c *Chart) {
			f, known := workers(nil), clocks{}
			for i := range 4 { // of the other instance too
				at := now.Add(time.Duration(i-4) * time.Second)
				f.Instances[0].Report.Time, f.Instances[1].Report.Time = at.Add(-time.Millisecond), at.Add(-7*time.Second)
				if open := known.see(at, at.Add(-time.Second).UnixNano(), f); open != (i < 3) {
					t.Errorf("after %d reports: open %v", i+1, open)
				}
			}
			judgeFleet(c, f, now, known, absence{})
		}},
		{"clock beyond the bound", instance(func(i *protocol.InstanceStatus) { i.Report.ClockError = "61.234567ms" })},
		{"old policy", instance(func(i *protocol.InstanceStatus) { i.Report.PolicyRevision = 17 })},
		{"another problem", instance(func(i *protocol.InstanceStatus) { i.Report.Problem = "no NTP server of 3 answers" })},
		{"joining", instance(func(i *protocol.InstanceStatus) {
			i.Report.State, i.Report.Problem, i.Instance.Started = quota.StateJoining, joined, now.Add(-2*time.Second)
		})},
		{"joining, and knows no policy yet", instance(func(i *protocol.InstanceStatus) {
			i.Report.State, i.Report.PolicyRevision, i.Instance.Started = quota.StateJoining, 0, now.Add(-2*time.Second)
		})},
		{"joining a new incarnation", instance(func(i *protocol.InstanceStatus) {
			i.Report.State, i.Report.Problem, i.Instance.From = quota.StateJoining, joined, now.Add(2*time.Second)
		})},
		{"joining for too long", instance(func(i *protocol.InstanceStatus) {
			i.Report.State, i.Report.Problem = quota.StateJoining, joined
		})},
		{"a broken key", instance(func(i *protocol.InstanceStatus) {
			*i = protocol.InstanceStatus{Instance: protocol.Instance{ID: "x"}, Problem: errors.New("its key cannot be read")}
		})},
		{"a policy set a moment ago", fleet(func(f *protocol.Fleet) { f.Policy.Revision, f.Policy.Policy.Time = 41, now.Add(-time.Second) })},
		{"a policy with a guard of an earlier version", fleet(func(f *protocol.Fleet) { f.Policy.Policy.Ignored = []string{"guard auto (now 50ms)"} })},
		{"shares beyond the total", instance(func(i *protocol.InstanceStatus) { i.Share = 73 })},
		{"a policy with a division of an earlier version", fleet(func(f *protocol.Fleet) { f.Policy.Policy.Ignored = []string{"share weighted"} })},
		{"a policy with a field of an earlier version", fleet(func(f *protocol.Fleet) { f.Policy.Policy.Ignored = []string{"adaptive"} })},
		{"a long limit of which nothing is handed out", fleet(func(f *protocol.Fleet) {
			f.Budgets = []protocol.BudgetUse{{Budget: protocol.BudgetAt(quota.Limit{Permits: 5, Window: 24 * time.Hour}, time.UTC, now.UnixNano()), Withheld: "etcd was restored from a backup", Resumes: now.Add(12 * time.Hour).UnixNano()}, {
				Budget: protocol.BudgetAt(quota.Limit{Permits: 5, Window: time.Hour, Sliding: true}, time.UTC, now.UnixNano()), Withheld: "its total in etcd cannot be read",
			}, {
				Budget: protocol.BudgetAt(quota.Limit{Permits: 3, Window: 20 * time.Second, InFlight: true}, time.UTC, now.UnixNano()), Withheld: "etcd was restored from a backup", Resumes: now.Add(30*time.Second - 568_288_736).UnixNano(),
			}}
		})},
		{"keys of which nothing is handed out", fleet(func(f *protocol.Fleet) {
			f.KeysWithheld = []protocol.BudgetUse{{Budget: protocol.BudgetAt(quota.Limit{Permits: 5, Window: 24 * time.Hour}, time.UTC, now.UnixNano()), Withheld: "etcd was restored from a backup", Resumes: now.Add(12 * time.Hour).UnixNano()}}
		})},
		{"places of an instance that has ended, and calls that were never ended", fleet(func(f *protocol.Fleet) {
			b := protocol.BudgetAt(quota.Limit{Permits: 200, Window: 10 * time.Minute, InFlight: true}, time.UTC, now.UnixNano())
			f.Budgets = []protocol.BudgetUse{{Budget: b, Taken: 200, Back: now.Add(12 * time.Minute).UnixNano()}}
			for i := range f.Instances {
				if r := f.Instances[i].Report; r != nil {
					r.Long, r.Forgotten = []protocol.Taken{{Window: b.Name(), Taken: 75, Used: 70}}, 3
				}
			}
		})},
		{"more was used than etcd counts", fleet(func(f *protocol.Fleet) {
			for _, limit := range []quota.Limit{{Permits: 20000, Window: time.Hour}, {Permits: 5000, Window: time.Hour, Sliding: true}} {
				f.Budgets = append(f.Budgets, protocol.BudgetUse{Budget: protocol.BudgetAt(limit, time.UTC, now.UnixNano()), Taken: 3147})
			}
			usedOf(f, 4841)
		})},
		{"no more was used than etcd counts, or nothing is handed out", fleet(func(f *protocol.Fleet) {
			hour := protocol.BudgetAt(quota.Limit{Permits: 20000, Window: time.Hour}, time.UTC, now.UnixNano())
			f.Budgets = []protocol.BudgetUse{{Budget: hour, Taken: 9682}, {Budget: hour, Taken: 3147, Withheld: "etcd was restored from a backup"}}
			usedOf(f, 4841)
		})},
		{"keys of which calls are refused", instance(func(i *protocol.InstanceStatus) {
			i.Report.BusiestKeys = []protocol.Rate{{Name: "a", Issued: 3}, {Name: "b", Issued: 3, Refused: 5}}
		})},
		{"keys of which calls are refused, with a limit of more than a minute", fleet(func(f *protocol.Fleet) {
			f.Policy.Policy.Keys.Limits = []quota.Limit{{Permits: 5, Window: time.Second}, {Permits: 100, Window: time.Hour}}
			f.Instances[0].Report.BusiestKeys = []protocol.Rate{{Name: "b", Issued: 3, Refused: 5}}
		})},
		{"two versions", fleet(func(f *protocol.Fleet) { f.Instances[0].Instance.Version = "v0.2.0" })},
		{"paused", fleet(func(f *protocol.Fleet) {
			f.Policy.Policy.Mode, f.Policy.Policy.Author, f.Policy.Policy.Reason = quota.ModePause, "ann", "down"
		})},
		{"a limit of 0", fleet(func(f *protocol.Fleet) {
			f.Policy.Policy.Limits = []quota.Limit{{Window: time.Second}, {Permits: 5, Window: time.Hour}}
		})},
		{"a long limit of 0, and an announced one", fleet(func(f *protocol.Fleet) {
			f.Policy.Policy.Limits = []quota.Limit{{Permits: 5, Window: time.Second}, {Window: time.Hour}}
			f.Policy.Policy.Next = []quota.LimitChange{{From: now, Limits: []quota.Limit{{Window: time.Second}}}, {From: now.Add(time.Hour), Limits: []quota.Limit{{Window: 2 * time.Second}}}}
		})},
		{"a limit of 0 in shadow mode", fleet(func(f *protocol.Fleet) {
			f.Policy.Policy.Limits, f.Policy.Policy.Mode = []quota.Limit{{Window: time.Second}}, quota.ModeShadow
		})},
		{"no instance", fleet(func(f *protocol.Fleet) { f.Instances = nil })},
		{"no policy", fleet(func(f *protocol.Fleet) { f.Policy = protocol.Stored{} })},
		{"a policy that cannot be used", fleet(func(f *protocol.Fleet) { f.Policy.Problem = errors.New("schema 2") })},
		{"nothing", fleet(func(f *protocol.Fleet) { f.Policy, f.Instances = protocol.Stored{}, nil })},
	} {
		var c Chart
		test.judge(&c)
		var out bytes.Buffer
		w := tabwriter.NewWriter(&out, 0, 8, 3, ' ', 0)
		c.Table(w)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "# %s: %s\n%s\n", test.name, format.Count(c.Problems(), "problem"), out.String())
		for _, f := range c {
			if f.Level == problem && f.Mend == "" {
				t.Errorf("%s: no mend for %q", test.name, f.Finding)
			}
		}
	}
	golden.Check(t, "doctor.txt", text.String())
}

// usedOf has each instance report that it has used n of the limits of an hour.
func usedOf(f *protocol.Fleet, n int64) {
	for i := range f.Instances {
		f.Instances[i].Report.Long = nil
		for _, b := range f.Budgets {
			f.Instances[i].Report.Long = append(f.Instances[i].Report.Long, protocol.Taken{Window: b.Name(), Start: b.Start, Taken: n + 10, Used: n})
		}
	}
}

// What may be over by the next look is said only if each look shows it. The total is read after the reports: permits that were
// given back in between are no loss of etcd's. And etcd was slow for a moment, or has come back just now.
func TestOneLookIsNoProblem(t *testing.T) {
	used := func(n int64) func(f *protocol.Fleet) { return func(f *protocol.Fleet) { usedOf(f, n) } }
	stale := func(f *protocol.Fleet) { f.Instances[1].Report.State = quota.StateStale }
	for name, c := range map[string]struct {
		first, then func(f *protocol.Fleet)
		problem     bool
	}{
		"permits were given back": {used(1600), used(1500), false},
		"etcd counts too few":     {used(1600), used(1600), true},
		"stale for a moment":      {stale, used(1500), false},
		"stale":                   {stale, stale, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			read := func(context.Context, string) (protocol.Fleet, error) {
				f := workers(nil)
				f.Budgets = []protocol.BudgetUse{{Budget: protocol.BudgetAt(quota.Limit{Permits: 20000, Window: time.Hour}, time.UTC, time.Now().UnixNano()), Taken: 3000}}
				if c.first(f); time.Since(began) > time.Second { // they have reported again
					f.Instances[1].Report.State = quota.StateActive
					c.then(f)
				}
				for i := range f.Instances {
					f.Instances[i].Report.Time = time.Now()
				}
				return *f, nil
			}
			var chart Chart
			looks, err := chart.looksAt(t.Context(), []string{"p"}, read, func(context.Context, ...string) (func(), error) { return func() {}, nil })
			if err != nil {
				t.Fatal(err)
			}
			l := looks["p"]
			judgeFleet(&chart, &l.fleet, l.read, l.clocks, absence{})
			if took := time.Since(began); chart.Problems() > 0 != c.problem || took < time.Second || !c.problem && took > 2*time.Second {
				t.Errorf("%s: after %v: %+v", name, took, chart)
			}
		})
	}
}

// Each fleet is read until its clocks are known, and the last look is judged.
func TestTheLastLookIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, reads, observed := time.Now(), map[string]int{}, ""
		read := func(_ context.Context, p string) (protocol.Fleet, error) {
			reads[p]++
			f := workers(nil)
			for i := range f.Instances {
				if f.Instances[i].Report.Time = time.Now(); p == "late" && reads[p] <= 3 { // an old report, also of an old state
					f.Instances[i].Report.Time, f.Instances[i].Report.State = began.Add(-20*time.Second), quota.StateStale
				}
			}
			return *f, nil
		}
		var c Chart
		looks, err := c.looksAt(t.Context(), []string{"late", "well"}, read, func(_ context.Context, p ...string) (func(), error) {
			observed = strings.Join(p, ",")
			return func() { observed += " ended" }, nil
		})
		if err != nil || observed != "late ended" || reads["well"] != 1 || reads["late"] < 4 || reads["late"] > 6 {
			t.Errorf("%v; reads %v, observed %q", err, reads, observed)
		}
		for p, l := range looks {
			if judgeFleet(&c, &l.fleet, l.read, l.clocks, absence{}); c.Problems() > 0 {
				t.Errorf("%s: %+v", p, c)
			}
		}
	})
}

// An instance that does not report often, and an etcd that stops answering, hold doctor up no longer
// than its help says.
func TestTheLooksEnd(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began, reads := time.Now(), 0
			read := func(ctx context.Context, _ string) (protocol.Fleet, error) {
				if reads++; hangs && reads > 3 {
					<-ctx.Done()
					return protocol.Fleet{}, ctx.Err()
				}
				f := workers(nil)
				for i := range f.Instances {
					f.Instances[i].Report.Time = began.Add(-20 * time.Second)
				}
				return *f, nil
			}
			var c Chart
			looks, err := c.looksAt(t.Context(), []string{"p"}, read, func(context.Context, ...string) (func(), error) { return func() {}, nil })
			if took := time.Since(began); err != nil || len(looks["p"].fleet.Instances) != 2 || took > 12*time.Second {
				t.Errorf("hangs %v: after %v: %v, %+v", hangs, took, err, looks)
			}
		})
	}
}

// A full etcd cannot have instances report often. Their fleets are looked at all the same.
func TestTheFleetsOfAFullEtcd(t *testing.T) {
	read := func(context.Context, string) (protocol.Fleet, error) { return *workers(nil), nil }
	var c Chart
	looks, err := c.looksAt(t.Context(), []string{"p"}, read, func(context.Context, ...string) (func(), error) {
		return nil, fmt.Errorf("look at p: %w", rpctypes.ErrNoSpace)
	})
	if err != nil || len(looks) != 1 || len(looks["p"].fleet.Instances) != 2 || len(c) != 1 || c[0].Level != note || !strings.Contains(c[0].Finding, "a full etcd") {
		t.Errorf("%v, %+v, %+v", err, looks, c)
	}
}

func TestLongHistory(t *testing.T) {
	_, client := etcdtest.New(t, embedded.Options{})
	for i := range 5 {
		if _, err := client.Put(t.Context(), "k", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, ago := range []int64{2, 5} {
		if long, err := longHistory(t.Context(), client, 6, ago); !long || err != nil {
			t.Errorf("before a compaction, the store of %d revisions ago is gone: %v", ago, err)
		}
	}
	if _, err := client.Compact(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	for _, ago := range []int64{3, 6} {
		if long, err := longHistory(t.Context(), client, 6, ago); long || err != nil {
			t.Errorf("what was compacted, or never was, is there: %v, %v", long, err)
		}
	}
	if _, err := longHistory(t.Context(), client, 600, 2); err == nil {
		t.Error("no error for what is not known")
	}
}

// What an endpoint says of its members is its own word.
func TestMembersBy(t *testing.T) {
	cluster, client := etcdtest.New(t, embedded.Options{Members: 3})
	for _, e := range cluster.Endpoints() {
		if list := membersBy(t.Context(), client, e); len(list) != 3 || !slices.Equal(list, membersBy(t.Context(), client, cluster.Endpoints()[0])) {
			t.Errorf("%s lists %q", e, list)
		}
	}
}

// An endpoint that does not answer is said to fail as other commands say it.
func TestWhyAnEndpointFails(t *testing.T) {
	free, err := embedded.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + free[0]}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	down := readEtcd(t.Context(), client, 10*time.Millisecond).endpoints[0]
	if down.err == nil || down.found == nil || !strings.Contains(down.found.Says, "connection refused") || down.list != nil {
		t.Errorf("%v, %+v, and it lists %q", down.err, down.found, down.list)
	}
}
