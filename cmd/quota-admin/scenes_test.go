package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

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
explain --help
budget --help
doctor --help
history --help
wait --help
version --help
cancel --help
pause --help
resume --help
shadow --help
enforce --help
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
help frob
help keys ste -o *
help set frob
diff a 1
get -o *
get a b
set a
set a --keys 80/s
set a 5/s extra
set a b 5/s
set a 5/s, 6/m
get a//b
set a '' -o *
set a 3x/s -o *
set a 5/s,7/y
set a 9999999999999/s
set a 5/s,6/1s
list --nonsense -o *
set a 5/s --resaon why
list --endpoint a
set a 1,000/s
set a 0.5/s
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
history a 1 2 --diff 3
history a 1
history a --diff now
history --follow --diff a 1
apply
apply -f missing.yaml
apply -f testdata/policies.yaml -f other.yaml
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
set lower/settle 10/s --settle 10s --freshness 9s
set lower/settle 10/s --settle 3s --freshness 2500ms
set payments/charge 5/s --settle 100ms --freshness 99ms -o *
set payments/charge 5/s --settle 2m
set payments/charge 0/s --freshness 1s
get payments/charge
`},
	// Not in the scene before: where that takes seconds, the lease of a lowered limit ends, which is a revision.
	{name: "set-sliding", commands: `
set shop 100/s
set shop '5000/h sliding' --force
set calls 100/s --shape sliding --guard 20ms
set calls '5000/h sliding' --guard 10s --force
set calls '200 inflight hold=10m' --force
set calls '200 inflight hold=10m' --shape fixed --force
`},
	{name: "budget", commands: `
