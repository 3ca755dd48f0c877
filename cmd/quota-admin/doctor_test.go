package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/doctor"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// doctor runs quota-admin doctor as want does, again while this machine is so busy that the etcd of the test reads
// slowly: doctor rightly calls that a problem.
func (b *bench) doctor(code int, args ...string) (stdout, stderr string) {
	b.t.Helper()
	args = append([]string{"doctor"}, args...)
	var got int
	await.Until(b.t, "etcd reads fast enough", func() bool {
		got, stdout, stderr = b.call(args...)
		return !strings.Contains(stdout, "are still right")
	})
	b.demand(code, got, args, stdout, stderr)
	return stdout, stderr
}

// On a real etcd: what the exit code says, and that each format can be read.
func TestDoctor(t *testing.T) {
	b := newBench(t, server)
	b.want(exitDone, "set", "payments/charge", "5/s")
	stdout, _ := b.doctor(exitDone, "-o", "json")
	var d diagnosis
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatalf("%v in\n%s", err, stdout)
	}
	checks := map[string]int{}
	for _, f := range d.Findings {
		checks[f.Check]++
	}
	if !d.Healthy || d.Problems != 0 || checks["etcd"] < 3 || checks["clock"] != 1 || checks["fleet"] != 1 {
		t.Errorf("%d of etcd, %d of the clock, %d of fleets in\n%s", checks["etcd"], checks["clock"], checks["fleet"], stdout)
	}
	for _, f := range d.Findings {
		if f.Check == "fleet" && (f.Level != "note" || !strings.HasPrefix(f.Finding, "no instance is registered")) {
			t.Errorf("a fleet that may be shut out is %+v", f)
		}
	}
	if strings.Contains(stdout, "not known") || !strings.Contains(stdout, "it keeps ") {
		t.Errorf("the history kept is not told:\n%s", stdout)
	}
	b.doctor(exitDone, "-o", "yaml")
	stdout, stderr := b.doctor(exitFailed, "nobody")
	if !strings.Contains(stdout, "do: check the name") || !strings.Contains(stderr, "1 problem found") {
		t.Errorf("stdout:\n%s\nstderr:\n%s", stdout, stderr)
	}
	b.want(exitUsage, "doctor", "--ntp", "a,a")
	stdout, _ = b.doctor(exitFailed, "--quotad", "/nowhere/quotad.sock")
	if !strings.Contains(stdout, "/nowhere/quotad.sock") || !strings.Contains(stdout, "do: see whether it runs") {
		t.Errorf("stdout:\n%s", stdout)
	}

	// A port on which nobody listens.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	stdout, _ = b.want(exitUnreachable, "doctor", "--endpoints", nobody, "--command-timeout", "500ms", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &d); err != nil || d.Healthy || d.Problems != 2 {
		t.Errorf("%v, %d problems in\n%s", err, d.Problems, stdout)
	}
}

// ordered goes over pairs in their order.
func ordered(pairs ...string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := 0; i < len(pairs) && yield(pairs[i], pairs[i+1]); i += 2 {
		}
	}
}

// Whatever set writes into a policy is remembered, in words that make a command which writes it again. A field that is
// added to set is added here.
func TestWhatIsRememberedOfALostPolicy(t *testing.T) {
	t.Parallel()
	other := map[string]string{
		"max-step": "2.5x", "shape": "bucket", "burst": "7", "guard": "20ms", "clock-error": "40ms", "zone": "America/Port-au-Prince", "keys": "'5000/h sliding',9/s",
		"keys-owners": "2", "keys-most": "77", "lend": "off", "classes": "critical=10", "pacing": "even", "warm-up": "2s", "backoff": "instance", "backoff-max": "30s",
		"outage": "stop", "settle": "5s", "freshness": "2s",
	}
	fresh := quota.Policy{Limits: []quota.Limit{{Permits: 20, Window: time.Second}}}.WithDefaults()
	all := fresh.Clone()
	for _, f := range fields {
		set, err := f.parse(strings.ReplaceAll(other[f.flag], "'", ""))
		if err != nil {
			t.Fatalf("--%s %s: %v", f.flag, other[f.flag], err)
		}
		set(&all)
		one := fresh.Clone()
		set(&one)
		for _, p := range []quota.Policy{one, all} {
			again := fresh.Clone()
			words := strings.Fields(cause.LostBy(cause.LostLimit("p", cause.Was(&p))).Set)
			if words[0] != "20/s" {
				t.Errorf("the limit is %s", words[0])
			}
			for i, word := range words {
				if at := slices.IndexFunc(fields, func(f field) bool { return "--"+f.flag == word }); at >= 0 {
					value, _, _ := strings.Cut(strings.Join(words[i+1:], " "), " --")
					set, err := fields[at].parse(strings.Trim(value, "'"))
					if err != nil {
						t.Fatalf("%q: %v", words, err)
					}
					set(&again)
				}
			}
			if got, want := again.WithDefaults(), p.WithDefaults(); !reflect.DeepEqual(got, want) {
				t.Errorf("--%s is lost: %q\nmakes %+v\nof    %+v", f.flag, words, got, want)
			}
		}
	}
	if was := cause.Was(&fresh); was != "20/s" {
		t.Errorf("of a policy with the defaults: %s", was)
	}
}

