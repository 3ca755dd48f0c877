package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

const partitions, limit = 12, 90 // calls a second

// world is a fake Kafka, a fleet and a provider, in fake time.
type world struct {
	*testing.T
	network kfake.VirtualNetwork
	cluster *kfake.Cluster
	kafka   *kgo.Client // produces, and reads the dead letters
	fleet   *limittest.Fleet
	meter   *limittest.Meter

	mu                sync.Mutex
	produced, refused int
	processed         map[string][]*member // by whom
	rejected          map[string]bool
	stuck             string    // the record whose calls fail
	busy              time.Time // answers 429 until then
}

// inBubble fails unless f leaves everything committed, by calls within the limit.
func inBubble(t *testing.T, f func(w *world, instances []*limittest.Instance)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: time.Second}}}
		w := &world{T: t, fleet: must(limittest.New(policy, 2)), meter: limittest.NewMeter(policy.Limits), processed: map[string][]*member{}, rejected: map[string]bool{}}
		w.cluster = must(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "jobs"), kfake.SeedTopics(1, "jobs.dead"),
			kfake.ListenFn(w.network.Listen), kfake.Ports(9092)))
		defer w.cluster.Close()
		w.kafka = must(kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.network.DialContext),
			kgo.RecordPartitioner(kgo.RoundRobinPartitioner())))
		defer w.kafka.Close()
		f(w, w.fleet.Instances())
		if err := w.meter.Check(); err != nil {
			t.Error(err)
		}
		for _, p := range w.cluster.PartitionInfos("jobs") {
			if got := w.cluster.GroupInfo("jobs").Commits["jobs"][p.Partition].Offset; got != p.HighWatermark {
				t.Errorf("partition %d is committed up to %d of %d", p.Partition, got, p.HighWatermark)
			}
		}
	})
}

// produce writes n records. The provider rejects what begins with "bad".
func (w *world) produce(n int, text string) {
	for range n {
		w.produced++
		w.kafka.Produce(w.Context(), &kgo.Record{Topic: "jobs", Value: fmt.Append(nil, text, w.produced)}, nil)
	}
	_ = w.kafka.Flush(w.Context()) // until would see it
}