set payments/charge 20/s,5000/h,100000/mo --zone Europe/Berlin
get payments/charge
budget payments/charge -o *
budget payments/charge --used 7
budget payments/charge --used 7 --limit 5000/h
set payments/charge 30/s,5000/h --at 2150-01-01T00:00:00Z
set payments/charge 30/s,5000/h --zone Nowhere/Else
set payments/charge 20/s,5000/h,2000000/mo
set payments/charge 900/15m
export payments/charge
set payments/charge 20/s,6/h,100000/mo --force
budget payments/charge
set payments/charge 30/s
set payments/charge 30/s --force
budget payments/charge
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
	{name: "backoff", prepare: heldBack, commands: `
get payments/charge -o *
set payments/charge 300000/s --backoff-max 5m
set payments/charge 300000/s --backoff-quorum 3
set payments/charge 300000/s --backoff everybody
resume payments/charge --dry-run
resume payments/charge
resume payments/charge
get payments/charge
`},
	{name: "ignored", prepare: adaptive, commands: `
get payments/charge
get payments/charge -o json
set payments/charge 1000/s --lend newcomers
set payments/charge 1000/s --guard auto+20ms
set payments/charge 1000/s --adaptive off
set payments/charge 1000/s --reserve 20
set payments/charge 1000/s --dry-run
set payments/charge 1000/s
set payments/charge 1000/s
get payments/charge
`},
	{name: "classes", commands: `
set payments/charge 300/s --classes critical=10 --dry-run
set payments/charge 300/s --classes critical=10%
get payments/charge
set payments/charge 300/s --classes critical=91
set payments/charge 300/s --pacing even
set payments/charge 300/s --pacing even --classes off
`},
	// A deleted policy leaves a key that etcd removes about a settle time later, which is one revision more. So the settle
	// time is longer than the scene lasts.
	{name: "rollback", commands: `
rollback payments/charge 1
history payments/charge --diff 1
set payments/charge 300000/s --settle 60s
set payments/charge 150000/s --guard 20ms --reason 'half of it' --if-revision @1
delete payments/charge --yes
rollback payments/charge @1 --dry-run
rollback payments/charge @1
history payments/charge --diff @1 @2
history payments/charge --diff @1 @2 -o *
history payments/charge --diff @2
history payments/charge --diff @1
history payments/charge --diff @3 @1
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
set 'pay ments' 5/s -o *
set 'pay ments' 5/s --create
set payments/refund 7/100ms --settle 1ms
set payments/refund 7/100ms --settle 3
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
delete payments/charge --dry-run -o *
delete payments/charge --yes -o json
set payments/charge 10/s
delete payments/charge --yes -o yaml
get payments/charge
history payments/charge -o *
set payments/charge 10/s
set payments/charge 20/s --settle 5s --reason 'two at once'
set payments/charge 20/s
history payments/charge --diff
history --all
history
history a --all
history --follow --diff
`},
	{name: "instances", prepare: liveFleet, commands: `
instances payments/charge -o *
instances payments/charge -o wide
explain payments/charge
explain payments/charge worker-2 -o *
explain payments/charge worker-2-7f-1
explain payments/charge worker-7
instances lonely -o *
instances unset -o *
instances absent -o *
`},
	{name: "flight", prepare: flyingFleet, commands: `
get partner
explain partner
budget partner
budget partner --withhold
set partner '100 inflight hold=1d' --dry-run
set partner '300 inflight hold=2h' --dry-run
set partner '300 inflight hold=2h'
set partner '200 inflight hold=2h'
set partner 5/s
`},
	{name: "ages", prepare: aheadFleet, commands: `
explain partner
budget partner
`},
	{name: "slides", prepare: slidingFleet, commands: `
explain hourly
budget hourly
`},
	{name: "keys", prepare: sharingFleet, commands: `
set payments/charge 999/s --keys 80/s --dry-run -o *
set payments/charge 999/s --keys 80/s
get payments/charge
set payments/charge 999/s --keys 100/s,1000/m --keys-most 5000
export
set payments/charge 999/s --keys-owners 1
set payments/charge 999/s --keys-owners 2 --dry-run
export
set payments/charge 999/s --keys-owners 17
set payments/charge 999/s --keys-owners 0
set payments/charge 999/s --keys 5000/h
set payments/charge 999/s --keys 80/100ms
set payments/charge 999/s --keys 8000/s
set payments/charge 999/s --keys-most 0
set payments/charge 999/s --shape sliding
set payments/charge 999/s --keys off
history payments/charge
set payments/charge 999/s --keys-most 10
`},
	// As in rollback, the settle time at the delete is longer than the scene lasts.
	{name: "overrides", prepare: sharingFleet, commands: `
keys --help
keys set --help
keys set payments/charge installation-4711 210/s
set payments/charge 999/s --keys 90/s
keys list payments/charge
keys set payments/charge installation-4711 210/s --dry-run -o *
keys set payments/charge installation-4711 210/s --reason 'ticket 17'
keys set payments/charge installation-4711 210/s
keys set payments/charge installation-4711 100/s
keys set payments/charge tenants/eu_7 8000/s
keys set payments/charge tenants/eu_7 8000/s --force
keys set payments/charge tenants/eu_7 5000/h
keys set payments/charge '' 8/s
keys set payments/charge big 100/s --owners 2 --dry-run
keys set payments/charge big 100/s --owners 2
keys set payments/charge big 100/s --owners 0
keys set payments/charge big 100/s --owners 17
keys set payments/charge tenants/eu_7
keys set absent tenants/eu_7 8/s
keys list payments/charge -o *
keys list payments/charge inst
export
apply -f testdata/overrides.yaml --dry-run
apply -f testdata/overrides.yaml --force --dry-run
apply -f testdata/overrides.yaml --force -o json
apply -f testdata/overrides.yaml
apply -f testdata/manykeys.yaml --force --dry-run
keys delete payments/charge tenants/eu_7 --dry-run
keys delete payments/charge tenants/eu_7
keys delete payments/charge tenants/eu_7
set payments/charge 999/s --keys off
keys list payments/charge
keys set payments/charge installation-4711 210/s
keys delete payments/charge installation-4711
set payments/charge 999/s --keys 90/s --settle 60s
history payments/charge
history payments/charge --diff
delete payments/charge --yes
set payments/charge 999/s --keys 90/s --settle 60s
keys list payments/charge
set payments/charge 999/s --keys '90/s,5000/h sliding' --settle 60s --force
keys set payments/charge big 90/s,900/15m --force
keys set payments/charge big 90/s,9000/h --force
keys set payments/charge big 90/s,8000/h
keys list payments/charge
`},
	{name: "sharing", prepare: sharingFleet, commands: `
explain payments/charge -o *
set payments/charge 510/s
explain payments/charge
set payments/charge 480/s --share weighted
explain payments/charge
get payments/charge
set payments/charge 500/s --pacing even
get payments/charge
set payments/charge 500/s --pacing waltz
set payments/charge 500/s --weight worker-1=7
set payments/charge 500/s --shape bucket --burst 20 --warm-up 30s
set payments/charge 510/s --shape bucket --burst 20 --warm-up 30s --pacing off
set payments/charge 480/s --burst 30 --dry-run
get payments/charge
get payments/charge -o yaml
export payments/charge
set payments/charge 500/s --shape sliding
get payments/charge
set payments/charge 500/s --burst 5
set payments/charge 500/s --shape torus
set payments/charge 500/s --guard 1ms
set payments/charge 500/s --shape fixed --warm-up 0
get payments/charge
`},
}

