package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/diagnose"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/ntp"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/quota"
)

// Defaults and bounds of Options.
const (
	defaultTTL = 5 * time.Second
	minTTL     = 2 * time.Second
	maxTTL     = time.Minute
	// defaultProbe is the time between two proofs of freshness. It costs one
	// small read of etcd per process.
	defaultProbe = 300 * time.Millisecond
	// firstMeasurement is how long Join waits for NTP servers.
	firstMeasurement = 1200 * time.Millisecond
	closingTime      = time.Second
)

// Options of a session. The zero value is ready to use.
type Options struct {
	// Name is the operators' name of this instance, at most 128 bytes
	// long; it need not be unique. Default: the host's name.
	Name string
	// Prefix of all keys; default "/quotient/v1/". All of a fleet use the same.
	Prefix string
	// TTL is the lease: the time after which etcd removes a dead instance; 2 s to 1
	// minute, default 5 s. No promise depends on it. In a fleet of 100 or more a lost
	// lease is replaced by one twice as long, up to 30 s.
	TTL time.Duration
	// Probe is the time between two proofs of freshness, default 300 ms;
	// from 50 ms to 1 s. A policy with a short freshness makes it shorter. The
	// default grows in fleets of more than 500 instances, to a third of the
	// freshness at most.
	Probe time.Duration
	// NTP names servers, host or host:port, to measure true time by, at most 16. Three or
	// more reveal one that lies. Default: none; the session then follows the operating
	// system's clock, whose error is the kernel's bound, or unknown.
	NTP []string
	// NTPInterval is the time between two questions to a server, default 32 s;
	// from 1 s, for servers of one's own, to 1024 s.
	NTPInterval time.Duration
	// Lazy makes Join return immediately, also while etcd is away. Until etcd can be
	// reached, limiters are joining, and Status has the reason. Use it if the process has
	// other work to do, or must start without etcd. Without Lazy a mistake in the
	// client's configuration ends Join. It does not help a client with a user and a password while etcd
	// is away: clientv3.New logs in, and waits until its DialTimeout, or without end if that is 0.
	Lazy bool
	// Logger receives the changes of state; default slog.Default().
	Logger *slog.Logger
}

// settings are Options with what is not for applications.
type settings struct {
	Options
	Clock    *clock.Clock
	ownProbe bool // Probe was given
}

func (o *settings) fill() error {
	if o.Name == "" {
		o.Name = cmp.Or(hostName(), "unknown")
	}
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	o.ownProbe, o.Probe = o.Probe != 0, cmp.Or(o.Probe, defaultProbe)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.TTL < minTTL || o.TTL > maxTTL {
		return fmt.Errorf("coordinator: TTL %v: must be from %v to %v; 0 means %v", o.TTL, minTTL, maxTTL, defaultTTL)
	}
	if o.Probe < 50*time.Millisecond || o.Probe > time.Second {
		return fmt.Errorf("coordinator: probe %v: must be from 50ms to 1s; 0 means %v", o.Probe, defaultProbe)
	}
	i := protocol.Instance{Name: o.Name}
	return i.Validate()
}

// hostName returns as much of the host's name as an instance may tell.
func hostName() string {
	host, _ := os.Hostname()
	return host[:min(len(host), protocol.MaxNameBytes)]
}

// maxProviders bounds the providers of a session.
const maxProviders = 1000

// Session makes a process an instance of each provider that it opens, of at most 1,000.
// It is a consumer.Source: give it to consumer.Open. Its methods are safe for concurrent
// use. Make one with Join, and end it with Shutdown or Close.
type Session struct {
	covered
	client  *clientv3.Client
	kv      clientv3.KV
	keys    keys.Layout
	o       settings
	started time.Time
	host    string

	time    *ntp.Watch
	redial  redialing
	logins  etcdcall.Logins
	closing time.Duration // how long Close waits for etcd
	checked bool          // a member of a good version has answered; Join's, then keepLease's

	ctx     context.Context // until Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	post    post
	writing writing
	hearing hearing

	joins     chan struct{} // holds one when a membership needs something of join
	newcomers chan struct{} // holds one when a history has begun
	renewals  chan struct{} // holds one when the lease is to be renewed at once
	few       chan struct{} // holds one for each membership that goes on alone
	observing observing     // report's own

	mu struct {
		sync.Mutex
		*session.Machine
		memberships map[string]*membership   // by provider; those of the machine's members
		watches     map[*session.Line]*watch // by what they follow
		asks        *ear                     // of all providers; nil while each has its own
		apart       bool                     // etcd has refused an ear of all providers
	}
}

