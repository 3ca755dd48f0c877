//go:build e2e && linux

package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/clock"
)

// This file has the roles of TestCallsInFlight: an instance whose callers make calls that last, and a provider that
// counts those that are open.

// callersConfig is an instance with callers of several providers, so many of each.
type callersConfig struct {
	instanceConfig
	Providers []string
	Callers   int
}

// callBytes is what a call tells the provider, when it begins and again when it ends: its provider's number, its
// instance, its own number, and until when its permit lets it last; 0 when it ends.
const callBytes = 32

// beCallers joins and calls without a pause, each caller on its own.
func beCallers(c callersConfig, gone over, tell func(told)) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("instance", c.Name)
	provider, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: c.Socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-gone
		cancel()
	}()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := join(clock.With(ctx, c.clock()), client, coordinator.Options{Name: c.Name, NTP: c.NTP, NTPInterval: time.Second, Logger: log})
	if err != nil {
		return err
	}
	defer session.Close()
	var serial atomic.Uint64
	var calling sync.WaitGroup
	failed := make(chan error, 1)
	for of, name := range c.Providers {
		limiter, err := consumer.Open(ctx, session, name, consumer.Options{Logger: log})
		if err != nil {
			return err
		}
		if err := limiter.Ready(ctx); err != nil {
			return err
		}
		for range c.Callers {
			calling.Go(func() {
				for ctx.Err() == nil {
					if err := callOnce(ctx, limiter, provider, int64(of), c.ID, int64(serial.Add(1))); err != nil {
						select {
						case failed <- err:
						default:
						}
						return
					}
				}
			})
		}
	}
	tell(told{Ready: true})
	calling.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// callOnce makes a call: most are short, and one of twenty may last for as long as its permit allows.
func callOnce(ctx context.Context, limiter *consumer.Limiter, provider *net.UnixConn, of, id, serial int64) error {
	p, err := limiter.Take(ctx, 1, time.Second)
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, consumer.ErrLimited), errors.Is(err, consumer.ErrStale), errors.Is(err, consumer.ErrNoPolicy):
		wait(20 * time.Millisecond)
		return nil
	case err != nil:
		return err
	}
	during, done := p.Begin(context.Background())
	defer done()
	var message [callBytes]byte
	for i, v := range []int64{of, id, serial, p.Until().UnixNano()} {
		binary.BigEndian.PutUint64(message[8*i:], uint64(v))
	}
	lasts := time.Duration(rand.Int64N(int64(300 * time.Millisecond)))
	if rand.IntN(20) == 0 {
		lasts = time.Duration(rand.Int64N(int64(2 * callHold)))
	}
	if during.Err() != nil { // who was held up on the way does not call
		return nil
	}
	if _, err := provider.Write(message[:]); err != nil {
		return err
	}
	select {
	case <-during.Done():
	case <-ctx.Done():
	case <-time.After(lasts):
	}
	clear(message[24:])
	_, err = provider.Write(message[:])
	return err
}

// counter is a provider that counts open calls of several limits. A call is open from its beginning until it ends, or
// until its permit does: then the provider ends it, such as one of a process that was killed. Calls begin and end in the
// order in which the kernel takes the messages, and by this host's clock: how long this process waits for a
// processor makes no difference.
type counter struct {
	mu     sync.Mutex
	open   map[callKey]openCall
	limits []limitCount
}

type callKey struct{ of, id, serial int64 }

type openCall struct{ began, until int64 }

// limitCount is what was counted of one limit.
type limitCount struct {
	limit, most, made int64
	// late are calls that came after the end of their permits: their process was held up between its look at the
	// clock and the call.
	late int64
	// used is the sum of the times for which calls were open, between two instants.
	used       time.Duration
	from, last int64
	over       []string          // what was seen when too many were open, the first times
	full       map[int64]fullest // by the start of a tick
}

