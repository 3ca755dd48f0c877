package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

// scene is a golden file: commands that run one after another on a prefix of
// their own. Each line of commands is split as a shell would at blanks and
// single quotes; one that ends with "-o *" runs once for each format.
type scene struct {
	name     string
	prepare  func(*bench, *clientv3.Client)
	commands string
}

var scenes = []scene{
	{name: "help", commands: `
--help
set --help
get --help
list --help
delete --help
instances --help
doctor --help
history --help
version --help
cancel --help
pause --help
resume --help
shadow --help
enforce --help
diff --help
rollback --help
apply --help
export --help
roles --help
roles consumer --help
top --help
dev --help
`},
	{name: "usage", commands: `
nonsense -o *
lst
get -o *
get a b
set a
set a 5/s extra
get a//b
set a '' -o *
set a 3x/s -o *
set a 5/s,7/h
set a 9999999999999/s
set a 5/s,6/1s
list --nonsense -o *
list -o xml
list --command-timeout soon
set a 5/s --if-revision -1
set a 5/s --settle 0s
set a 5/s --guard -1s
set a 5/s --outage explode
delete a --if-revision 0 --yes
delete a -o *
--user ann:secret list -o *
completion tcsh -o *
completion bash extra
set a 5/s --max-step 0.5x
set a 5/s --wait=0s
set a 5/s --at tomorrow
set a 5/s --for -1s
rollback a
rollback a zero
diff a 1 2 3
apply
apply -f missing.yaml
export a//b
`},
	{name: "set", commands: `
set payments/charge 300000/s --reason campaign
set payments/charge 150000/s
set payments/charge 400000/s --settle 5s --outage stop
set payments/charge 400000/s,1000000/10s --guard 20ms --clock-error 20ms
set payments/charge 200000/s
set payments/charge 2000001/s -o *
set payments/charge 200000/m
set payments/charge 0/s
set payments/charge 2000001/s --max-step 11x
set payments/charge 200000/s --max-step 2x
set payments/charge 5/s --force -o *
set new/one 10/s --if-revision 0 -o json
set new/one 20/s --if-revision 0 -o *
set new/one 20/s --if-revision 3
set absent 20/s --if-revision 3
set payments/charge 5/s --settle 100ms --freshness 99ms -o *
set payments/charge 5/s --settle 2m
set payments/charge 0/s --freshness 1s
get payments/charge
`},
	{name: "ahead", commands: `
set payments/charge 300000/s --at 2150-01-01T00:00:00Z
set payments/charge 200000/s --dry-run
set payments/charge 200000/s
set payments/charge 150000/s --at 2149-01-01T00:00:00Z --for 1h --reason 'new year'
set payments/charge 1/s --at 2149-01-01T00:00:00Z
get payments/charge
list
set payments/charge 250000/s
set payments/charge 250000/s --at 2000-01-01T00:00:00Z
set payments/charge 250000/s --at 2149-01-01T00:00:00Z --for 20000h
set payments/charge 100000/s --for 1h --dry-run
cancel payments/charge --at 2149-01-01T00:30:00Z
cancel payments/charge --at 2149-01-01T00:00:00Z --if-revision 1
cancel payments/charge --at 2149-01-01T00:00:00Z --dry-run
cancel payments/charge --at 2149-01-01T00:00:00Z
cancel payments/charge --reason postponed
cancel payments/charge
cancel absent
get payments/charge
history payments/charge
`},
	{name: "roles", commands: `
roles consumer payments/charge --dry-run
roles operator --dry-run
roles operator payments/charge --dry-run -o json
roles reader --dry-run -o yaml
roles reader payments/charge --dry-run
`},
	{name: "mode", commands: `
pause payments/charge
set payments/charge 300000/s
shadow payments/charge --reason 'try it'
pause payments/charge --dry-run
pause payments/charge --reason 'provider is down'
pause payments/charge
set payments/charge 200000/s
resume payments/charge
resume payments/charge -o *
enforce payments/charge
pause payments/charge --if-revision 1
pause payments/charge
enforce payments/charge
history payments/charge
`},
	{name: "rollback", commands: `
rollback payments/charge 1
diff payments/charge 1
set payments/charge 300000/s
set payments/charge 150000/s --guard 20ms --reason 'half of it' --if-revision @1
delete payments/charge --yes
rollback payments/charge @1 --dry-run
rollback payments/charge @1
diff payments/charge @1 @2
diff payments/charge @1 @2 -o *
diff payments/charge @2
diff payments/charge @1
diff payments/charge @3 @1
rollback payments/charge @3
rollback payments/charge @1
rollback payments/charge 999
rollback payments/charge @2 --if-revision @1
rollback payments/charge @2
history payments/charge
`},
	{name: "apply", commands: `
apply -f testdata/bad.yaml -o *
apply -f testdata/policies.yaml --dry-run
apply -f testdata/policies.yaml -o json
apply -f testdata/policies.yaml
set payments/refund 900/2s,18000/1m
set payments/charge 200000/s
apply -f testdata/policies.yaml --max-step 1.2x
apply -f testdata/policies.yaml --reason 'release 42'
set mail 1000/100ms --force
apply -f testdata/policies.yaml
apply -f testdata/policies.yaml --force
export
export mail payments/charge -o json
export absent
history payments/refund
`},
	{name: "get-list", commands: `
list -o *
get payments/charge -o *
set payments/charge 500/2s,10000/1m --reason 'first try'
set payments/refund 7/100ms
get payments/charge -o *
list -o *
`},
	{name: "broken", prepare: breakThings, commands: `
list -o *
get 'not json' -o *
get 'too many' -o *
set 'not json' 5/s
set 'too many' 5/s
get future
instances 'not json'
`},
	{name: "hostile", prepare: hostile, commands: `
list -o *
get evil -o *
history evil
instances evil -o *
`},
	{name: "delete-history", commands: `
history payments/charge -o *
delete payments/charge --yes -o *
set payments/charge 300000/s --reason campaign
set payments/charge 150000/s --reason 'campaign ended'
delete payments/charge --yes --if-revision 1 -o *
delete payments/charge --yes --reason 'contract ended'
set payments/charge 10/s
delete payments/charge --yes -o json
set payments/charge 10/s
delete payments/charge --yes -o yaml
get payments/charge
history payments/charge -o *
`},
	{name: "instances", prepare: liveFleet, commands: `
instances payments/charge -o *
instances lonely -o *
instances unset -o *
instances absent -o *
`},
	{name: "sharing", prepare: demandingFleet, commands: `
instances payments/charge --explain -o *
set payments/charge 510/s
instances payments/charge --explain
set payments/charge 480/s --share weighted --weight worker-1=7 --floor 20
instances payments/charge --explain
get payments/charge
set payments/charge 500/s --weight worker-1= --share demand --pacing adaptive --pacing-delay 1s
get payments/charge
set payments/charge 500/s --share lottery
set payments/charge 500/s --pacing waltz
set payments/charge 500/s --floor 0
set payments/charge 500/s --weight worker-1
set payments/charge 500/s --weight worker-1=1001
set payments/charge 500/s --pacing-delay 1ms
set payments/charge 500/s --shape bucket --burst 20 --warm-up 30s
set payments/charge 510/s --shape bucket --burst 20 --warm-up 30s --share equal --pacing off
set payments/charge 480/s --burst 30 --dry-run
get payments/charge
get payments/charge -o yaml
export payments/charge
set payments/charge 500/s --shape sliding
get payments/charge
set payments/charge 500/s --burst 5
set payments/charge 500/s --shape torus
set payments/charge 500/s --guard 5ms
set payments/charge 500/s --shape fixed --warm-up 0
get payments/charge
`},
}

