package live_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// write puts a key under the group's prefix as somebody without our tools would.
func (g *group) write(key, value string) {
	g.t.Helper()
	if _, err := g.client.Put(g.t.Context(), g.prefix+key, value); err != nil {
		g.t.Fatal(err)
	}
}

// seen waits until members have proved that they know all that is in etcd by now.
func (g *group) seen(all []*member) {
	g.t.Helper()
	began := time.Now()
	g.await("all have proved their views", func() bool {
		passed := time.Since(began)
		return !slices.ContainsFunc(all, func(m *member) bool {
			age := m.limiter.Status().ProofAge
			return age < 0 || age >= passed
		})
	})
}

// erase removes a key.
func (g *group) erase(key string) {
	g.t.Helper()
	if _, err := g.client.Delete(g.t.Context(), g.prefix+key); err != nil {
		g.t.Fatal(err)
	}
}

// problems are all that operators are told of the provider.
func (g *group) problems() string {
	g.t.Helper()
	f, err := feed.Inside(g.admin).Fleet(g.t.Context(), provider)
	if err != nil {
		g.t.Fatal(err)
	}
	var all []string
	if f.Policy.Problem != nil {
		all = append(all, "policy: "+f.Policy.Problem.Error())
	}
	for _, s := range f.Instances {
		if s.Problem != nil {
			all = append(all, s.Instance.ID+": "+s.Problem.Error())
		}
		if s.Report != nil && s.Report.Problem != "" {
			all = append(all, s.Instance.ID+" says: "+s.Report.Problem)
		}
	}
	return strings.Join(all, "\n")
}

const megabyte = 1 << 20

// TestHostilePoliciesChangeNothing writes policies that no tool would. The last
// good one must stay in force, and the instances and the operator be told why.
func TestHostilePoliciesChangeNothing(t *testing.T) {
	t.Parallel()
	// With a long freshness: an instance that begins its history anew on a busy machine
	// cannot know the good policy, and if all do nobody has a share any more.
	g, all := loaded(t, exact(t, "60/200ms", 3*time.Second), 3, 60)
	good := `"limits":[{"permits":600000,"window":"200ms"}]`
	for _, test := range []struct{ name, value, says string }{
		{"nothing", "", "unexpected end of JSON"},
		{"no JSON", "{", "unexpected end of JSON"},
		{"a megabyte", `{"schema":1,` + good + `,"x":"` + strings.Repeat("x", megabyte) + `"}`, fmt.Sprint("more than the most, ", quota.MaxPolicyBytes)},
		{"nested 20,000 deep", `{"schema":1,"x":` + strings.Repeat("[", 20_000), "exceeded max depth"},
		{"invalid UTF-8", "{\"schema\":1,\"limits\":[{\"permits\":600000,\"window\":\"\xff\xfe\"}]}", "no duration"},
		{"a NUL", "\x00", "invalid character"},
		{"a future schema", `{"schema":2,` + good + `}`, "schema 2 is not the one this version knows"},
		{"no schema", `{` + good + `}`, "schema is missing"},
		{"too many permits", `{"schema":1,"limits":[{"permits":9000000000000000000,"window":"200ms"}]}`, "limits[0].permits"},
		{"more than a number holds", `{"schema":1,"limits":[{"permits":99999999999999999999,"window":"200ms"}]}`, "99999999999999999999"},
		{"a negative limit", `{"schema":1,"limits":[{"permits":-1,"window":"200ms"}]}`, "limits[0].permits"},
		{"no window", `{"schema":1,"limits":[{"permits":600000,"window":"0s"}]}`, "limits[0].window"},
		{"the same window twice", `{"schema":1,"limits":[{"permits":1,"window":"1s"},{"permits":600000,"window":"1s"}]}`, "two limits have the same window"},
		{"a window of the year", `{"schema":1,"limits":[{"permits":600000,"window":"8760h"}]}`, "limits[0].window"},
		{"from the year 9999", `{"schema":1,` + good + `,"from":"9999-12-31T23:59:59Z"}`, "1970 to 2199"},
		{"from before 1970", `{"schema":1,` + good + `,"from":"1969-12-31T23:59:59Z"}`, "1970 to 2199"},
		{"from the year 0", `{"schema":1,` + good + `,"from":"0000-01-01T00:00:00Z"}`, "1970 to 2199"},
		{"announced for the year 9999", `{"schema":1,` + good + `,"next":[{"from":"9999-12-31T23:59:59Z",` + good + `}]}`, "1970 to 2199"},
		{"announced twice at once", `{"schema":1,` + good + `,"next":[{"from":"2030-01-01T00:00:00Z",` + good + `},{"from":"2030-01-01T00:00:00Z",` + good + `}]}`, "must be after the change before it"},
		{"a settle time below 0", `{"schema":1,` + good + `,"settle":"-1s"}`, "settle"},
		{"a settle time too short for its freshness", `{"schema":1,` + good + `,"settle":"1s","freshness":"1s"}`, "settle"},
		{"a mode that is none", `{"schema":1,` + good + `,"mode":"open"}`, "mode"},
		{"a clock error of a day", `{"schema":1,` + good + `,"clock_error":"24h"}`, "clock_error"},
	} {
		g.write("providers/p/policy", test.value)
		g.await(test.name+" is told", func() bool { return strings.Contains(all[0].limiter.Status().Problem, test.says) })
		if told := g.problems(); !strings.Contains(told, test.says) {
			t.Errorf("%s: the operator is told %q, want %q", test.name, told, test.says)
		}
		for _, m := range all {
			if st := m.limiter.Status(); st.Shortest().Limit.Permits != 60 || st.Shortest().Share > 20 {
				t.Errorf("%s: total %d, share %d; want 60 and 20", test.name, st.Shortest().Limit.Permits, st.Shortest().Share)
			}
		}
	}
	g.awaitFull(60) // still
	// What a good policy demands and nobody knows gives nobody anything. A rule of division that
	// is gone does not either: instances of an earlier version may still divide by it.
	for _, test := range []struct{ field, says string }{
		{`"requires":["telepathy"]`, "telepathy"}, {`"share":"demand"`, "share demand"}, {`"share":"weighted"`, "share weighted"},
	} {
		g.write("providers/p/policy", `{"schema":1,`+good+`,"settle":"500ms","freshness":"350ms","clock_error":"50ms",`+test.field+`}`)
		g.await(test.field+" is told", func() bool { return strings.Contains(all[0].limiter.Status().Problem, test.says) })
		g.await("nobody has a share", func() bool {
			for _, m := range all {
				if m.limiter.Status().Shortest().Share != 0 {
					return false
				}
			}
			return true
		})
	}
}