// fullest is when the most calls were open in a tick.
type fullest struct {
	sum int64
	by  map[int64]int64 // by instance
}

// callTick is the length of a tick.
const callTick = 100 * time.Millisecond

// newCounter starts a counter of limits at a socket. It ends with the test.
func newCounter(t *testing.T, socket string, limits ...int64) *counter {
	t.Helper()
	conn, err := listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{open: map[callKey]openCall{}}
	for _, n := range limits {
		c.limits = append(c.limits, limitCount{limit: n, full: map[int64]fullest{}})
	}
	ended := make(chan error, 1)
	go func() { ended <- c.serve(conn) }()
	t.Cleanup(func() {
		_ = conn.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the provider: %v", err)
		}
	})
	return c
}

func (c *counter) serve(conn *net.UnixConn) error {
	message, control := make([]byte, 2*callBytes), make([]byte, 128)
	for {
		n, nc, _, _, err := conn.ReadMsgUnix(message, control)
		if err != nil {
			return err
		}
		if n != callBytes {
			return fmt.Errorf("a call of %d bytes", n)
		}
		at, err := stamp(control[:nc])
		if err != nil {
			return err
		}
		var v [callBytes / 8]int64
		for i := range v {
			v[i] = int64(binary.BigEndian.Uint64(message[8*i:]))
		}
		c.hear(callKey{v[0], v[1], v[2]}, at, v[3])
	}
}

// hear takes a message.
func (c *counter) hear(k callKey, at, until int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.limits[k.of]
	now := c.now(k.of, at)
	l.used, l.last = l.used+time.Duration(now.sum*(at-l.last)), at
	if until == 0 {
		delete(c.open, k)
		return
	}
	if l.made++; until <= at {
		l.late++
		return
	}
	c.open[k] = openCall{at, until}
	now.sum++
	now.by[k.id]++
	l.most = max(l.most, now.sum)
	if tick := at - at%int64(callTick); now.sum > l.full[tick].sum {
		l.full[tick] = now
	}
	if now.sum > l.limit && len(l.over) < 3 {
		text := fmt.Sprintf("%s: %d open of %d, by instance %v:", time.Unix(0, at).Format("15:04:05.000"), now.sum, l.limit, now.by)
		for other, o := range c.open {
			if other.of == k.of {
				text += fmt.Sprintf(" [%d: began %.3f s before, until %.3f s after]", other.id, time.Duration(at-o.began).Seconds(), time.Duration(o.until-at).Seconds())
			}
		}
		l.over = append(l.over, text)
	}
}

// now returns which calls of a limit are open at an instant, and has those end that are over by their permits.
func (c *counter) now(of, at int64) fullest {
	f := fullest{by: map[int64]int64{}}
	for k, o := range c.open {
		switch {
		case o.until <= at:
			delete(c.open, k)
		case k.of == of:
			f.sum++
			f.by[k.id]++
		}
	}
	return f
}

// first returns how long after an instant there is first a tick of a limit of which holds is true; negative if there
// is none.
func (c *counter) first(of int, from time.Time, holds func(by map[int64]int64) bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := time.Duration(-1)
	for tick, f := range c.limits[of].full {
		if after := time.Unix(0, tick).Sub(from); after >= 0 && (first < 0 || after < first) && holds(f.by) {
			first = after
		}
	}
	return first
}

// begun returns in how many ticks of a time calls of a limit were open, by the beginnings of calls.
func (c *counter) begun(of int, from, to time.Time) (ticks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tick := range c.limits[of].full {
		if at := time.Unix(0, tick); !at.Before(from) && !at.Add(callTick).After(to) {
			ticks++
		}
	}
	return ticks
}

// listen returns the socket of a provider, whose messages have the times at which the kernel took them.
func listen(socket string) (*net.UnixConn, error) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	}); err != nil || failed != nil {
		return nil, errors.Join(err, failed)
	}
	return conn, nil
}