// A policy may be deleted, or lost with an etcd that comes back empty, while instances run. Doctor
// without a name looks at these too.
func TestDoctorFindsInstancesWithoutAPolicy(t *testing.T) {
	b := newBench(t, server)
	client := etcdtest.NewClient(t, server)
	b.put(client, "providers/lost%2Fapi/instances/w.1.1", protocol.Instance{Name: "w"})
	report := func(problem string) {
		b.put(client, "reports/lost%2Fapi/w.1.1", protocol.Report{Schema: 1, State: quota.StateJoining, ClockError: "unknown", Time: time.Now(), Problem: problem})
	}
	const was = "5000/h sliding, and 9/s of each key, set with --outage stop --settle 4s, in mode pause"
	lost := cause.LostLimit("lost/api", was)
	for others, do := range ordered(
		"empty", "do: quota-admin set lost/api LIMITS --create, and with --withhold if there was one",
		"empty, and a limit is remembered", "announced changes): quota-admin set lost/api '5000/h sliding' --keys 9/s --outage stop --settle 4s --create --withhold; then quota-admin pause lost/api",
		"a policy was not in the backup", "with the file of your last quota-admin export; without one quota-admin set lost/api '5000/h sliding' --keys 9/s --outage stop --settle 4s --create --withhold; then quota-admin pause lost/api",
		"with a policy", "do: compare the name with quota-admin list, or set a limit: quota-admin set lost/api LIMITS --create",
		"with a policy whose name is near", "do: did you mean lost/app? Otherwise set a limit: quota-admin set lost/api LIMITS --create",
		"with a history", "do: quota-admin history lost/api tells who deleted it; quota-admin set lost/api '5000/h sliding' --keys 9/s --outage stop --settle 4s --create sets it again; then quota-admin pause lost/api",
	) {
		problem, empty := lost, strings.HasPrefix(others, "empty")
		switch others {
		case "empty":
			problem = cause.NoLimit("lost/api")
		case "a policy was not in the backup":
			b.want(exitDone, "set", "a", "5/s")
		case "with a policy":
			problem = cause.NoLimit("lost/api")
		case "with a policy whose name is near":
			b.want(exitDone, "set", "lost/app", "5/s", "--create")
			problem = cause.NoLimit("lost/api")
		case "with a history":
			b.want(exitDone, "delete", "a", "--yes")
			b.want(exitDone, "delete", "lost/app", "--yes")
			b.want(exitDone, "set", "lost/api", "5000/h", "--create")
			b.want(exitDone, "delete", "lost/api", "--yes")
		}
		more := 1
		report(problem)
		stop := b.whileObserved(client, time.Second, func() { report(problem) })
		stdout, stderr := b.doctor(exitFailed)
		stop()
		const all = "there is no policy at all, nor a history of one, and 1 instance of 1 provider are registered: etcd has lost its data"
		if at := strings.Index(stdout, all); (at >= 0) != empty || at > strings.Index(stdout, "no limit is set") || strings.Contains(stdout, "100/s") {
			t.Errorf("%s: an etcd that lost its data is told apart from others, before all else and without a number:\n%s", others, stdout)
		}
		if empty {
			more++
			if !strings.Contains(stdout, "do: quota-admin apply -f EXPORT --withhold") {
				t.Errorf("no way out:\n%s", stdout)
			}
		}
		if !strings.Contains(stderr, fmt.Sprint(more, " problem")) || strings.Contains(stdout, "it was "+was) != (problem == lost) {
			t.Errorf("%s: want %d problems, and the limit that an instance remembers:\n%s%s", others, more, stdout, stderr)
		}
		if !strings.Contains(stdout, ": its 1 instance issues nothing") || !strings.Contains(stdout, do) || strings.Contains(stdout, "nor an instance") || strings.Count(stdout, "quota-admin set lost/api") != 1 {
			t.Errorf("%s:\n%s", others, stdout)
		}
		if others == "with a policy whose name is near" { // as after doctor's command for that one: this one works too
			_, command, _ := strings.Cut(stdout, "Otherwise set a limit: quota-admin ")
			command, _, _ = strings.Cut(command, "\n")
			b.want(exitDone, append(strings.Fields(strings.Replace(command, "LIMITS", "5/s", 1)), "--dry-run")...)
		}
	}
}