// Join starts a session. It returns when etcd has granted a lease, or within 6 s with an
// error: ErrUnreachable, ErrPermission, an etcd that is too old, or an option that is out
// of its range. With Options.Lazy it asks no etcd and returns immediately. The caller keeps
// and closes the client; give it a DialTimeout, without which clientv3.New may log in for ever, and a logger (see package etcdlog). A client
// that clientv3's packages namespace, ordering or leasing have wrapped is refused: use
// Options.Prefix. ctx bounds Join only.
//
// While etcd answers nothing for some seconds, the session has the client connect anew: it gives
// it the endpoints that it has, by SetEndpoints.
func Join(ctx context.Context, client *clientv3.Client, o Options) (*Session, error) {
	if ctx == nil {
		return nil, fmt.Errorf("coordinator: join: %w", errNilContext)
	}
	if err := etcdcall.Usable(client); err != nil {
		return nil, fmt.Errorf("coordinator: join: %w", err)
	}
	return join(ctx, client, nil, o)
}

// join is Join with a store in place of the client's, unless that is nil.
func join(ctx context.Context, client *clientv3.Client, kv clientv3.KV, options Options) (*Session, error) {
	o := settings{Options: options, Clock: clock.Of(ctx)}
	if err := o.fill(); err != nil {
		return nil, err
	}
	k, err := keys.New(o.Prefix)
	if err != nil {
		return nil, err
	}
	watch, err := ntp.New(o.Clock, o.NTP, o.NTPInterval, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	s := &Session{client: client, kv: kv, keys: k, o: o, started: time.Now(), host: hostName(), time: watch, closing: closingTime}
	if kv == nil {
		s.kv = etcdcall.NewWatchedKV(client, etcdcall.Timeout, &s.logins, s.answeredWrite)
	}
	s.covered = feed.Over[feed.Source]((*source)(s))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.renewals = make(chan struct{}, 1)
	s.joins, s.newcomers, s.few = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, mostAlone)
	s.post.news, s.hearing.news = make(chan struct{}, 1), make(chan struct{}, 1)
	s.begin()
	s.wg.Go(func() { s.time.Run(s.ctx) }) // while etcd is asked
	var l session.Lease
	if !o.Lazy {
		c, done := s.bounded(ctx)
		defer done()
		if l, err = s.connect(c, o.TTL); err != nil {
			return nil, cause.Together(err, s.Close())
		}
	}
	s.step(session.Opened{})
	s.wg.Go(func() { s.keepLease(l) })
	for _, part := range []func(){s.join, s.probe, s.report, s.carry, s.hear} {
		s.wg.Go(part)
	}
	return s, nil
}

// begin makes the state that Session.mu guards.
func (s *Session) begin() {
	s.mu.Machine = session.New(s.keys.Provider(""))
	s.mu.memberships, s.mu.watches = map[string]*membership{}, map[*session.Line]*watch{}
}

// connect gets a lease from an etcd that is new enough. It lets the clock be measured
// before anybody uses it, if servers answer soon: it is then set at once, and need
// not be corrected in use.
func (s *Session) connect(ctx context.Context, ttl time.Duration) (l session.Lease, err error) {
	if err := s.checkVersions(ctx); err != nil {
		return l, err
	}
	if l, err = s.grant(ctx, ttl); err != nil {
		return l, s.diagnosed(ctx, err)
	}
	c, done := context.WithTimeout(ctx, firstMeasurement)
	defer done()
	s.time.First(c)
	return l, nil
}

// diagnosed adds to the error of an etcd that does not answer what came of a question to each
// endpoint, and to that of one which refuses what to do.
func (s *Session) diagnosed(ctx context.Context, err error) error {
	if errors.Is(err, ErrPermission) {
		return cause.Worded(err.Error()+"; "+cause.Remedy(err), err)
	}
	if !errors.Is(err, ErrUnreachable) || ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	all := diagnose.Endpoints(ctx, s.client, err)
	answering, leader := 0, false
	for _, f := range all {
		leader = leader || f.Leader
		if f.Answers {
			answering++
		}
	}
	what := err.Error()
	switch {
	case answering == 0:
		what = "coordinator: no etcd answers"
	case !leader:
		what = fmt.Sprintf("coordinator: etcd has no leader: more than half of its members must run, and of %d endpoints %d answered", len(all), answering)
	}
	return cause.Worded(what+"; "+strings.Join(diagnose.Lines(all), "; "), err)
}

