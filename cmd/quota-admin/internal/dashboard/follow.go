package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/document"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
)

const (
	lookEvery = time.Second
	// RestEvery is the time between two looks while nobody looks at a page.
	RestEvery = 2 * time.Second
	// RememberEvery is the time between two looks at a provider while nobody looks.
	RememberEvery = 10 * time.Second
	// defaultGrace is that of Options.
	defaultGrace = 15 * time.Second
	// ReadAtMost is how many providers are read at one look, beside those that
	// are opened; where there are more, they take turns. While nobody looks, it is the first
	// ones.
	ReadAtMost = live.RememberedAtMost
	// observedAtMost is how many providers are asked to report every second.
	observedAtMost = 32
	// maxOpened bounds the providers that are opened at once, by all pages.
	maxOpened = 64
)

// overview is the topic of the pages that opened no provider.
const overview = ""

// follower reads etcd for the pages. Its loop owns what it has read; pages only
// come and go.
type follower struct {
	admin *admin.Client
	log   *slog.Logger
	grace time.Duration

	mu      sync.Mutex
	topics  map[string]*topic     // by provider; those that somebody reads
	left    time.Time             // when the last reader of one went
	streams []*context.CancelFunc // oldest first

	wake chan struct{} // somebody came

	// Owned by the loop:
	watcher *live.Watcher
	etcd    etcdState
	resting bool            // nobody looks
	beyond  map[string]bool // providers whose shares sum to too much; logged once
}

func newFollower(operator *admin.Client, log *slog.Logger) *follower {
	return &follower{
		admin: operator, log: log, grace: defaultGrace, beyond: map[string]bool{}, topics: map[string]*topic{}, wake: make(chan struct{}, 1),
		watcher: live.NewWatcher(operator, observedAtMost), etcd: etcdState{OK: true},
	}
}

var errTooMany = errors.New("too many providers are open at once; close a page")

// open returns the topic of a provider, or of the overview, for a stream, and the stream's
// context; done ends it. Where there are too many streams the oldest ends.
func (f *follower) open(ctx context.Context, name string) (t *topic, _ context.Context, done func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.topics[name] == nil {
		if len(f.topics) >= maxOpened {
			return nil, nil, nil, errTooMany
		}
		f.topics[name] = &topic{changed: make(chan struct{})}
	}
	t = f.topics[name]
	t.readers++
	ctx, cancel := context.WithTimeout(ctx, lifetime)
	if f.streams = append(f.streams, &cancel); len(f.streams) > streamsAtMost {
		(*f.streams[0])()
		f.streams = f.streams[1:]
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return t, ctx, func() {
		cancel()
		f.mu.Lock()
		defer f.mu.Unlock()
		if t.readers--; t.readers == 0 {
			delete(f.topics, name)
			f.left = time.Now()
		}
		f.streams = slices.DeleteFunc(f.streams, func(c *context.CancelFunc) bool { return c == &cancel })
	}, nil
}

// end ends all streams.
func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cancel := range f.streams {
		(*cancel)()
	}
}

func (f *follower) run(ctx context.Context) {
	defer f.watcher.Close()
	defer f.end()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		f.mu.Lock()
		topics, left := maps.Clone(f.topics), f.left
		f.mu.Unlock()
		f.resting = len(topics) == 0 && time.Since(left) > f.grace
		f.look(ctx, topics)
		if f.resting {
			tick.Reset(RestEvery)
		} else {
			tick.Reset(lookEvery)
		}
		select {
		case <-tick.C:
		case <-f.wake: // a page that was just opened need not wait
		case <-ctx.Done():
			return
		}
	}
}

func (f *follower) look(ctx context.Context, topics map[string]*topic) {
	opened := slices.DeleteFunc(slices.Sorted(maps.Keys(topics)), func(name string) bool { return name == overview })
	began := time.Now()
	var err error
	if f.resting {
		err = f.watcher.Remember(ctx, ReadAtMost, RememberEvery)
	} else {
		err = f.watcher.Read(ctx, opened, ReadAtMost)
	}
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if ok := err == nil; ok != f.etcd.OK || f.etcd.Since == 0 {
		f.etcd = etcdState{OK: ok, Since: began.UnixMilli()}
	}
	if err != nil {
		f.etcd.Error, f.etcd.Denied = etcdcall.Unnamed(err.Error()), errors.Is(err, coordinator.ErrPermission)
	}
	s := state{Now: now.UnixMilli(), Etcd: f.etcd, Notes: []string{}, Providers: f.watcher.Rows(now)}
	if note := f.watcher.Blind; note != "" {
		s.Notes = append(s.Notes, note)
	}
	if n := len(s.Providers); n > ReadAtMost {
		s.Notes = append(s.Notes, fmt.Sprintf("of %d providers %d are read each second", n, ReadAtMost))
	}
	for _, row := range s.Providers {
		if p := f.watcher.Seen(row.Provider); p != nil {
			f.tell(row.Provider, p.Status.Beyond())
		}
	}
	for name, t := range topics {
		one, points := s, []live.Point(nil)
		if p := f.watcher.Seen(name); p != nil {
			one.Detail, points = detailOf(p, now), p.Points
			if !f.etcd.OK && !f.etcd.Denied {
				one.Detail.Outage = p.Outage()
			}
		}
		t.send(points, &one)
	}
}

// tell logs that shares sum to too much, when that begins.
func (f *follower) tell(provider, beyond string) {
	if beyond == "" {
		delete(f.beyond, provider)
	} else if !f.beyond[provider] {
		f.beyond[provider] = true
		f.log.Error(beyond, "provider", provider)
	}
}

