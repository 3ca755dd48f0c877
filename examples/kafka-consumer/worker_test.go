package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
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
	busy              time.Time            // answers 429 until then
}

// inBubble fails unless f leaves everything committed, by calls within the limit.
func inBubble(t *testing.T, f func(w *world, instances []*limittest.Instance)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: time.Second}}}
		w := &world{T: t, fleet: must(limittest.New(policy, 2)), meter: limittest.NewMeter(policy.Limits), processed: map[string][]*member{}}
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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
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
	world  *world
	stop   context.CancelFunc
	done   chan error
	killed bool // guarded by world.mu
	conns  []net.Conn
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

func (m *member) provide(ctx context.Context, r *kgo.Record) error {
	m.world.meter.Call(1)
	time.Sleep(20 * time.Millisecond)
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	switch d := time.Until(m.world.busy); {
	case m.killed:
		return errors.New("killed")
	case d > 0:
		m.world.refused++
		m.Limiter.Throttled(d, "busy")
		return errors.New("busy")
	case r.Value[0] == 'b':
		return fmt.Errorf("%w: unreadable", ErrRejected)
	}
	m.world.processed[string(r.Value)] = append(m.world.processed[string(r.Value)], m)
	return ctx.Err()
}

func (m *member) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := m.world.network.DialContext(ctx, network, address)
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if m.killed {
		return nil, errors.New("killed")
	}
	m.conns = append(m.conns, conn)
	return conn, err
}

// kill cuts the member off from everything at once.
func (m *member) kill() {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	m.killed = true
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

func (m *member) assignedNow() []*partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.partitions))
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
		if killed, others := w.repeated(); killed > limit*5+maxCalls || others > 0 {
			t.Errorf("%d calls of the killed member were repeated, and %d others", killed, others)
		}
		if w.refused > 2*maxCalls { // those that were under way when the pause began
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
		"cooperative":           {},
		"joined an eager group": {{kgo.Balancers(kgo.RangeBalancer())}, {}},
		"the next generation":   {{kgo.ServerSideBalancer()}, {kgo.ServerSideBalancer()}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world, instances []*limittest.Instance) {
				w.produce(400, "good ")
				a := w.start(instances[0], opts[0]...)
				w.until(300)
				a.Limiter.PauseUntil(time.Now().Add(20 * time.Minute))
				w.produce(1600, "good ")
				time.Sleep(6 * time.Minute)
				for _, p := range a.assignedNow() {
					if !p.paused || len(p.backlog) > maxPoll {
						t.Errorf("paused: %v, with a backlog of %d", p.paused, len(p.backlog))
					}
				}
				before := w.cluster.GroupInfo("jobs").Members[0].MemberID
				b := w.start(instances[1], opts[1]...)
				time.Sleep(time.Minute)
				if n, m := len(a.assignedNow()), len(b.assignedNow()); n != partitions/2 || m != partitions/2 {
					t.Errorf("%d and %d partitions of %d", n, m, partitions)
				}
				if !slices.ContainsFunc(w.cluster.GroupInfo("jobs").Members, func(m kfake.GroupMember) bool { return m.MemberID == before }) {
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

// What can be committed is always the run of finished records at the beginning.
func TestBacklog(t *testing.T) {
	var b backlog
	for n := range 256 {
		b = append(b, &item{Record: &kgo.Record{Offset: int64(n)}})
	}
	all := slices.Clone(b)
	for done, n := range rand.Perm(len(all)) {
		last := b.finish(all[n])
		first := slices.IndexFunc(append(all, &item{}), func(i *item) bool { return !i.finished })
		if last != nil && last.Offset != int64(first-1) || last == nil && n == first-1 || len(b) != len(all)-first {
			t.Fatalf("after %d records, of which the first %d are finished: %+v can be committed, %d cannot", done+1, first, last, len(b))
		}
	}
}