// TestHostileKeysEnlargeNobody writes keys that no instance would, beside a fleet
// under load. No share may grow, no window exceed, and where a key counts as an
// instance the operator must be told which it is.
func TestHostileKeysEnlargeNobody(t *testing.T) {
	t.Parallel()
	g, all := loaded(t, exact(t, "60/200ms", 500*ms), 3, 60)
	victim := all[0].limiter.Status().Incarnation
	strange := fmt.Sprintf("%%%02X", victim[0]) + url.PathEscape(victim[1:])
	const counts = true // as an instance
	for _, test := range []struct {
		name, key, value string
		counts           bool
		says             string
	}{
		{"no JSON", "providers/p/instances/junk", "{", counts, "junk\" cannot be read"},
		{"a megabyte", "providers/p/instances/huge", `{"schema":1,"name":"` + strings.Repeat("x", megabyte) + `"}`, counts, fmt.Sprint("more than the most, ", protocol.MaxInstanceBytes)},
		{"invalid UTF-8", "providers/p/instances/utf8", "{\"schema\":1,\"name\":\"\xff\xfe\"}", counts, "has no lease"},
		{"a name that is no UTF-8", "providers/p/instances/%FF%FE", `{"schema":1}`, counts, "has no lease"},
		{"a future schema", "providers/p/instances/future", `{"schema":99,"name":7}`, counts, "schema 99"},
		{"from the year 9999", "providers/p/instances/late", `{"schema":1,"from":"9999-12-31T23:59:59Z"}`, counts, "1970 to 2199"},
		{"until 1970", "providers/p/instances/over", `{"schema":1,"until":"1970-01-01T00:00:01Z"}`, counts, "has no lease"},
		{"until before from", "providers/p/instances/back", `{"schema":1,"from":"2030-01-01T00:00:00Z","until":"2020-01-01T00:00:00Z"}`, counts, "before from"},
		{"a name of nothing", "providers/p/instances/", `{"schema":1}`, false, ""},
		{"a bad escape", "providers/p/instances/%ZZ", `{"schema":1}`, false, ""},
		{"a key under a key", "providers/p/instances/a/b", `{"schema":1}`, false, ""},
		{"a live instance's name, further down", "providers/p/instances/a/" + victim, `{"schema":1,"until":"1970-01-01T00:00:01Z"}`, false, ""},
		{"a live instance's name, spelled otherwise", "providers/p/instances/" + strange, `{"schema":1,"until":"1970-01-01T00:00:01Z"}`, false, ""},
		{"bytes", "providers/p/instances/\xff\x00\x1b[2J", `{"schema":1}`, false, ""},
		{"another key of the provider", "providers/p/zzz", strings.Repeat("x", megabyte), false, ""},
		{"a report of a megabyte", "reports/p/" + url.PathEscape(victim), `{"problem":"` + strings.Repeat("x", megabyte) + `"}`, false, "more than the most, 16384"},
		{"a report that is none", "reports/p/" + url.PathEscape(victim), `[]`, false, "report cannot be read"},
		{"a report of nobody", "reports/p/nobody", `{"used":9223372036854775807}`, false, ""},
		{"history that is none", "history/p/zzz", "{", false, ""},
		{"an observer's name", "observers/p/a/b/c", strings.Repeat("x", megabyte), false, ""},
		{"a provider within the provider", "providers/p/instances/x/policy", `{"schema":1}`, false, ""},
	} {
		instances := len(all)
		if test.counts {
			instances++
		}
		// Again and again: an instance overwrites its own report.
		g.await(fmt.Sprintf("%s: the operator is told %q", test.name, test.says), func() bool {
			g.write(test.key, test.value)
			return strings.Contains(g.problems(), test.says)
		})
		g.seen(all)
		var f protocol.Fleet
		// Waits for a member that a busy machine has kept from its lease.
		g.await(fmt.Sprintf("%s: counts as %d instances", test.name, instances-len(all)), func() (ok bool) {
			var err error
			if f, err = feed.Inside(g.admin).Fleet(t.Context(), provider); err != nil {
				t.Fatal(err)
			}
			return len(f.Instances) == instances
		})
		var sum int64
		for _, s := range f.Instances {
			sum += s.Share
		}
		if sum > 60 {
			t.Errorf("%s: shares sum to %d", test.name, sum)
		}
		for _, m := range all {
			if st := m.limiter.Status(); st.Shortest().Share > 20 {
				t.Errorf("%s: a share grew to %d", test.name, st.Shortest().Share)
			}
		}
		g.erase(test.key)
	}
	// Its own key taken away, or written over: it ends, and comes back anew.
	g.erase("providers/p/instances/" + url.PathEscape(victim))
	g.await("the victim is another incarnation", func() bool {
		st := all[0].limiter.Status()
		return st.Incarnation != victim && st.State == quota.StateActive
	})
	second := all[1].limiter.Status().Incarnation
	g.write("providers/p/instances/"+url.PathEscape(second), `{"schema":1,"from":"2150-01-01T00:00:00Z"}`)
	g.pass(time.Second)
}