// breakThings writes what no tool of this version would.
func breakThings(b *bench, client *clientv3.Client) {
	b.put(client, "providers/not%20json/policy", "{")
	b.put(client, "providers/too%20many/policy", `{"schema":1,"limits":[{"permits":-5,"window":"1s"}]}`)
	b.put(client, "providers/future/policy", `{"schema":2}`)
}

// heldBack sets a policy and a back-off.
func heldBack(b *bench, client *clientv3.Client) {
	b.want(exitDone, "set", "payments/charge", "300000/s", "--backoff", "instance")
	a := protocol.Ask{By: "worker-1.\x1b[2J", At: fixed, Until: time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC), Why: "429 from api"}
	b.put(client, "providers/payments%2Fcharge/throttle", protocol.Throttle{Asks: []protocol.Ask{a, {By: "worker-2.x", At: fixed, Until: fixed}}})
}

// adaptive writes a policy with what earlier versions had.
func adaptive(b *bench, client *clientv3.Client) {
	p, err := json.Marshal(quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}, Author: "ann", Time: fixed})
	if err != nil {
		b.t.Fatal(err)
	}
	text := strings.Replace(string(p), `"guard":"0s"`, `"guard":"auto+20ms"`, 1)
	b.put(client, "providers/payments%2Fcharge/policy", strings.Replace(text, "{", `{"adaptive":{"floor_percent":20},"lend":"newcomers","reserve_percent":20,"backoff_quorum":3,`, 1))
}

// hostile writes what could take over a terminal, if it were shown as it is.
func hostile(b *bench, client *clientv3.Client) {
	evil := "a\x1b[2J\x07\u009b31m\u202etxt\r\nforged\tline\U000e0041"
	p := quota.Policy{Limits: []quota.Limit{{Permits: 5, Window: time.Second}}, Author: evil, Reason: evil, Mode: quota.Mode(evil)}
	b.put(client, "providers/evil/policy", p)
	b.put(client, "providers/evil%1B%5B31m/policy", p)
	b.put(client, "providers/evil/instances/x%1B%5B2J", protocol.Instance{Name: evil, Host: evil, Version: evil})
	b.put(client, "providers/evil/instances/broken", "{\x1b[2J")
	b.put(client, "reports/evil/x%1B%5B2J", protocol.Report{
		State: quota.State(evil), ClockError: evil, ProofAge: evil, Problem: evil, Time: time.Now().Add(time.Hour),
	})
	b.put(client, "history/evil/1", map[string]any{"schema": 1, "author": evil, "reason": evil, "time": time.Now(), "new": p})
}

// flyingFleet writes two instances with calls in flight. A third, which has ended, has three places.
func flyingFleet(b *bench, client *clientv3.Client) {
	takingFleet(b, client, "partner", quota.Limit{Permits: 200, Window: 24 * time.Hour, InFlight: true}, 64)
}