type covered = feed.Cover[feed.Source]

// source is a Session as a limiter sees it.
type source Session

// Clock implements feed.Source.
func (s *source) Clock() *clock.Clock { return s.o.Clock }

// Subscribe implements feed.Source.
func (s *source) Subscribe(provider string, create func() feed.Sink) (sink feed.Sink, leave func() error, err error) {
	return (*Session)(s).subscribe(provider, create)
}

// subscribe makes this process an instance of the provider: one of at most 1,000 in a
// session.
func (s *Session) subscribe(provider string, create func() feed.Sink) (sink feed.Sink, leave func() error, err error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.Closed() {
		return nil, nil, fmt.Errorf("coordinator: %s: %w", provider, errSessionClosed)
	}
	p := s.mu.memberships[provider]
	if n := len(s.mu.memberships); p == nil && n >= maxProviders {
		return nil, nil, fmt.Errorf("coordinator: %s: it would be provider %d of this session, the most is %d: open a second session for the rest (docs/proof/scaling.md)",
			provider, n+1, maxProviders)
	}
	if p == nil {
		p = newMembership(s, provider, create())
		p.Sink.Needs(p.need)
		s.mu.memberships[provider] = p
		s.stepLocked(session.Subscribed{Member: p.Member})
	}
	p.users++
	return p.Sink, sync.OnceValue(func() error {
		s.mu.Lock()
		p.users--
		last := p.users == 0 && s.mu.memberships[provider] == p
		if last {
			delete(s.mu.memberships, provider)
			s.stepLocked(session.Unsubscribed{Member: p.Member})
		}
		s.mu.Unlock()
		if last {
			return p.close()
		}
		return nil
	}), nil
}

// Close ends the session immediately: its limiters issue nothing more, and the others use
// its shares from the next window of each limit. If etcd is away, or with a shape other than
// fixed, they use them after the settle time. With shape fixed Shutdown loses nothing.
//
// Close waits a second at most for etcd. If the session's keys could not be removed by
// then it returns an error: its instances are there, and keep their shares, until the lease
// ends (Options.TTL). A second Close returns nil.
func (s *Session) Close() error {
	s.mustBe("Close")
	return s.close(context.Background(), s.closing)
}

// mustBe panics for a session that Join did not return.
func (s *Session) mustBe(call string) {
	if s == nil || s.cancel == nil {
		panic("coordinator: " + call + " of a Session that is nil or empty: use the one that Join returned, and look at Join's error first")
	}
}

// close is Close, but waits for etcd until ctx ends, and at most so long.
func (s *Session) close(ctx context.Context, most time.Duration) error {
	s.mu.Lock()
	first, l := !s.mu.Closed(), s.mu.Lease()
	s.stepLocked(session.Shut{})
	memberships := session.Sorted(s.mu.memberships)
	s.mu.Unlock()
	if !first {
		return nil
	}
	s.cancel()
	for _, p := range memberships {
		s.step(session.Closing{Member: p.Member})
	}
	s.wg.Wait()
	for _, p := range memberships {
		p.end()
	}
	if l.ID == 0 {
		return nil
	}
	// Nothing is issued any more: now the keys may say so, and then the lease may go,
	// and all keys with it.
	ctx, done := context.WithTimeout(ctx, most)
	defer done()
	var promised sync.WaitGroup
	for _, p := range memberships {
		promised.Go(func() {
			if _, err := p.part(ctx); err != nil {
				s.o.Logger.Debug("no promise: others get this share after the settle time", "provider", p.Provider, "error", err)
			}
		})
	}
	promised.Wait()
	if _, err := s.client.Revoke(ctx, clientv3.LeaseID(l.ID)); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return classify(ctx, fmt.Sprintf("close: etcd did not confirm; the other instances use this share when its lease (%v) and the settle time are over", l.TTL), err)
	}
	return nil
}

// all returns the memberships by provider.
func (s *Session) all() []*membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return session.Sorted(s.mu.memberships)
}

func (s *Session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, etcdcall.Timeout)
}
