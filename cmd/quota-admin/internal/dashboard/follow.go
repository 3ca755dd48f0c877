package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/rates"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	lookEvery = time.Second
	// grace is how long etcd is read after the last stream ended: the browser
	// may be about to come back.
	grace = 15 * time.Second
	// readAtMost is how many providers are read at one look, beside those that
	// are opened; where there are more, they take turns.
	readAtMost = 32
	// observedAtMost is how many providers are asked to report every second:
	// each of their instances then writes that often.
	observedAtMost = 32
	// maxOpened bounds the providers that are opened at once, by all pages.
	maxOpened = 64
)

// overview is the topic of the pages that opened no provider.
const overview = ""

// follower reads etcd for the pages. Its loop owns what it has read; pages only
// come and go.
type follower struct {
	admin *coordinator.Admin

	mu     sync.Mutex
	topics map[string]*topic // by provider

	wake chan struct{} // somebody came

	// Owned by the loop:
	providers map[string]*provider
	observed  map[string]func() // what ends an observation
	blind     string            // why instances do not report every second
	listed    []coordinator.Stored
	turn      int
	etcd      etcdState
}

func newFollower(admin *coordinator.Admin) *follower {
	return &follower{
		admin: admin, topics: map[string]*topic{}, wake: make(chan struct{}, 1),
		providers: map[string]*provider{}, observed: map[string]func(){}, etcd: etcdState{OK: true},
	}
}

var errTooMany = errors.New("too many providers are open at once; close a page")

// open returns the topic of a provider, or of the overview, for one reader, who
// calls done at the end.
func (f *follower) open(name string) (t *topic, done func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := f.topics[name]
	if found == nil {
		if len(f.topics) >= maxOpened && !f.dropUnreadLocked() {
			return nil, nil, errTooMany
		}
		found = newTopic()
		f.topics[name] = found
	}
	found.readers++
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return found, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if found.readers--; found.readers == 0 {
			found.left = time.Now()
		}
	}, nil
}

// dropUnreadLocked makes room: the topic goes that nobody has read for longest.
func (f *follower) dropUnreadLocked() bool {
	oldest := ""
	for name, t := range f.topics {
		if t.readers == 0 && (oldest == "" || t.left.Before(f.topics[oldest].left)) && name != overview {
			oldest = name
		}
	}
	delete(f.topics, oldest)
	return oldest != ""
}

// current returns the topics that somebody reads, or did a moment ago, and drops
// the others.
func (f *follower) current(now time.Time) map[string]*topic {
	f.mu.Lock()
	defer f.mu.Unlock()
	now = now.Add(-grace)
	all := map[string]*topic{}
	for name, t := range f.topics {
		if t.readers == 0 && t.left.Before(now) {
			delete(f.topics, name)
			continue
		}
		all[name] = t
	}
	return all
}

// run reads and publishes until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer f.rest()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		topics := f.current(time.Now())
		if len(topics) == 0 {
			f.rest()
			select {
			case <-f.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		f.look(ctx, topics)
		select {
		case <-tick.C:
		case <-f.wake: // a page that was just opened need not wait
		case <-ctx.Done():
			return
		}
	}
}

// rest ends what is only done while somebody looks.
func (f *follower) rest() {
	for name, stop := range f.observed {
		stop()
		delete(f.observed, name)
	}
	clear(f.providers)
	f.listed, f.blind = nil, ""
}

// look reads once and publishes what came of it.
func (f *follower) look(ctx context.Context, topics map[string]*topic) {
	points, err := f.read(ctx, topics)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if ok := err == nil; ok != f.etcd.OK || f.etcd.Since == 0 {
		f.etcd = etcdState{OK: ok, Since: now.UnixMilli()}
	}
	if err != nil {
		f.etcd.Error = strings.TrimPrefix(err.Error(), "coordinator: ")
	}
	f.publish(now, topics, points)
}

// read reads the list of policies, and the fleets whose turn it is.
func (f *follower) read(ctx context.Context, topics map[string]*topic) (map[string][]rates.Point, error) {
	listed, err := f.admin.List(ctx)
	if err != nil {
		return nil, err
	}
	f.listed = listed
	points := map[string][]rates.Point{}
	for _, name := range f.names(topics) {
		f.observe(ctx, name, topics)
		p := f.providers[name]
		if p == nil {
			p = newProvider(name)
			f.providers[name] = p
		}
		fleet, err := f.admin.Refresh(ctx, p.fleet)
		if err != nil {
			return points, err
		}
		points[name] = p.see(time.Now(), &fleet)
	}
	f.dropGone(topics)
	return points, nil
}

// dropGone forgets the providers that are neither set nor opened any more.
func (f *follower) dropGone(topics map[string]*topic) {
	wanted := map[string]bool{}
	for name := range topics {
		wanted[name] = true
	}
	for _, s := range f.listed {
		wanted[s.Provider] = true
	}
	for name := range f.providers {
		if !wanted[name] {
			delete(f.providers, name)
		}
	}
	for name, stop := range f.observed {
		if !wanted[name] {
			stop()
			delete(f.observed, name)
		}
	}
}

// names returns the providers to read now: those that are opened, and some of
// the others.
func (f *follower) names(topics map[string]*topic) (names []string) {
	for name := range topics {
		if name != overview {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var others []string
	for _, s := range f.listed {
		// A key that names no provider cannot be asked for; its row says so.
		if _, opened := topics[s.Provider]; !opened && quota.ValidateProvider(s.Provider) == nil {
			others = append(others, s.Provider)
		}
	}
	for range min(readAtMost, len(others)) {
		names = append(names, others[f.turn%len(others)])
		f.turn++
	}
	return names
}

// observe asks the instances of a provider to report every second. Those that
// are opened come first.
func (f *follower) observe(ctx context.Context, name string, topics map[string]*topic) {
	if f.observed[name] != nil || f.blind != "" {
		return
	}
	_, opened := topics[name]
	if len(f.observed) >= observedAtMost {
		if !opened {
			return
		}
		for other, stop := range f.observed {
			if _, o := topics[other]; !o {
				stop()
				delete(f.observed, other)
				break
			}
		}
	}
	stop, err := f.admin.Observe(ctx, name)
	switch {
	case errors.Is(err, coordinator.ErrPermission):
		f.blind = "this user may not ask for a report every second: numbers are up to 30 s old"
	case err == nil:
		f.observed[name] = stop
	}
}

// publish sends every topic its points and its state.
func (f *follower) publish(now time.Time, topics map[string]*topic, points map[string][]rates.Point) {
	s := state{Now: now.UnixMilli(), Etcd: f.etcd, Notes: []string{}, Providers: f.rows()}
	if f.blind != "" {
		s.Notes = append(s.Notes, f.blind)
	}
	if n := len(f.listed); n > readAtMost {
		s.Notes = append(s.Notes, fmt.Sprintf("of %d providers %d are read each second", n, readAtMost))
	}
	for name, t := range topics {
		one := s
		var short []rates.Point
		if p := f.providers[name]; p != nil {
			one.Detail = p.detail(now)
			for _, pt := range points[name] {
				short = append(short, pt.Short())
			}
		}
		t.send(short, &one)
	}
}

// rows returns the table of providers, also of those that were not read yet.
func (f *follower) rows() []providerRow {
	rows := []providerRow{}
	for _, s := range f.listed {
		if p := f.providers[s.Provider]; p != nil {
			rows = append(rows, p.row)
			continue
		}
		row := providerRow{Provider: s.Provider}
		if s.Problem != nil {
			row.Problem, row.Mode = s.Problem.Error(), "broken"
		}
		rows = append(rows, row)
	}
	return rows
}
