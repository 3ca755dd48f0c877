package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/ntp"
	"github.com/quotient-limiter/quotient/quota"
)

// Version is what instances tell of themselves.
const Version = "v0.1.0"

// Defaults and bounds of Options.
const (
	DefaultTTL = 5 * time.Second
	MinTTL     = 2 * time.Second
	MaxTTL     = time.Minute
	// DefaultProbe is the time between two proofs of freshness. It costs one
	// small read of etcd per process.
	DefaultProbe = 300 * time.Millisecond
	// firstMeasurement is how long Join waits for NTP servers.
	firstMeasurement = 1200 * time.Millisecond
)

// Options of a session. The zero value is ready to use.
type Options struct {
	// Name is what operators call this instance, at most quota.MaxNameBytes
	// long; it need not be unique. Default: the host's name.
	Name string
	// Prefix of all keys; default DefaultPrefix. All of a fleet use the same.
	Prefix string
	// Weight is for policies that share by weight; 1 to quota.MaxWeight, default 1.
	Weight int64
	// TTL is the time after which etcd gives the instance up when it has died;
	// MinTTL to MaxTTL, default DefaultTTL. No promise rests on it. In a fleet of
	// 100 or more a lease that ran out is followed by one that lasts twice as
	// long, up to 30 s.
	TTL time.Duration
	// Probe is the time between two proofs of freshness, default DefaultProbe;
	// from 50 ms to 1 s. A policy with a short freshness makes it shorter. The
	// default grows in fleets of more than 500 instances, to a third of the
	// freshness at most.
	Probe time.Duration
	// NTP names servers, host or host:port, to measure true time by; at most
	// ntp.MaxServers (16), three or more of them to find one that lies. Default:
	// none; the operating system's clock is then followed, and its error is what
	// the kernel says, or unknown.
	NTP []string
	// NTPInterval is the time between two questions to a server, default 32 s;
	// from 1 s, for servers of one's own, to 1024 s.
	NTPInterval time.Duration
	// Logger takes the changes of state; default slog.Default().
	Logger *slog.Logger
	// Clock is for this module's own programs and tests, which set clocks apart.
	// Default: a new one.
	Clock *clock.Clock

	ownProbe bool // Probe was given
}

func (o *Options) fill() error {
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.Name = host[:min(len(host), quota.MaxNameBytes)]
	}
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.ownProbe = o.Probe != 0; !o.ownProbe {
		o.Probe = DefaultProbe
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return fmt.Errorf("coordinator: TTL %v: must be from %v to %v; 0 means %v", o.TTL, MinTTL, MaxTTL, DefaultTTL)
	}
	if o.Probe < 50*time.Millisecond || o.Probe > time.Second {
		return fmt.Errorf("coordinator: probe %v: must be from 50ms to 1s; 0 means %v", o.Probe, DefaultProbe)
	}
	i := quota.Instance{Name: o.Name, Weight: o.Weight}
	return i.Validate()
}

// Session is a process's membership in the fleets of its providers. It
// satisfies consumer.Source. Its methods are safe for concurrent use.
type Session struct {
	client  *clientv3.Client
	watcher clientv3.Watcher // its own stream: progress is asked of a whole stream
	keys    keys
	o       Options
	started time.Time
	host    string

	time *ntp.Watch

	ctx    context.Context // until Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		places   map[string]*place
		lease    *lease        // nil while there is none
		leased   chan struct{} // closed when lease is set
		openings int           // numbers the incarnations
		closed   bool
	}
}

// Join starts a session. It returns when etcd has granted a lease, or why it did
// not, within a few seconds. The client stays the caller's; give it a
// DialTimeout and a logger (see NewClientLogger). ctx bounds Join only.
func Join(ctx context.Context, client *clientv3.Client, o Options) (*Session, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	k, err := newKeys(o.Prefix)
	if err != nil {
		return nil, err
	}
	watch, err := ntp.New(o.Clock, o.NTP, o.NTPInterval, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	ctx, done := context.WithTimeout(ctx, DefaultTimeout)
	defer done()
	s := &Session{client: client, keys: k, o: o, started: time.Now(), time: watch}
	s.host, _ = os.Hostname()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(func() { s.time.Run(s.ctx) }) // while etcd is asked
	s.mu.places, s.mu.leased = map[string]*place{}, make(chan struct{})
	if err = checkVersions(ctx, client); err != nil {
		s.cancel()
		s.wg.Wait()
		return nil, err
	}
	s.watcher = clientv3.NewWatcher(client)
	l, err := s.grant(ctx, o.TTL)
	if err != nil {
		s.cancel()
		s.wg.Wait()
		_ = s.watcher.Close()
		return nil, err
	}
	s.firstTime(ctx)
	s.setLease(l)
	s.wg.Go(func() { s.keepLease(l) })
	s.wg.Go(s.probe)
	s.wg.Go(s.report)
	return s, nil
}

// firstTime lets the clock be measured before anybody uses it, if servers answer
// soon: it is then set at once, and need not be corrected in use.
func (s *Session) firstTime(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, firstMeasurement)
	defer done()
	s.time.First(ctx)
}

// Clock returns the session's clock.
func (s *Session) Clock() *clock.Clock { return s.o.Clock }

// Subscribe makes this process an instance of the provider. It implements
// consumer.Source; applications call consumer.Open.
func (s *Session) Subscribe(provider string, create func() feed.Sink) (feed.Subscription, error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, fmt.Errorf("coordinator: %s: %w", provider, ErrSessionClosed)
	}
	p := s.mu.places[provider]
	if p == nil {
		p = newPlace(s, provider, create())
		s.mu.places[provider] = p
		s.wg.Go(p.run)
	}
	p.users++
	return &subscription{place: p}, nil
}

// subscription is one user's part of a place.
type subscription struct {
	place *place
	once  sync.Once
	err   error
}

func (u *subscription) Sink() feed.Sink { return u.place.sink }

func (u *subscription) Close() error {
	u.once.Do(func() {
		p := u.place
		p.s.mu.Lock()
		p.users--
		last := p.users == 0 && p.s.mu.places[p.provider] == p
		if last {
			delete(p.s.mu.places, p.provider)
		}
		p.s.mu.Unlock()
		if last {
			u.err = p.close()
		}
	})
	return u.err
}

// Close ends the session at once: its limiters issue nothing more, and its
// instances leave without notice, so that the others get their shares after the
// settle time. Leave loses nothing. A second Close returns nil.
func (s *Session) Close() error {
	places, l, first := s.shut()
	if !first {
		return nil
	}
	for _, p := range places {
		p.closeSink()
	}
	s.cancel()
	s.wg.Wait()
	err := s.watcher.Close()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if l == nil {
		return err
	}
	// Nothing is issued any more: now the lease may go, and all keys with it.
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	if _, e := s.client.Revoke(ctx, l.id); e != nil && s.client.Ctx().Err() == nil {
		s.o.Logger.Warn("lease was not revoked, it ends by itself", "ttl", l.ttl, "error", e)
	}
	return err
}

// shut marks the session closed and returns what it has to end.
func (s *Session) shut() (places []*place, l *lease, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, nil, false
	}
	s.mu.closed = true
	for _, p := range s.mu.places {
		places = append(places, p)
	}
	return places, s.mu.lease, true
}

// all returns the places as of now.
func (s *Session) all() []*place {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := make([]*place, 0, len(s.mu.places))
	for _, p := range s.mu.places {
		places = append(places, p)
	}
	return places
}

// bounded returns a context for one call to etcd.
func (s *Session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, DefaultTimeout)
}