// aheadFleet writes the same, with a total that was read when a report was old: a call that it tells of has ended, and another
// instance has its place.
func aheadFleet(b *bench, client *clientv3.Client) {
	takingFleet(b, client, "partner", quota.Limit{Permits: 200, Window: 24 * time.Hour, InFlight: true}, 50)
}

// slidingFleet writes the same of a limit that slides.
func slidingFleet(b *bench, client *clientv3.Client) {
	takingFleet(b, client, "hourly", quota.Limit{Permits: 200, Window: 24 * time.Hour, Sliding: true}, 64)
}

// takingFleet writes two instances that have taken 61 permits of a limit, and a total.
func takingFleet(b *bench, client *clientv3.Client, provider string, limit quota.Limit, total int64) {
	b.want(exitDone, "set", provider, limit.String())
	w := protocol.BudgetAt(limit, time.UTC, time.Now().UnixNano())
	began := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, name := range []string{"worker-1", "worker-2"} {
		id := fmt.Sprintf("%s/%s-7f-%d", provider, name, i)
		b.put(client, strings.Replace("providers/"+id, "/worker", "/instances/worker", 1), protocol.Instance{Name: name, Started: began, From: began})
		report := protocol.Report{
			Schema: 1, Name: name, State: quota.StateActive, ClockError: "1.2ms", ProofAge: "310ms", Time: time.Now().Add(time.Hour), Used: 1000,
			Long: []protocol.Taken{{Window: w.Name(), Taken: 30 + int64(i), Used: 27}},
		}
		if limit.InFlight {
			report.Forgotten = 2 * int64(i)
		}
		b.put(client, "reports/"+id, report)
	}
	r, err := client.Get(b.t.Context(), "any")
	if err != nil {
		b.t.Fatal(err)
	}
	text, err := escrow.Encode(escrow.Total{Limit: 200, Out: total, Newest: w.Part().Number, Parts: []int64{total}, Writes: 9, Cluster: r.Header.ClusterId})
	if err != nil {
		b.t.Fatal(err)
	}
	k, err := keys.New(b.prefix)
	if err != nil {
		b.t.Fatal(err)
	}
	b.put(client, strings.TrimPrefix(k.BudgetTotal(provider, w.Name(), w.TotalStart()), b.prefix), text)
}

// liveFleet writes three instances, one of which has not reported, and one that
// is alone without a policy.
func liveFleet(b *bench, client *clientv3.Client) {
	b.want(exitDone, "set", "payments/charge", "300000/s")
	b.want(exitDone, "set", "lonely", "5/s")
	began := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, name := range []string{"worker-1", "worker-2", "worker-3"} {
		in := protocol.Instance{Name: name, Host: "node", PID: 100 + i, Version: "v0.1.0", Started: began, From: began.Add(4 * time.Second)}
		if i == 2 {
			in.Until = time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		b.put(client, fmt.Sprintf("providers/payments%%2Fcharge/instances/%s-7f-%d", name, i), in)
	}
	b.put(client, "providers/unset/instances/alone-1", protocol.Instance{Name: "alone", Started: began})
	report := protocol.Report{
		Schema: 1, Name: "worker-1", State: quota.StateActive, Revision: 17, PolicyRevision: 12, Window: time.Second,
		Total: 300000, Share: 100000, Instances: 3, Used: 123456789, Refused: 42, Waiting: 7,
		Borrowed: 150000, Hosts: 2, ClockError: "1.2ms", ProofAge: "310ms", Time: time.Now().Add(time.Hour),
	}
	b.put(client, "reports/payments%2Fcharge/worker-1-7f-0", report)
	report.Borrowed, report.Hosts, report.Lent, report.Guests = 0, 0, 90000, 1
	report.Name, report.State, report.ProofAge, report.Problem, report.Debt = "worker-2", quota.StateStale, "4.1s", "etcd does not answer", 500
	b.put(client, "reports/payments%2Fcharge/worker-2-7f-1", report)
	b.put(client, "reports/payments%2Fcharge/worker-9-7f-1", protocol.Report{Name: "worker-9", State: quota.StateClosed, Debt: 70, Time: fixed})
}
