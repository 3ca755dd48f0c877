package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// An instance looks for observers every 2 s, and etcd may be slow: so its rate comes late, and is waited for.
func TestTopOnceHasTheRatesOfAll(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	b := newBench(t, server)
	client := etcdtest.NewClient(t, server)
	b.want(exitDone, "set", "p", "5/s", "--create")
	b.put(client, "providers/p/instances/late.1.1", protocol.Instance{Name: "late"})
	used := int64(0)
	report := func() {
		used += 3
		b.put(client, "reports/p/late.1.1", protocol.Report{Schema: 1, State: quota.StateActive, PolicyRevision: 1 << 40, Used: used, Time: time.Now()})
	}
	report()
	// Where this process has no processor for seconds the reports may come too late: then top has waited for as long as it
	// does, and is asked again.
	await.Until(t, "top has the rate", func() bool {
		stop := b.whileObserved(client, 4500*time.Millisecond, report)
		began := time.Now()
		stdout, _ := b.want(exitDone, "top", "p", "--count", "1", "-o", "json")
		took := time.Since(began)
		stop()
		if !strings.Contains(stdout, `"issued_per_second":null`) && strings.Contains(stdout, `"issued_per_second":`) {
			return true
		}
		if took < ratesWithin {
			t.Fatalf("after %v: %s", took, stdout)
		}
		return false
	})
}

// A provider whose policy etcd has lost has a row, with the troubles of its instances, as long as there are some.
func TestTopShowsAProviderWithoutAPolicy(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	client := etcdtest.NewClient(t, server)
	b.want(exitDone, "set", "with", "5/s", "--create")
	b.put(client, "providers/lost/instances/w.1.1", protocol.Instance{Name: "w"})
	b.put(client, "reports/lost/w.1.1", protocol.Report{Schema: 1, State: quota.StateStale, Problem: "no limit is set any more", Time: time.Now()})
	stdout, _ := b.want(exitDone, "top", "--count", "1", "-o", "json")
	if !strings.Contains(stdout, `"provider":"with"`) || !strings.Contains(stdout, `"instances":1,"issued_per_second":null,"limits":"","mode":"none","provider":"lost","refused_per_second":null,"shadowed_per_second":null,"troubles":1`) {
		t.Error(stdout)
	}
}

// What limits by key refuse is in no column of instances: a line below the table says so, where there are such
// limits. Explain names what shows it, and what shows what is left of a key if its limit is of more than a minute.
func TestTopSaysThatRefusedHasNoKeys(t *testing.T) {
	b := newBench(t, server)
	client := etcdtest.NewClient(t, server)
	b.want(exitDone, "set", "keyed", "5/s", "--keys", "2/s", "--create")
	b.want(exitDone, "set", "long", "5/s", "--keys", "2/s,100/h", "--create")
	b.want(exitDone, "set", "plain", "5/s", "--create")
	for provider, says := range map[string]bool{"keyed": true, "long": true, "plain": false} {
		b.put(client, "providers/"+provider+"/instances/w.1.1", protocol.Instance{Name: "w"})
		stdout, _ := b.want(exitDone, "top", provider, "--count", "1")
		if strings.HasSuffix(stdout, "\nREFUSED/S has no calls that a limit of their key refused: top "+provider+" --by key shows these\n") != says {
			t.Errorf("%s:\n%s", provider, stdout)
		}
		stdout, _ = b.want(exitDone, "explain", provider)
		if strings.Contains(stdout, "calls for keys: quota-admin top "+provider+" --by key shows which are refused") != says {
			t.Errorf("explain %s:\n%s", provider, stdout)
		}
		if strings.Contains(stdout, "refused, quota-admin budget "+provider+" --key KEY what is left of one\n") != (provider == "long") {
			t.Errorf("explain %s names budget, which shows keys with a limit of more than a minute:\n%s", provider, stdout)
		}
	}
}

func TestTopInPlainLines(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s", "--settle", "1s")
	b.want(exitDone, "set", "quiet", "5/s")
	for _, l := range b.join(server, "p", 2) {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "both report their shares", func() bool {
		stdout, _ := b.want(exitDone, "top", "p", "--count", "1", "-o", "yaml")
		return strings.Count(stdout, "share: 50\n") == 2
	})
	stdout, _ := b.want(exitDone, "top", "p", "--count", "2", "--interval", "100ms")
	if strings.Count(stdout, " INCARNATION\n") != 2 || !strings.Contains(stdout, ", issued 0/s\n") || strings.Count(stdout, "worker-1") != 4 || strings.Contains(stdout, "\x1b") {
		t.Errorf("two plain tables: %s", stdout)
	}
	// For programs: one document a line, numbers as numbers.
	stdout, _ = b.want(exitDone, "top", "--count", "2", "--interval", "100ms", "-o", "json")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	var data struct {
		Providers []struct {
			Provider, Limits   string
			Instances, Applied int
			Waiting, Troubles  int
			Issued             *float64 `json:"issued_per_second"`
		}
	}
	if err := json.Unmarshal([]byte(lines[0]), &data); err != nil || len(lines) != 2 || len(data.Providers) != 2 {
		t.Fatalf("%v: %s", err, stdout)
	}
	if p := data.Providers[0]; p.Provider != "p" || p.Limits != "100/s" || p.Instances != 2 || p.Applied != 2 || p.Issued == nil {
		t.Errorf("%+v in %s", p, stdout)
	}
	stdout, _ = b.want(exitDone, "top", "p", "--count", "2", "--interval", "100ms", "-o", "yaml")
	if strings.Count(stdout, "---\n") != 2 || !strings.Contains(stdout, "share: 50\n") {
		t.Errorf("YAML: %s", stdout)
	}
	// One table has rates too.
	for _, of := range []string{"p", ""} {
		args := slices.DeleteFunc([]string{"top", of, "--count", "1", "-o", "json"}, func(s string) bool { return s == "" })
		stdout, _ := b.want(exitDone, args...)
		if !strings.Contains(stdout, `"issued_per_second":0,`) {
			t.Errorf("no rates: %s", stdout)
		}
	}
	b.want(exitNotFound, "top", "absent")
	b.want(exitUsage, "top", "p", "--interval", "1ms")
}

