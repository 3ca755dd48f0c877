// Command lending measures how much of a limit a fleet uses while its load is uneven and
// moves. It runs an etcd, a fleet in one process with a client for each instance, and callers
// that count the permits of each window by themselves.
//
//	go run ./lending                         20 instances, a limit of 2,000/s
//	go run ./lending -n 96 -T 9600 -wait 500ms -load move1,zipf
//
// It fails if any window is over its limit.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/etcdlog"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/quota"
)

var (
	n         = flag.Int("n", 20, "instances")
	total     = flag.Int64("T", 2000, "the limit, in permits a window")
	window    = flag.Duration("window", time.Second, "the window")
	length    = flag.Duration("for", 20*time.Second, "how long each load is played")
	loads     = flag.String("load", "move1,move5,move20,hot1,hot4,zipf,busy,wake", "the loads")
	factor    = flag.Float64("x", 1.3, "calls, as a multiple of the limit")
	wait      = flag.Duration("wait", 0, "how long callers wait; 0: they do not")
	lend      = flag.String("lend", "on", "the policy's rule of lending")
	reserve   = flag.Int64("reserve", 0, "the policy's reserve, in percent; 0: the default")
	members   = flag.Int("members", 1, "members of etcd, each a process of its own if there are several")
	fsync     = flag.Bool("fsync", false, "etcd's writes reach the disk before they count")
	delay     = flag.Bool("delay", false, "each message takes 2 to 25 ms more")
	providers = flag.Int("providers", 1, "providers, each with a hot spot of its own")
	lower     = flag.Bool("lower", false, "halve and restore the limit every 3.3 s; the use then means nothing")
	every     = flag.Duration("step", 2*time.Millisecond, "how often callers call")
)

func main() {
	embedded.RunIfMember()
	flag.Parse()
	over, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if over {
		fmt.Println("OVER")
		os.Exit(1)
	}
}

// instance is a process of the fleet.
type instance struct {
	session  *coordinator.Session
	limiters []*consumer.Limiter
}

func run() (over bool, err error) {
	ctx := context.Background()
	quiet := slog.New(slog.DiscardHandler)
	cluster, err := embedded.Start(embedded.Options{Members: *members, Processes: *members > 1, Fsync: *fsync})
	if err != nil {
		return false, err
	}
	defer cluster.Close()
	client, err := cluster.Client()
	if err != nil {
		return false, err
	}
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "bench"})
	if err != nil {
		return false, err
	}
	put := func(total int64) error {
		for p := range *providers {
			policy := quota.Policy{Limits: []quota.Limit{{Permits: total, Window: *window}}, Division: quota.Division{Lend: *lend, Reserve: *reserve}}
			if _, err := admin.Put(ctx, name(p), policy); err != nil {
				return err
			}
		}
		return nil
	}
	if err := put(*total); err != nil {
		return false, err
	}
	all, err := join(ctx, cluster, quiet)
	if err != nil {
		return false, err
	}
	time.Sleep(4 * time.Second)
	if *lower {
		go func() {
			for k := int64(0); ; k++ {
				time.Sleep(3300 * time.Millisecond)
				_ = put(*total / (1 + (k+1)%2))
			}
		}()
	}
	fmt.Printf("%d instances, %d permits per %v, calls %.2g of that, which wait %v; lend %s, %d providers\n", *n, *total, *window, *factor, *wait, *lend, *providers)
	for load := range strings.SplitSeq(*loads, ",") {
		before, err := client.Get(ctx, "revision")
		if err != nil {
			return false, err
		}
		began := time.Now()
		counting, stop := context.WithCancel(ctx)
		kinds := countKinds(counting, client, before.Header.Revision+1)
		t := play(all, load)
		seconds := time.Since(began).Seconds()
		after, err := client.Get(ctx, "revision")
		stop()
		if err != nil {
			return false, err
		}
		over = t.report(load, float64(after.Header.Revision-before.Header.Revision)/seconds) || over
		for kind, keys := range <-kinds {
			fmt.Printf("        %.1f keys/s of %s\n", float64(keys)/seconds, kind)
		}
	}
	for _, i := range all {
		for _, l := range i.limiters {
			if st := l.Status(); st.OverIssued > 0 {
				return true, fmt.Errorf("an instance has noticed %d permits over its share", st.OverIssued)
			}
		}
	}
	return over, nil
}

// countKinds counts the keys written from a revision on, by kind, until the context ends. A
// write is a transaction of one or more keys.
func countKinds(ctx context.Context, client *clientv3.Client, from int64) <-chan map[string]int {
	counted := make(chan map[string]int, 1)
	answers := client.Watch(ctx, keys.DefaultPrefix, clientv3.WithPrefix(), clientv3.WithRev(from))
	go func() {
		kinds := map[string]int{}
		for answer := range answers {
			for _, event := range answer.Events {
				kind, _, _ := strings.Cut(strings.TrimPrefix(string(event.Kv.Key), keys.DefaultPrefix), "/")
				kinds[kind]++
			}
		}
		counted <- kinds
	}()
	return counted
}