// state is what the page shows beside the charts. Times are milliseconds since
// the Unix epoch; an unknown number is null.
type state struct {
	Now       int64      `json:"now"`
	Etcd      etcdState  `json:"etcd"`
	Notes     []string   `json:"notes"`
	Providers []live.Row `json:"providers"`
	Detail    *detail    `json:"detail,omitempty"`
}

type etcdState struct {
	OK     bool   `json:"ok"`
	Since  int64  `json:"since"`
	Error  string `json:"error,omitempty"`
	Denied bool   `json:"denied"` // the dashboard's user may not read
}

type detail struct {
	Provider    string           `json:"provider"`
	Revision    int64            `json:"revision"`
	Policy      map[string]any   `json:"policy"` // null: none is set, or it cannot be read
	Bucket      float64          `json:"bucket"` // length of a point, seconds
	Budgets     []live.Foreseen  `json:"budgets"`
	Keys        []live.Rate      `json:"keys"`   // the busiest
	Labels      []live.Rate      `json:"labels"` // the busiest
	Classes     []live.ClassRate `json:"classes,omitempty"`
	At          int64            `json:"at"`               // of the last look that etcd answered
	Late        float64          `json:"late"`             // the age of a report from which on an instance is silent, seconds
	Outage      string           `json:"outage,omitempty"` // what instances do, while etcd is away
	SumOfShares int64            `json:"sum_of_shares"`
	Troubles    []string         `json:"troubles"`
	Gone        bool             `json:"gone"` // neither policy nor instances
	Columns     []string         `json:"columns"`
	Instances   [][]any          `json:"instances"` // by Columns: there may be a thousand
	Events      []live.Event     `json:"events"`
}

// instancesAtMost bounds what a page is sent each second, whatever lies in etcd.
const instancesAtMost = 5000

var columns = func() (names []string) {
	for _, c := range live.Instances {
		names = append(names, c.Name)
	}
	return names
}()

// detailOf returns a provider as of the last look; reports grow older since.
func detailOf(p *live.Provider, now time.Time) *detail {
	f := p.Fleet
	d := &detail{
		Provider: f.Provider, Revision: f.Revision, Policy: policyOf((*admin.Stored)(&f.Policy), p.At), Bucket: p.Bucket().Seconds(),
		Troubles: slices.Clone(p.Status.Troubles), Columns: columns, SumOfShares: p.Status.SumOfShares, Instances: [][]any{}, Events: append([]live.Event{}, p.Events...),
		Gone: f.Policy.Revision == 0 && len(f.Instances) == 0,
	}
	d.Budgets = p.Budgets()
	d.Keys, d.Labels, d.Classes, d.Late = live.BusiestKeys(f), live.BusiestLabels(f), p.Classes(), p.Late().Seconds()
	if !p.At.IsZero() {
		d.At = p.At.UnixMilli()
	}
	for i := range f.Instances[:min(len(f.Instances), instancesAtMost)] {
		d.Instances = append(d.Instances, p.Line(&f.Instances[i], now))
	}
	if n := len(f.Instances); n > instancesAtMost {
		d.Troubles = append(d.Troubles, fmt.Sprintf("of %d instances the first %d are shown", n, instancesAtMost))
	}
	return d
}

// policyOf returns a policy as a document has it, and who wrote it, when and why.
func policyOf(s *admin.Stored, now time.Time) map[string]any {
	if s.Revision == 0 || s.Problem != nil {
		return nil
	}
	p := document.Fields(change.Current(s.Policy, now))
	p["revision"], p["author"], p["reason"], p["time"] = s.Revision, s.Policy.Author, s.Policy.Reason, s.Policy.Time
	return p
}

const (
	// lifetime is how long one stream lasts before the page has to come back.
	lifetime = 10 * time.Minute
	// writeTime is how long a reader may keep a write waiting.
	writeTime = 10 * time.Second
	// streamsAtMost is how many streams there are; another one ends the oldest.
	streamsAtMost = 256
)

type message struct {
	Reset  bool         `json:"reset,omitempty"`  // forget the points that came before: none of them is kept
	Points []live.Point `json:"points,omitempty"` // that the page lacks
	State  *state       `json:"state"`            // only the newest counts
}

// topic is what the pages that show the same are sent.
type topic struct {
	readers int // guarded by the follower

	mu      sync.Mutex
	state   *state // nil at first
	points  []live.Point
	changed chan struct{}
}

// send replaces the state and the points that are kept.
func (t *topic) send(points []live.Point, s *state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.points, t.state = points, s
	close(t.changed)
	t.changed = make(chan struct{})
}

// read returns the points that come after a reader's newest, which is of that instant;
// 0 for none. The channel is closed when there are more.
func (t *topic) read(newest int64) (m message, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, _ := slices.BinarySearchFunc(t.points, newest+1, func(p live.Point, at int64) int { return cmp.Compare(p.At, at) })
	return message{i == 0, t.points[i:], t.state}, t.changed
}

// serve writes a line for whatever happens, until the reader goes or does not read, or
// ctx ends.
func (t *topic) serve(ctx context.Context, w http.ResponseWriter) {
	control := http.NewResponseController(w)
	// The bound on reading the request is past; the stream has none.
	if control.SetReadDeadline(time.Time{}) != nil {
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that collect answers
	for newest := int64(0); ; {
		m, more := t.read(newest)
		if n := len(m.Points); n > 0 {
			newest = m.Points[n-1].At
		}
		if m.State != nil && (control.SetWriteDeadline(time.Now().Add(writeTime)) != nil || json.NewEncoder(w).Encode(m) != nil) || control.Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}