// TestManyForeignInstanceKeys: shares become nothing, nobody panics or
// exceeds, the operator still sees them, and all is well when they are gone.
func TestManyForeignInstanceKeys(t *testing.T) {
	g, all := loaded(t, exact(t, "60/200ms", 500*ms), 2, 60)
	const n, together = foreignKeys, 125
	key := func(i int) string { return fmt.Sprintf("%sproviders/p/instances/foreign-%06d", g.prefix, i) }
	for i := 0; i < n; i += together {
		var ops []clientv3.Op
		for k := range together {
			ops = append(ops, clientv3.OpPut(key(i+k), `{"schema":1}`))
		}
		if _, err := g.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	f, err := feed.Inside(g.admin).Fleet(t.Context(), provider)
	if err != nil || len(f.Instances) != n+2 {
		t.Fatalf("the operator sees %d instances, %v", len(f.Instances), err)
	}
	t.Logf("the operator's view took %v", time.Since(began).Round(ms))
	foreign := 0
	for _, s := range f.Instances {
		if s.Problem != nil && strings.Contains(s.Problem.Error(), "has no lease") {
			foreign++
		}
	}
	if foreign != n {
		t.Errorf("%d of %d foreign keys are told", foreign, n)
	}
	began = time.Now()
	if list, err := g.admin.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%d policies, %v", len(list), err)
	}
	t.Logf("listing the policies took %v", time.Since(began).Round(ms))
	g.await("they see it", func() bool {
		return all[0].limiter.Status().Shortest().Share <= 1 && all[1].limiter.Status().Shortest().Share <= 1
	})
	late := g.join(1)
	g.await("a joiner counts them", func() bool { return late[0].limiter.Status().Instances > n })
	for i := 0; i < n; i += together { // etcd may not take all of them at once
		if _, err := g.client.Delete(t.Context(), key(i), clientv3.WithRange(key(i+together))); err != nil {
			t.Fatal(err)
		}
	}
	g.await("they are forgotten", func() bool {
		for _, m := range append(late, all...) {
			if st := m.limiter.Status(); st.Shortest().Share != 20 || st.State != quota.StateActive {
				return false
			}
		}
		return true
	})
	g.awaitFull(60)
}
