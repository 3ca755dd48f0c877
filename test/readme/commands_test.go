package readme

import "testing"

// A command of a document is in one of these tables, or the test fails: how it is
// run here, which step of .ci/run runs it, or why nothing can.

// here is how a command is run.
type here struct {
	// with is appended to the command: what keeps it from running for ever, or from
	// taking a port that may not be free. %s is the etcd's address.
	with string
	// instead replaces a part of the command: first by second.
	instead [2]string
	// says are texts that the command prints.
	says []string
	// like says that the README shows what the command prints: all its lines, with
	// other numbers.
	like bool
}

// alone are commands that need nothing beside them. They run at the same time.
var alone = map[string]here{
	`go run ./cmd/loadgen --least-use 90`: {says: []string{"HELD: ", "USED: "}, like: true},
	`go run ./cmd/loadgen --instances 200 --processes 4 --limit 50000/s --churn 2 --duration 30s`: {with: "--duration 10s", says: []string{"HELD: ", "left and replaced: "}},
	`go run ./cmd/loadgen --rolling-restart --duration 20s`:                                       {says: []string{"HELD: ", " announced, 0 killed"}},
	`go run ./cmd/loadgen --transport http --limit 5000/s --instances 20 --processes 2`:           {says: []string{"HELD: ", "arrived"}},
	`go run ./cmd/loadgen --etcd-members 3 --outage stop --fault 5s=kill-leader`:                  {says: []string{"HELD: ", "etcd of 3 members", "  kill-leader"}},
	`go run ./cmd/loadgen --hot 1 --move 5s --limit 2000/s --instances 20`:                        {says: []string{"HELD: ", "of what one limiter would have issued"}},
	`go run ./cmd/loadgen --shape sliding --arrival burst --limit 30000/s --least-use 30`:         {says: []string{"HELD: ", " spans; the fullest: "}},
}

// dev is the command that the next ones need beside them.
const dev = `go run ./cmd/quota-admin dev`

// beside are commands that run one after the other, in the documents' order, while
// dev runs.
var beside = map[string]here{
	`go run ./cmd/quota-admin top demo/api`: {with: "--count 2", says: []string{"demo/api", "demo-1", "demo-3", "PROOF-AGE"}},
	`go run ./cmd/quota-admin set demo/api 500/s --reason "provider is slow" --wait`: {says: []string{
		"applied by 3 of 3 instances at revision ", ", in force from "}},
	`go run ./cmd/quota-admin set demo/api 800/s --at +5m`:                     {says: []string{"800/s"}},
	`go run ./cmd/quota-admin set demo/api 900/s --at +10m --for 1m --dry-run`: {says: []string{"900/s"}},
	`go run ./cmd/quota-admin cancel demo/api`:                                 {},
	`go run ./cmd/quota-admin history demo/api`:                                {says: []string{"provider is slow"}},
	`go run ./cmd/quota-admin export`:                                          {says: []string{"demo/api"}},
	`go run ./cmd/loadgen --endpoints http://127.0.0.1:2379 --limit 20000/s --instances 24`: {
		instead: [2]string{"127.0.0.1:2379", "%s"}, says: []string{"HELD: "}},
	`go run ./cmd/quota-admin set demo/charge 1/s,100/1m`: {says: []string{"demo/charge: 1/s,100/1m"}},
	`go run ./examples/http-server`: {with: `-listen 127.0.0.1:18080 & trap : TERM
		curl --silent --show-error --retry 180 --retry-delay 1 --retry-all-errors -X POST http://127.0.0.1:18080/charge
		kill -TERM 0; wait`, says: []string{"charged"}},
	`go run ./cmd/quotad --socket /tmp/quotad.sock --provider demo/api`: {with: `& trap : TERM
		curl --silent --show-error --retry 120 --retry-delay 1 --retry-all-errors --unix-socket /tmp/quotad.sock \
			http://quotad/v1/acquire --header 'Content-Type: application/json' --data '{"provider": "demo/api", "permits": 1}'
		kill -TERM 0; wait`, says: []string{`"permits":1`}},
}