// join starts the fleet, and waits until all have their shares.
func join(ctx context.Context, cluster *embedded.Cluster, quiet *slog.Logger) ([]*instance, error) {
	all := make([]*instance, *n)
	for i := range all {
		config := clientv3.Config{Endpoints: cluster.Endpoints(), DialTimeout: 5 * time.Second, Logger: etcdlog.New(quiet)}
		if *delay {
			config.DialOptions = []grpc.DialOption{grpc.WithContextDialer(dialSlowly)}
		}
		c, err := clientv3.New(config)
		if err != nil {
			return nil, err
		}
		s, err := coordinator.Join(ctx, c, coordinator.Options{Name: fmt.Sprint("i", i), Logger: quiet, Lazy: true})
		if err != nil {
			return nil, err
		}
		all[i] = &instance{session: s}
		for p := range *providers {
			l, err := consumer.Open(ctx, s, name(p), consumer.Options{Logger: quiet})
			if err != nil {
				return nil, err
			}
			all[i].limiters = append(all[i].limiters, l)
		}
	}
	for _, i := range all {
		for _, l := range i.limiters {
			for l.Status().State != quota.StateActive {
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	return all, nil
}

func name(p int) string { return fmt.Sprintf("p%d", p) }

// tally is what callers count.
type tally struct {
	mu          sync.Mutex
	windows     []map[int64]int64 // by provider: permits by the window's start
	first, last int64             // the starts of the whole windows
	misfiled    int64             // permits whose window did not run by the caller's clock
	firsts      []time.Duration   // from a window's first refused or waiting call to its first loan
	used        []map[int64]int64 // by instance of the first provider, the same
	calls       []map[int64]int64
	begun       []map[int64]time.Duration // when in a window the first call came
}

func play(all []*instance, load string) *tally {
	t := &tally{}
	for range *providers {
		t.windows = append(t.windows, map[int64]int64{})
	}
	for range all {
		t.used, t.calls, t.begun = append(t.used, map[int64]int64{}), append(t.calls, map[int64]int64{}), append(t.begun, map[int64]time.Duration{})
	}
	time.Sleep(time.Until(time.Now().Truncate(*window).Add(*window)))
	begin := time.Now()
	end := begin.Add(*length)
	go t.watch(all, end)
	t.first, t.last = begin.Truncate(*window).Add(2**window).UnixNano(), end.Truncate(*window).Add(-*window).UnixNano()
	var wg sync.WaitGroup
	for i := range all {
		for p := range *providers {
			c := &caller{t: t, i: i, p: p, l: all[i].limiters[p], rate: loadOf(load, p)}
			wg.Go(func() { c.run(begin, end) })
		}
	}
	wg.Wait()
	return t
}

// watch notes the times to first loans, as the instances count them.
func (t *tally) watch(all []*instance, end time.Time) {
	before := make([]consumer.Status, len(all))
	for time.Now().Before(end) {
		for i := range all {
			st := all[i].limiters[0].Status()
			if count := st.FirstLoans - before[i].FirstLoans; count > 0 && before[i].Provider != "" {
				t.mu.Lock()
				t.firsts = append(t.firsts, (st.FirstLoanTime-before[i].FirstLoanTime)/time.Duration(count))
				t.mu.Unlock()
			}
			before[i] = st
		}
		time.Sleep(*window / 3)
	}
}

// caller is all callers of one instance and provider.
type caller struct {
	t    *tally
	i, p int
	l    *consumer.Limiter
	rate func(i int, s float64) float64
}

func (c *caller) run(begin, end time.Time) {
	var wg sync.WaitGroup
	owed, last := 0.0, time.Now()
	for {
		time.Sleep(*every)
		now := time.Now()
		if now.After(end) {
			break
		}
		owed += c.rate(c.i, last.Sub(begin).Seconds()) * now.Sub(last).Seconds()
		last = now
		k := int64(owed)
		if owed -= float64(k); k == 0 {
			continue
		}
		if c.p == 0 {
			c.t.mu.Lock()
			w := now.Truncate(*window).UnixNano()
			if c.t.calls[c.i][w] == 0 {
				c.t.begun[c.i][w] = time.Duration(now.UnixNano() - w)
			}
			c.t.calls[c.i][w] += k
			c.t.mu.Unlock()
		}
		if *wait == 0 {
			c.took(now, c.l.TryTake(k))
			continue
		}
		for range k {
			wg.Go(func() {
				if p, err := c.l.Take(context.Background(), 1, *wait); err == nil {
					c.took(time.Time{}, p)
				}
			})
		}
	}
	wg.Wait()
}

func (c *caller) took(asked time.Time, p consumer.Permit) {
	now := time.Now()
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if p.N() == 0 {
		return
	}
	w := p.Start().UnixNano()
	c.t.windows[c.p][w] += p.N()
	if c.p == 0 {
		c.t.used[c.i][w] += p.N()
	}
	if now.UnixNano() < w-int64(10*time.Millisecond) || !asked.IsZero() && asked.UnixNano() > w+int64(*window)+int64(10*time.Millisecond) {
		c.t.misfiled += p.N()
	}
}

// report prints what was used, and reports whether a window was over its limit.
func (t *tally) report(load string, writes float64) (over bool) {
	var sum, most int64
	count := 0
	for _, windows := range t.windows {
		for w := t.first; w < t.last; w += int64(*window) {
			sum += windows[w]
			count++
		}
		for _, got := range windows {
			most = max(most, got)
		}
	}
	due, got, wakes := 0.0, 0.0, 0
	for i := range t.used {
		for w := t.first; w < t.last; w += int64(*window) {
			if t.calls[i][w] == 0 || t.calls[i][w-int64(*window)] > 0 {
				continue
			}
			d := min(float64(t.calls[i][w]), float64(*total)/float64(*n)*(1-float64(t.begun[i][w])/float64(*window)))
			due, got, wakes = due+d, got+min(d, float64(t.used[i][w])), wakes+1
		}
	}
	slices.Sort(t.firsts)
	q := func(f float64) time.Duration {
		if len(t.firsts) == 0 {
			return 0
		}
		return t.firsts[min(len(t.firsts)-1, int(f*float64(len(t.firsts))))].Round(100 * time.Microsecond)
	}
	fmt.Printf("%-7s used %.3f, most %d of %d, %.0f writes/s; woke %d times and got %.3f of what was due; first loan after p50 %v p90 %v p99 %v of %d; misfiled %d\n",
		load, float64(sum)/float64(count)/float64(*total), most, *total, writes, wakes, got/max(due, 1), q(0.5), q(0.9), q(0.99), len(t.firsts), t.misfiled)
	fmt.Printf("BenchmarkLending/load=%s/lend=%s/n=%d 1 %.1f used-%% %.1f most-%%\n",
		load, *lend, *n, 100*float64(sum)/float64(count)/float64(*total), 100*float64(most)/float64(*total))
	return most > *total
}

// loadOf returns the calls a second of each instance at a second since the beginning.
func loadOf(load string, provider int) func(i int, s float64) float64 {
	per := float64(*total) / window.Seconds() * *factor
	var v float64
	switch {
	case strings.HasPrefix(load, "move"):
		_, _ = fmt.Sscanf(load, "move%f", &v)
		return func(i int, s float64) float64 {
			if int(mix(uint64(provider)*131+uint64((s+0.37)/v))%uint64(*n)) == i {
				return per
			}
			return 0
		}
	case strings.HasPrefix(load, "hot"):
		_, _ = fmt.Sscanf(load, "hot%f", &v)
		return func(i int, _ float64) float64 {
			if (i+provider)%*n < int(v) {
				return per / v
			}
			return 0
		}
	case strings.HasPrefix(load, "four"): // four hot ones, which move
		_, _ = fmt.Sscanf(load, "four%f", &v)
		return func(i int, s float64) float64 {
			if k := (i + *n - int(mix(uint64(provider)*131+uint64((s+0.37)/v))%uint64(*n))) % *n; k%max(1, *n/4) == 0 && k/max(1, *n/4) < 4 {
				return per / 4
			}
			return 0
		}
	case strings.HasPrefix(load, "zipf"): // zipf, or zipf5 if ranks change each 5 s
		v = 1e9
		_, _ = fmt.Sscanf(load, "zipf%f", &v)
		h := 0.0
		for i := range *n {
			h += 1 / float64(i+1)
		}
		return func(i int, s float64) float64 {
			return per / h / float64((i+provider+int(mix(uint64(s/v))%uint64(*n)))%*n+1)
		}
	case load == "wake": // one is hot; in each fourth second another one wakes
		return func(i int, s float64) float64 {
			if i == 0 {
				return per
			}
			if p := s + 0.437; int(p)%4 == 0 && 1+int(mix(uint64(p/4))%uint64(*n-1)) == i {
				return float64(*total) / window.Seconds() / float64(*n)
			}
			return 0
		}
	case load == "busy":
		return func(int, float64) float64 { return per / float64(*n) }
	case load == "idle":
		return func(int, float64) float64 { return 0 }
	}
	panic("there is no load " + load)
}

// mix is the step and the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// slow is a connection whose messages take 2 to 25 ms more, in order.
type slow struct {
	net.Conn
	out chan message
}

type message struct {
	at   time.Time
	data []byte
}

func dialSlowly(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		return nil, err
	}
	s := &slow{c, make(chan message, 1<<12)}
	go func() {
		for m := range s.out {
			time.Sleep(time.Until(m.at))
			if _, err := s.Conn.Write(m.data); err != nil {
				_ = s.Close()
			}
		}
	}()
	return s, nil
}

func (s *slow) Write(b []byte) (int, error) {
	d := time.Duration(math.Min(25, 2+5*rand.ExpFloat64()) * float64(time.Millisecond))
	s.out <- message{time.Now().Add(d), slices.Clone(b)}
	return len(b), nil
}