// TestGolden runs all scenes in one go on an etcd of its own, so that revisions
// are the same each time.
func TestGolden(t *testing.T) {
	cluster, client := etcdtest.New(t, etcdtest.Options{})
	for _, s := range scenes {
		b := newBench(t, cluster)
		b.prefix = "/golden/" + s.name + "/"
		b.env["QUOTIENT_PREFIX"] = b.prefix
		if s.prepare != nil {
			s.prepare(b, client)
		}
		got := s.play(b)
		path := filepath.Join("testdata", s.name+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (write it anew with -update): -want +got\n%s", path, diff)
		}
	}
}

// play returns the record of a scene.
func (s scene) play(b *bench) string {
	var text strings.Builder
	for line := range strings.Lines(strings.TrimSpace(s.commands)) {
		for _, args := range variants(words(strings.TrimSpace(line))) {
			revisionsIn(b, args)
			code, stdout, stderr := b.call(args...)
			fmt.Fprintf(&text, "$ quota-admin %s\n%s", spell(args), stdout)
			for line := range strings.Lines(stderr) {
				fmt.Fprintf(&text, "2> %s", line)
			}
			fmt.Fprintf(&text, "exit %d\n\n", code)
		}
	}
	return normalise(text.String())
}

// revisionsIn replaces @n by the revision of the n-th change of payments/charge.
func revisionsIn(b *bench, args []string) {
	for i, arg := range args {
		n, ok := strings.CutPrefix(arg, "@")
		if !ok {
			continue
		}
		stdout, _ := b.want(exitDone, "history", "payments/charge", "-o", "json")
		var h historyJSON
		if err := json.Unmarshal([]byte(stdout), &h); err != nil {
			b.t.Fatal(err)
		}
		k, err := strconv.Atoi(n)
		if err != nil {
			b.t.Fatal(err)
		}
		args[i] = fmt.Sprint(h.Changes[len(h.Changes)-k].Revision)
	}
}