// steps are commands that a step of .ci/run runs, or a longer form of what it runs.
var steps = map[string]string{
	`go test ./...`:          "unit",
	`proof/program /tmp`:     "compare",
	`SEED=2811 .ci/run hour`: "hour",
	`go test ./test/differential -run ARun -v -model /tmp/answers -traces DIR`: "compare",
	`make -C .. bench`:                                "bench",
	`go run ./overshoot`:                              "bench",
	`./beside KeyCalls 6 a01a4e55 6bc2b97`:            "by hand: a quarter of an hour, on a quiet machine",
	`go run ./results -short -check`:                  "bench",
	`go run ./results -part keys`:                     "bench",
	`go test -short -run '^$' -bench . -benchtime 1x`: "bench",
	`cd examples/kafka-consumer && go run .`:          "kafka",
	`curl --unix-socket /tmp/quotad.sock http://quotad/v1/acquire --json '{"provider": "demo/api", "max_wait": 5}'`: "readme: beside quotad",
	`curl -i -X POST http://127.0.0.1:8080/charge`:                                                                  "readme: beside examples/http-server, at another port",
	`mkdir ../charge && cd ../charge`:                                                                               "unit: examples/quickstart plays README's section",
	`go mod init example.com/charge`:                                                                                "unit: examples/quickstart",
	`go work init . ../quotient`:                                                                                    "unit: examples/quickstart",
	`go run .`:                                                                                                      "unit: examples/quickstart",
	`python3 -m venv ../venv && . ../venv/bin/activate`:                                                             "quotad: as the client's README has it",
	`pip install ./clients/python`:                                                                                  "quotad",
	`mkdir ../app && cd ../app && npm init -y`:                                                                      "quotad",
	`npm install ../quotient/clients/typescript`:                                                                    "quotad",
	`go test -run '^$' -bench Granted -count 3 | go tool benchstat -`:                                               "bench",

	// The restore of a member, and of the counts of keys.
	`quota-admin budget github --key installation-4711 --used 31 --limit 5000/h`: "compat: test/live plays the page from a snapshot",
	`quota-admin budget github --keys-file counts.txt --limit 5000/h`:            "compat: as above",
	`quota-admin budget github --keys-unused`:                                    "compat: as above",
	`name=etcd-1`:                        "compat",
	`mv /var/lib/etcd /var/lib/etcd.old`: "compat",
	`etcdutl snapshot restore quotient.db --bump-revision 1000000000 --mark-compacted --name $name --data-dir /var/lib/etcd --initial-cluster-token restored-1 --initial-advertise-peer-urls https://$name:2380 --initial-cluster etcd-1=https://etcd-1:2380,etcd-2=https://etcd-2:2380,etcd-3=https://etcd-3:2380`: "compat",
}

// elsewhere are commands for what is not here, and why.
var elsewhere = map[string]string{
	`git clone https://github.com/quotient-limiter/quotient && cd quotient`: "the test runs in the checkout",
	`go build -o /usr/local/bin/ ./cmd/quotad`:                              "writes to the reader's host; step build builds it",
	`cd examples/kafka-consumer && go run . --brokers kafka:9092 --topic jobs --endpoints etcd:2379 --provider payments/charge --url https://payments.example/charge`: "the reader's Kafka; step kafka runs it on one",
	`export QUOTIENT_ENDPOINTS=https://etcd-1:2379,https://etcd-2:2379,https://etcd-3:2379`:                                                                           "the reader's cluster",
	`export QUOTIENT_CACERT=/etc/quotient/ca.pem QUOTIENT_CERT=/etc/quotient/ann.pem QUOTIENT_KEY=/etc/quotient/ann-key.pem`:                                          "the reader's certificates; internal/cli/etcdflags tests them",
	`quota-admin dashboard`: "the installed program; step browser runs it in one",
	`quota-admin list`:      "the installed program; cmd/quota-admin tests it",
	`etcdctl --endpoints https://etcd-1:2379 --cacert ca.pem --cert root.pem --key root-key.pem snapshot save quotient-$(date +%F).db`: "a cluster of the reader's own; compat restores snapshots",
	`helm install quotient oci://ghcr.io/quotient-limiter/charts/quotient -n quotient --create-namespace -f values.yaml`:               "the reader's cluster; step deploy renders the chart and runs its programs",
	`kubectl -n quotient port-forward deployment/quotient-dashboard 8686`:                                                              "the reader's cluster",
	`groupadd app && install -d -g app -m 0750 /run/quotad`:                                                                            "changes the reader's host; step quotad has a socket of a group",
	`quotad --endpoints etcd-1:2379,etcd-2:2379,etcd-3:2379 --group app --provider payments/charge`:                                    "the reader's cluster; step quotad runs it",
	`quota-admin export > policies.yaml`:                                                                                               "the installed program; cmd/quota-admin tests it",
}

// Every command of the documents is known, and every known one is there.
func TestEveryCommandIsKnown(t *testing.T) {
	t.Parallel()
	found := map[string]bool{dev: true}
	for _, c := range commands(t) {
		found[c.text] = true
		tables := 0
		for _, in := range []bool{has(alone, c.text), has(beside, c.text), has(steps, c.text), has(elsewhere, c.text), c.text == dev} {
			if in {
				tables++
			}
		}
		if tables != 1 {
			t.Errorf("%s shows %q, which is in %d tables of commands_test.go: say in one how it is run", c.document, c.text, tables)
		}
	}
	for _, known := range [][]string{keys(alone), keys(beside), keys(steps), keys(elsewhere)} {
		for _, text := range known {
			if !found[text] {
				t.Errorf("no document shows %q: take it out of commands_test.go", text)
			}
		}
	}
}

func has[V any](m map[string]V, key string) bool { _, ok := m[key]; return ok }

func keys[V any](m map[string]V) (list []string) {
	for key := range m {
		list = append(list, key)
	}
	return list
}
