//go:build e2e

package kafka

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

const partitions = 12

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func start(t *testing.T, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

func stop(cmd *exec.Cmd, s os.Signal) error { return errors.Join(cmd.Process.Signal(s), cmd.Wait()) }

// Consumers of examples/kafka-consumer on a real Apache Kafka, of which one is killed and one joins while the
// broker is restarted and killed: no record is lost, and no window is over the limit.
func TestRealKafka(t *testing.T) {
	consumer := filepath.Join(t.TempDir(), "kafka-consumer")
	build := exec.Command("go", "build", "-o", consumer, ".")
	build.Dir = "../../examples/kafka-consumer"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	jars, data, free := filepath.Join(must(os.UserCacheDir()), "quotient-ci", "tools", "kafka"), t.TempDir(), must(embedded.FreeAddresses(2))
	for _, args := range [][]string{{"check"}, {"fetch", jars}} {
		if err := start(t, "./kafka.sh", args...).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	_, port, _ := net.SplitHostPort(free[0])
	_, controller, _ := net.SplitHostPort(free[1])
	t.Cleanup(func() { t.Logf("the broker's log:\n%s", must(os.ReadFile(filepath.Join(data, "server.log")))) })
	startBroker := func() *exec.Cmd { return start(t, "./kafka.sh", "run", jars, data, port, controller) }
	broker := startBroker()
	kafka := must(kgo.NewClient(kgo.SeedBrokers(free[0]), kgo.RecordPartitioner(kgo.RoundRobinPartitioner())))
	defer kafka.Close()
	await.Until(t, "the broker answers", func() bool { return kafka.Ping(t.Context()) == nil })
	for topic, n := range map[string]int32{"jobs": partitions, "jobs.dead": 1} {
		must(kadm.NewClient(kafka).CreateTopic(t.Context(), n, 1, nil, topic))
	}

	policy := quota.Policy{Limits: []quota.Limit{{Permits: 2000, Window: 2 * time.Second}}, Timing: quota.Timing{Guard: 600 * time.Millisecond}}
	cluster, client := etcdtest.New(t, embedded.Options{Slow: true})
	must(must(admin.New(client, admin.Options{Timeout: time.Minute})).Put(t.Context(), "p", policy))

	meter, processed, mu := limittest.NewMeter(policy.Limits), map[string]bool{}, sync.Mutex{}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		meter.Call(1)
		record, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case len(processed) == 9000:
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
			processed["a pause"] = true
		case strings.HasPrefix(string(record), "bad"):
			w.WriteHeader(http.StatusUnprocessableEntity)
		default:
			processed[string(record)] = true
		}
	}))
	defer provider.Close()
	consume := func() *exec.Cmd {
		return start(t, consumer, "--brokers", free[0], "--endpoints", strings.Join(cluster.Endpoints(), ","),
			"--provider", "p", "--url", provider.URL, "--margin", "600ms")
	}
	for i := range 20_000 {
		value := "good "
		if i%1000 == 0 {
			value = "bad "
		}
		kafka.Produce(t.Context(), &kgo.Record{Topic: "jobs", Value: fmt.Append(nil, value, i)}, nil)
	}
	if err := kafka.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	until := func(n int) {
		t.Helper()
		await.Until(t, fmt.Sprint(n, " records are processed"), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(processed) >= n
		})
	}
	members := []*exec.Cmd{consume(), consume(), consume()}
	until(4000)
	_ = stop(members[0], os.Kill)
	members[0] = consume()
	until(6000)
	_ = stop(broker, syscall.SIGTERM)
	broker = startBroker()
	until(11_000)
	_ = stop(broker, os.Kill)
	broker = startBroker()
	until(20_000 - 20 + 1)
	await.Until(t, "all rejected records are dead letters", func() bool {
		ends, err := kadm.NewClient(kafka).ListEndOffsets(t.Context(), "jobs.dead")
		end, _ := ends.Lookup("jobs.dead", 0)
		return err == nil && end.Offset >= 20
	})
	for _, m := range members {
		if err := stop(m, syscall.SIGTERM); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	}
	if err := meter.Check(); err != nil {
		t.Error(err)
	}
	_ = stop(broker, os.Kill)
}