// variants returns the command once for each format where it ends with -o *.
func variants(args []string) [][]string {
	if args[len(args)-1] != "*" {
		return [][]string{args}
	}
	plain := args[:len(args)-2]
	all := [][]string{plain}
	for _, format := range []string{"json", "yaml"} {
		all = append(all, append(append([]string{}, plain...), "-o", format))
	}
	return all
}

var word = regexp.MustCompile(`'[^']*'|\S+`)

// words splits a line as a shell does, as far as it is needed here.
func words(line string) []string {
	args := word.FindAllString(line, -1)
	for i := range args {
		args[i] = strings.Trim(args[i], "'")
	}
	return args
}

// spell is the reverse of words.
func spell(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		if quoted[i] = arg; arg == "" || strings.ContainsRune(arg, ' ') {
			quoted[i] = "'" + arg + "'"
		}
	}
	return strings.Join(quoted, " ")
}

var instant = regexp.MustCompile(`20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:]{8}(\.[0-9]+)?Z`)

// normalise replaces the instants of this run, which all lie after fixed.
func normalise(text string) string {
	return instant.ReplaceAllStringFunc(text, func(at string) string {
		if at < fixed.Format(time.RFC3339) {
			return at
		}
		return fixed.Format(time.RFC3339)
	})
}

// fixed stands for every instant of the run itself.
var fixed = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// breakThings writes what no tool of this version would.
func breakThings(b *bench, client *clientv3.Client) {
	b.put(client, "providers/not%20json/policy", "{")
	b.put(client, "providers/too%20many/policy", `{"schema":1,"limits":[{"permits":-5,"window":"1s"}]}`)
	b.put(client, "providers/future/policy", `{"schema":2}`)
}

// hostile writes what could take over a terminal, if it were shown as it is.
func hostile(b *bench, client *clientv3.Client) {
	evil := "a\x1b[2J\x07\u009b31m\u202etxt\r\nforged\tline\U000e0041"
	p := quota.Policy{Limits: []quota.Limit{{Permits: 5, Window: time.Second}}, Author: evil, Reason: evil, Mode: quota.Mode(evil)}
	b.put(client, "providers/evil/policy", p)
	b.put(client, "providers/evil%1B%5B31m/policy", p)
	b.put(client, "providers/evil/instances/x%1B%5B2J", quota.Instance{Name: evil, Host: evil, Version: evil})
	b.put(client, "providers/evil/instances/broken", "{\x1b[2J")
	b.put(client, "reports/evil/x%1B%5B2J", quota.Report{
		State: quota.State(evil), ClockError: evil, ProofAge: evil, Problem: evil, Time: time.Now().Add(time.Hour),
	})
	b.put(client, "history/evil/1", map[string]any{"schema": 1, "author": evil, "reason": evil, "time": time.Now(), "new": p})
}

// liveFleet writes three instances, one of which has not reported, and one that
// is alone without a policy.
func liveFleet(b *bench, client *clientv3.Client) {
	b.want(exitDone, "set", "payments/charge", "300000/s")
	b.want(exitDone, "set", "lonely", "5/s")
	began := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, name := range []string{"worker-1", "worker-2", "worker-3"} {
		in := quota.Instance{Name: name, Host: "node", PID: 100 + i, Version: "v0.1.0", Weight: 1, Started: began, From: began.Add(4 * time.Second)}
		if i == 2 {
			in.Until = time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		b.put(client, fmt.Sprintf("providers/payments%%2Fcharge/instances/%s-7f-%d", name, i), in)
	}
	b.put(client, "providers/unset/instances/alone-1", quota.Instance{Name: "alone", Started: began})
	report := quota.Report{
		Schema: 1, Name: "worker-1", State: quota.StateActive, Revision: 17, PolicyRevision: 12, Window: time.Second,
		Total: 300000, Share: 100000, Instances: 3, Used: 123456789, Refused: 42, Waiting: 7,
		ClockError: "1.2ms", ProofAge: "310ms", Time: time.Now().Add(time.Hour),
	}
	b.put(client, "reports/payments%2Fcharge/worker-1-7f-0", report)
	report.Name, report.State, report.ProofAge, report.Problem = "worker-2", quota.StateStale, "4.1s", "etcd does not answer"
	b.put(client, "reports/payments%2Fcharge/worker-2-7f-1", report)
}
