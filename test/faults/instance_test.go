//go:build e2e && linux

package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/trace"
)

// instanceConfig is one instance of the consumer service.
type instanceConfig struct {
	Name      string
	ID        int64
	Endpoints []string
	Provider  string
	Socket    string // of the provider process
	Chunk     int64  // permits taken at once
	NTP       []string
	Trace     string // the directory of the run's traces
	Idle      bool   // it has no callers
	HandsOver bool   // it hands its share over in the end
	// Skew is the error of its host's clock, which is stepped by Step after
	// StepAfter.
	Skew, Step, StepAfter time.Duration
}

// clock returns the clock of a host that is wrong as configured.
func (c instanceConfig) clock() *clock.Clock {
	if c.Skew == 0 && c.Step == 0 {
		return clock.New()
	}
	return clock.NewSkewed(func(mono int64) time.Duration {
		if c.Step != 0 && mono >= int64(c.StepAfter) {
			return c.Skew + c.Step
		}
		return c.Skew
	})
}

// beInstance takes all that it can and tells the provider of each permit. The provider is reached by a Unix socket, which knows
// no namespaces and loses nothing: what is under test is the way to etcd. An order is a pause that the provider asks for.
func beInstance(c instanceConfig, pauses <-chan time.Duration, tell func(told)) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("instance", c.Name)
	provider, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: c.Socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var opened atomic.Pointer[consumer.Limiter]
	go func() {
		for pause := range pauses {
			if l := opened.Load(); l != nil {
				l.Throttled(pause, "429")
			}
		}
		cancel()
	}()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints, Logger: zap.NewNop()}) // as README's program
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := join(clock.With(ctx, c.clock()), client, coordinator.Options{Name: c.Name, NTP: c.NTP, NTPInterval: time.Second, Logger: log})
	if err != nil {
		return err
	}
	traces, err := trace.Create(c.Trace, 0, func(err error) { log.Error("trace", "error", err) })
	if err != nil {
		return err
	}
	defer traces.Close()
	defer session.Close() // which ends the trace
	limiter, err := consumer.Open(ctx, traces.Wrap(session), c.Provider, consumer.Options{Logger: log})
	if err != nil {
		return err
	}
	opened.Store(limiter)
	go func() {
		if limiter.Ready(ctx) == nil {
			tell(told{Ready: true})
		}
	}()
	if c.Idle {
		<-ctx.Done()
	} else if err := spend(ctx, c, limiter, feed.Inside(session).Clock(), provider); ctx.Err() == nil {
		return err
	}
	if c.HandsOver {
		during, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		if err := session.Shutdown(during); err != nil { // etcd may be away
			log.Info("ends without handing over", "error", err)
		}
	}
	st := limiter.Status()
	log.Info("ends", "issued", st.Issued, "clock_error", st.ClockError, "lent", st.Lent, "borrowed", st.Borrowed)
	return nil
}

// join joins, again and again if etcd is away.
func join(ctx context.Context, client *clientv3.Client, o coordinator.Options) (*coordinator.Session, error) {
	for {
		s, err := coordinator.Join(ctx, client, o)
		if err == nil || ctx.Err() != nil {
			return s, err
		}
		o.Logger.Info("join again", "error", err)
		wait(200 * time.Millisecond)
	}
}

// spend takes permits and tells the provider: of which instance, window, and how
// many.
func spend(ctx context.Context, c instanceConfig, limiter *consumer.Limiter, clock *clock.Clock, provider *net.UnixConn) error {
	var call [24]byte
	binary.BigEndian.PutUint64(call[0:], uint64(c.ID))
	binary.BigEndian.PutUint64(call[16:], uint64(c.Chunk))
	for ctx.Err() == nil {
		p, err := limiter.Take(ctx, c.Chunk, time.Second)
		switch {
		case errors.Is(err, consumer.ErrLimited), errors.Is(err, consumer.ErrStale), errors.Is(err, consumer.ErrNoPolicy), errors.Is(err, consumer.ErrTooLarge):
			wait(2 * time.Millisecond)
			continue
		case err != nil:
			return err
		}
		// Who was held up on the way does not call: the permit's window may be over.
		if clock.Wall() >= p.Until().UnixNano() {
			continue
		}
		binary.BigEndian.PutUint64(call[8:], uint64(p.Start().UnixNano()))
		if _, err := provider.Write(call[:]); err != nil {
			return err
		}
	}
	return ctx.Err()
}