// The busiest keys and labels are those of the instances' reports.
func TestTopShowsKeysAndLabels(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "keyed", "1000/s", "--keys", "50/s", "--settle", "1s")
	all := b.join(server, "keyed", 2)
	for _, l := range all {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "both report the key", func() bool {
		for _, l := range all {
			l.Key("tenant-7").TryTake(50)
		}
		stdout, _ := b.want(exitDone, "top", "keyed", "--by", "key", "--count", "1", "-o", "json")
		return strings.Contains(stdout, `"keys":[{"instances":2,"issued_per_second":`) && strings.Contains(stdout, `"key":"tenant-7"`)
	})
	stdout, _ := b.want(exitDone, "top", "keyed", "--by", "key", "--count", "1")
	if !strings.Contains(stdout, "KEY ") || !strings.Contains(stdout, "tenant-7") {
		t.Errorf("a table of keys: %s", stdout)
	}
	await.Until(t, "both report the label", func() bool {
		for _, l := range all {
			l.Label("reindex").TryTake(50)
			l.TryAcquire()
		}
		stdout, _ := b.want(exitDone, "top", "keyed", "--by", "label", "--count", "1", "-o", "json")
		return strings.Contains(stdout, `"labels":[{"instances":2,"issued_per_second":`) && strings.Contains(stdout, `"label":"reindex"`) && strings.Contains(stdout, `"label":null`)
	})
	stdout, _ = b.want(exitDone, "top", "keyed", "--by", "label", "--count", "1")
	if !strings.Contains(stdout, "LABEL ") || !strings.Contains(stdout, "\nreindex ") || !strings.Contains(stdout, "\n- ") {
		t.Errorf("a table of labels: %s", stdout)
	}
	b.want(exitUsage, "top", "--by", "key")
	b.want(exitUsage, "top", "keyed", "--by", "colour")
}

// The table by class shows which calls are refused, and warns when critical ones are.
func TestTopShowsClasses(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s", "--settle", "1s", "--classes", "critical=10")
	if _, stderr := b.want(exitDone, "top", "p", "--by", "class", "--count", "1"); strings.Contains(stderr, "no call has had a class") {
		t.Errorf("without an instance nobody knows: %s", stderr)
	}
	all := b.join(server, "p", 2)
	for _, l := range all {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr := b.want(exitDone, "top", "p", "--by", "class", "--count", "1")
	if !strings.Contains(stdout, ", 10% kept for critical calls\n") || !strings.Contains(stderr, "no call has had a class yet") {
		t.Errorf("before any call: %s%s", stdout, stderr)
	}
	ask := func(class consumer.Class) {
		for _, l := range all {
			for range 200 {
				l.Class(class).TryAcquire()
			}
		}
	}
	var got struct {
		Classes []struct {
			Class   string
			Issued  float64 `json:"issued_per_second"`
			Refused float64 `json:"refused_per_second"`
			Waiting *int64
		}
	}
	await.Until(t, "sheddable calls are refused", func() bool {
		ask(consumer.Sheddable)
		stdout, _ := b.want(exitDone, "top", "p", "--by", "class", "--count", "1", "-o", "json")
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatal(err)
		}
		return len(got.Classes) == 3 && got.Classes[2].Class == "sheddable" && got.Classes[2].Issued > 0 && got.Classes[2].Refused > 0 && got.Classes[2].Waiting != nil
	})
	if c := got.Classes[0]; c.Class != "critical" || c.Issued != 0 || c.Refused != 0 {
		t.Errorf("nobody called, and the class has %+v", c)
	}
	await.Until(t, "critical calls are refused", func() bool {
		ask(consumer.Critical)
		_, stderr := b.want(exitDone, "top", "p", "--count", "1")
		return strings.Contains(stderr, "critical calls are refused, ") && strings.Contains(stderr, "see --by class")
	})
	stdout, _ = b.want(exitDone, "top", "p", "--by", "class", "--count", "1")
	if !strings.Contains(stdout, "CLASS ") || !strings.Contains(stdout, "\nsheddable") {
		t.Errorf("a table of classes: %s", stdout)
	}
}