// An etcd that has lost its data is not told from a new one before an instance has found it: who follows the advice
// hands nothing out again.
func TestDoctorOfAnEmptyEtcd(t *testing.T) {
	t.Parallel()
	stdout, _ := newBench(t, server).doctor(exitDone)
	if !strings.Contains(stdout, "there is no policy, nor an instance") || !strings.Contains(stdout, "do: if there were some, run this again in 10 s") {
		t.Error(stdout)
	}
}

// A clock that is behind makes each report look old, and one old report may just be late.
func TestDoctorSeesClocksThatAreBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	client := etcdtest.NewClient(t, server)
	b.want(exitDone, "set", "p", "5/s", "--create")
	for _, l := range b.join(server, "p", 1) { // its clock is right
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.put(client, "providers/p/instances/behind.1.1", protocol.Instance{Name: "behind"})
	report := func() {
		b.put(client, "reports/p/behind.1.1", protocol.Report{Schema: 1, State: quota.StateActive, PolicyRevision: 1 << 40, ClockError: "unknown", Time: time.Now().Add(-4 * time.Second)})
	}
	report()
	stop := b.whileObserved(client, 0, report)
	_, stdout, _ := b.call("doctor", "p", "-o", "json")
	stop()
	var d diagnosis
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatalf("%v in\n%s", err, stdout)
	}
	behind := func(f doctor.Finding) bool { return strings.Contains(f.Finding, "behind this host's") }
	if i := slices.IndexFunc(d.Findings, behind); i < 0 || d.Findings[i].Subject != "p behind" || slices.ContainsFunc(d.Findings[i+1:], behind) {
		t.Errorf("not told, or of another one:\n%s", stdout)
	}
}

// whileObserved reports once a second, beginning so long after somebody observes: as an instance
// does. It is to be stopped before the test ends.
func (b *bench) whileObserved(client *clientv3.Client, after time.Duration, report func()) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	now, err := client.Get(ctx, b.prefix, clientv3.WithCountOnly())
	if err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
			return
		case <-client.Watch(ctx, b.prefix+"observers/", clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1)): // also if it opens late
		}
		for wait := after; ; report() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
				wait = time.Second
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// When etcd ceases to answer while doctor looks, it sends nobody to doctor.
func TestDoctorDoesNotSendToDoctor(t *testing.T) {
	a := &app{etcd: &etcdflags.Flags{Endpoints: []string{"http://127.0.0.1:1"}}}
	f := classify(a.explain(t.Context(), a.midway(t.Context(), fmt.Errorf("look at github: %w", coordinator.ErrUnreachable))))
	if hints := strings.Join(f.Hints, "\n"); f.ExitCode != exitUnreachable || strings.Contains(hints, "doctor") || !strings.Contains(hints, "run it again when etcd answers") {
		t.Errorf("%+v", f)
	}
	if f := classify(a.midway(t.Context(), errors.New("another"))); len(f.Hints) != 0 {
		t.Errorf("another error has hints: %+v", f)
	}
}