// until waits until so many records are processed or dead.
func (w *world) until(n int) {
	w.Helper()
	for range 36000 {
		w.mu.Lock()
		done := len(w.processed) + int(w.cluster.PartitionInfos("jobs.dead")[0].HighWatermark)
		w.mu.Unlock()
		if done >= n {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.Fatalf("fewer than %d records of %d are done after an hour", n, w.produced)
}

// repeated counts calls for records that a killed member had processed, or another one.
func (w *world) repeated() (killed, others int) {
	for _, by := range w.processed {
		if by[0].killed {
			killed += len(by) - 1
		} else {
			others += len(by) - 1
		}
	}
	return killed, others
}

// member is a running worker.
type member struct {
	*Worker
	world *world
	stop  context.CancelFunc
	done  chan error
	conns []net.Conn

	killed, off bool // guarded by world.mu
}

func (w *world) start(source consumer.Source, opts ...kgo.Opt) *member {
	m := &member{world: w, done: make(chan error, 1)}
	m.Worker = &Worker{
		// The client commits with a lock held for which a rebalance waits, and a
		// bubble's time stands still while a goroutine waits for a lock.
		Kafka: append([]kgo.Opt{kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(m.dial), kgo.AutoCommitInterval(time.Hour)}, opts...),
		Topic: "jobs", Call: m.provide,
		Limiter: must(consumer.Open(w.Context(), source, "provider", consumer.Options{})),
	}
	ctx, stop := context.WithCancel(w.Context())
	m.stop = stop
	go func() { m.done <- m.Run(ctx) }()
	return m
}

// provide is the provider. It fails the test if a call overtakes one that is perPartition before it.
func (m *member) provide(ctx context.Context, r *kgo.Record) error {
	w := m.world
	w.meter.Call(1)
	w.mu.Lock()
	before := *r
	before.Offset -= perPartition
	if at := position(&before); before.Offset >= 0 && w.processed[at] == nil && !w.rejected[at] {
		w.Errorf("%s is called before %s is finished", position(r), at)
	}
	w.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch d := time.Until(w.busy); {
	case m.killed:
		return errors.New("killed")
	case d > 0:
		w.refused++
		m.Limiter.Throttled(d, "busy")
		return errors.New("busy")
	case position(r) == w.stuck:
		return errors.New("stuck")
	case r.Value[0] == 'b':
		w.rejected[position(r)] = true
		return fmt.Errorf("%w: unreadable", ErrRejected)
	}
	w.processed[position(r)] = append(w.processed[position(r)], m)
	return ctx.Err()
}

func (m *member) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := m.world.network.DialContext(ctx, network, address)
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if m.off {
		return nil, errors.New("cut off")
	}
	m.conns = append(m.conns, conn)
	return conn, err
}

// kill cuts the member off from everything at once.
func (m *member) kill() {
	m.world.mu.Lock()
	m.killed = true
	m.world.mu.Unlock()
	m.cut(true)
}

// cut cuts the member off from Kafka, or connects it again.
func (m *member) cut(off bool) {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	m.off = off
	for _, c := range m.conns {
		_ = c.Close()
	}
}

func (m *member) leave() {
	m.stop()
	if err := <-m.done; err != nil && !m.killed {
		m.world.Error(err)
	}
	_ = m.Limiter.Close()
}

// Members crash, join and leave, and the provider asks for a pause: no record is
// lost, no second has more calls than the limit, and only the crash repeats calls.
func TestCrashJoinLeaveAndPause(t *testing.T) {
	log := logged(t)
	inBubble(t, func(w *world, instances []*limittest.Instance) {
		a, b := w.start(instances[0], kgo.AutoCommitInterval(4*time.Second)), w.start(instances[1])
		time.Sleep(10 * time.Second) // a rebalance repeats what follows a retried record
		w.produce(8, "bad ")
		w.produce(8000, "good ")
		w.until(500)
		a.kill()
		instances[0].Kill()
		time.Sleep(30 * time.Second)
		c := w.start(w.fleet.Join())
		time.Sleep(20 * time.Second)
		w.mu.Lock()
		w.busy = time.Now().Add(30 * time.Second)
		w.mu.Unlock()
		time.Sleep(35 * time.Second)
		instances[1].Leave()
		time.Sleep(10 * time.Second) // it goes on while it hands its share over
		b.leave()
		w.until(w.produced)
		a.leave()
		c.leave()
		if killed, others := w.repeated(); killed > limit*5+perPartition*partitions || others > 0 {
			t.Errorf("%d calls of the killed member were repeated, and %d others", killed, others)
		}
		if w.refused > perPartition*partitions { // those that were under way when the pause began
			t.Errorf("%d calls in a pause", w.refused)
		}
	})
	if n := strings.Count(log.String(), `msg="a record is a dead letter"`); n < 8 {
		t.Errorf("%d lines of the log tell of 8 dead letters", n)
	}
}

// A member that waits for permits for longer than any timeout of the group stays in
// it, and gives half of its partitions to one that joins. Nothing is repeated.
func TestLongWaitStaysInGroup(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][2][]kgo.Opt{
		"cooperative":         {},
		"eager":               {{kgo.Balancers(kgo.RangeBalancer())}, {kgo.Balancers(kgo.RangeBalancer())}},
		"the next generation": {{kgo.ServerSideBalancer()}, {kgo.ServerSideBalancer()}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world, instances []*limittest.Instance) {
				w.produce(400, "good ")
				a := w.start(instances[0], opts[0]...)
				w.until(300)
				a.Limiter.PauseUntil(time.Now().Add(20 * time.Minute))
				w.produce(1600, "good ")
				time.Sleep(6 * time.Minute)
				if n := len(a.client.PauseFetchPartitions(nil)["jobs"]); n != partitions {
					t.Errorf("%d partitions of %d are paused", n, partitions)
				}
				before := w.cluster.GroupInfo("jobs").Members[0].MemberID
				b := w.start(instances[1], opts[1]...)
				time.Sleep(time.Minute)
				members := w.cluster.GroupInfo("jobs").Members
				if len(members) != 2 || members[0].NumAssigned() != partitions/2 || members[1].NumAssigned() != partitions/2 {
					t.Errorf("%d partitions are not divided among two: %+v", partitions, members)
				}
				if members[0].MemberID != before && members[1].MemberID != before {
					t.Error("the member that waits was expelled")
				}
				w.until(w.produced)
				a.leave()
				b.leave()
				if _, n := w.repeated(); n > 0 {
					t.Errorf("%d calls were repeated", n)
				}
			})
		})
	}
}

// A record whose calls fail holds up only its partition, and is not committed when those after it are done.
func TestARecordThatFails(t *testing.T) {
	inBubble(t, func(w *world, instances []*limittest.Instance) {
		w.stuck = "jobs/3/20"
		w.produce(100*partitions, "good ")
		a := w.start(instances[0])
		w.until(100*(partitions-1) + 20 + perPartition - 1)
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.stuck = ""
		w.mu.Unlock()
		a.leave()
		b := w.start(instances[1])
		w.until(w.produced)
		b.leave()
	})
}

// A member that was cut off from Kafka drops the records that others have got meanwhile.
func TestLost(t *testing.T) {
	inBubble(t, func(w *world, instances []*limittest.Instance) {
		a := w.start(instances[0])
		w.produce(100*partitions, "good ")
		w.until(100)
		a.Limiter.PauseUntil(time.Now().Add(10 * time.Minute))
		time.Sleep(10 * time.Second)
		if err := a.client.CommitMarkedOffsets(w.Context()); err != nil {
			t.Error(err)
		}
		a.cut(true)
		b := w.start(instances[1])
		w.until(w.produced)
		a.cut(false)
		time.Sleep(10 * time.Minute)
		a.leave()
		b.leave()
		if _, n := w.repeated(); n > 0 {
			t.Errorf("%d calls were repeated", n)
		}
	})
}
