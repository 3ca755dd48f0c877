// Package fleet is the parent's side of a run: it starts the workers, has happen to
// them what was asked for, and sums up what was seen.
package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/show"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// run is one run of a fleet: what happens in turn, and what is seen of it.
type run struct {
	c        *config.Config
	etcd     *etcd
	provider string
	crew     *crew
	show     show.Progress
	began    time.Time
	own      *ownClock
	observed load.Run
	shares   *load.Shares  // nil if nobody wants to see them
	budgets  *load.Budgets // nil without a long limit
	cpu      time.Duration // used in the measured time
	writes   *load.Writes  // into etcd in that time; nil if they are not known
	departed load.Departures

	happened struct {
		sync.Mutex
		events []load.Event
	}
}

// Execute runs the fleet. The report is nil where nothing ran.
func Execute(ctx context.Context, c *config.Config, text, stderr io.Writer) (*load.Report, error) {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	e, err := openEtcd(running, c, fail)
	if err != nil {
		return nil, err
	}
	provider := "loadgen/" + strings.ToLower(rand.Text()[:10])
	c.Asked["provider"] = provider
	c.SetAhead()
	if !c.Quiet {
		if c.Ahead > 0 {
			fmt.Fprintf(text, "all clocks of this run are %v ahead\n", c.Ahead.Round(time.Second))
		}
		if c.Keys > 0 {
			fmt.Fprintf(text, "calls are for %d keys of %s each, %s\n", c.Keys, c.KeyLimit, c.KeySpread)
		}
		fmt.Fprintf(text, "%d instances%s share %s%s; demand %v, %s, %s; settle time %v; %s\n",
			c.Instances, c.ProcessesText(), c.Limit, c.ShapeText(), c.Demand, c.Arrival, c.Spread, c.Settle, e.where(c))
	}
	own, err := openClock(running, c.NTP, c.Policy(nil, "").ClockError)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	defer own.close()
	r := &run{c: c, etcd: e, provider: provider, own: own, crew: newCrew(c, e, provider, own, fail)}
	r.crew.event = r.event
	if !c.Quiet {
		r.show.W = stderr
	}
	if c.HTML != "" {
		r.shares = &load.Shares{Names: c.Bands()}
	}
	err = r.drive(running)
	if cause := context.Cause(running); ctx.Err() == nil && cause != nil {
		err = errors.Join(cause, err) // not the user, but something that went wrong
	}
	if closing := e.close(); err == nil && closing != nil && ctx.Err() == nil {
		err = fmt.Errorf("closing etcd: %w", closing)
	}
	return r.report(), err
}

// drive runs the fleet from its first join to its end, or until ctx ends. The
// observations are there also with an error.
func (r *run) drive(ctx context.Context) error {
	r.began = time.Now()
	r.observed = load.Run{
		Fleet: r.c.Instances, Servers: int64(r.c.Instances), LeastUse: r.c.LeastUse / 100, Parts: r.c.Parts(), Start: load.Never, End: load.Never, Active: load.Never,
		Timeline: load.Timeline{
			Settle: r.c.Settle, Slack: r.c.Policy(nil, "").ClockError,
			Changes: []load.Change{{Limits: r.c.Limits}},
		},
	}
	err := r.write(ctx, r.c.Limits, "load generator")
	if err != nil {
		return err
	}
	if err = r.crew.join(ctx); err == nil {
		if err = r.settle(ctx); err == nil {
			err = r.measure(ctx)
		}
	}
	if ctx.Err() != nil {
		err = nil // who ended it says why
	}
	arrived, failed := r.crew.end()
	err = errors.Join(err, failed, r.countBudgets(ctx), r.cleanUp(ctx))
	r.observed.Arrivals = arrived
	counts, last := r.crew.counts, r.crew.status()
	r.departed = load.Departures{Announced: last.Announced, Unannounced: last.Unannounced, Killed: r.crew.killed}
	r.observed.Counts = counts[load.Labelled]
	r.observed.Keys, r.observed.KeyLimit = counts[load.Misplaced+1:], r.c.KeyLimit
	r.observed.Own = load.Own{
		Came: counts[load.Came], Cell: config.Bucket, Misplaced: counts[load.Misplaced], Worst: last.Worst,
		Tolerance: r.own.allowed, Unjudged: r.own.unjudged(r.c.Policy(nil, "").ClockError),
	}
	r.observed.Shape = r.c.Spans(r.departed.All())
	return err
}

func (r *run) write(ctx context.Context, limits []quota.Limit, reason string) error {
	_, err := r.etcd.admin.Put(ctx, r.provider, r.c.Policy(limits, reason))
	return err
}

// countBudgets reads what etcd says of the long windows, once all instances are gone.
func (r *run) countBudgets(ctx context.Context) error {
	k, err := keys.New(r.c.Etcd.Prefix)
	if err != nil || r.c.Longest() == r.c.Lengths()[len(r.c.Lengths())-1] {
		return err
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), r.c.Etcd.CommandTimeout)
	defer done()
	got, err := r.etcd.client.Get(ctx, k.Budgets(r.provider), clientv3.WithPrefix())
	if err != nil {
		return err
	}
	r.budgets = &load.Budgets{}
	for _, kv := range got.Kvs {
		total, failed := escrow.Decode[escrow.Total](kv.Value) // of a mark it has neither field
		err = errors.Join(err, failed)
		r.budgets.Transactions += total.Writes
		r.budgets.NotIssued += total.Out
	}
	return err
}

// cleanUp deletes the policy, also after an interrupt. The embedded etcd goes
// away as a whole.
func (r *run) cleanUp(ctx context.Context) error {
	if r.etcd.embedded != nil {
		return nil
	}
	_, err := r.etcd.admin.Delete(context.WithoutCancel(ctx), r.provider, "load generator ended")
	if err != nil {
		return fmt.Errorf("policy %s was left behind: %w", r.provider, err)
	}
	return nil
}

// settle waits until all instances can issue permits, and have shares of their own: before,
// some issue what others lend.
func (r *run) settle(ctx context.Context) error {
	w := waiting{since: r.began, atMost: r.c.MaxPatience(), still: r.c.Patience(), last: r.began}
	for {
		s := r.see()
		r.show.Tell("settling", "settling: %d of %d instances active", s.Active, r.c.Instances)
		if s.Ready >= r.c.Instances && s.Active >= r.c.Instances {
			break
		}
		if now := time.Now(); w.inVain(now, s.Joined+s.Ready) {
			return fmt.Errorf("%d of %d instances joined and %d are active after %v: %s; if this machine is busy, use fewer --instances or a longer --settle",
				s.Joined, r.c.Instances, s.Active, now.Sub(r.began).Round(time.Second), s.Problem)
		}
		if !pause(ctx, worker.Look) {
			return ctx.Err()
		}
	}
	r.observed.Active = r.c.Now()
	r.show.Tell("settled", "settled: all %d instances active", r.c.Instances)
	return nil
}

func (r *run) see() worker.Report {
	s := r.crew.status()
	r.own.look()
	now := r.c.Now()
	starts := r.c.Window()
	if r.c.Shaped() {
		starts = 1 // a share comes at any time
	}
	r.observed.Presence.Record(now, s.Active, starts)
	r.observed.Serving.Record(now, int(r.serving(now, &s)), starts)
	if x := r.shares; x != nil {
		// A picture needs no more than a few hundred of them.
		if each := int64((r.c.MeasureAfter + r.c.Duration) / 500); len(x.At) == 0 || now >= x.At[len(x.At)-1]+each {
			x.At, x.Sums = append(x.At, now), append(x.Sums, s.Shares)
		}
	}
	return s
}

// serving is how many instances permits are due from: those that have been active once, whatever
// they say since. After a fault of etcd, those that say so.
func (r *run) serving(now int64, s *worker.Report) int64 {
	n := min(s.Serving, r.observed.Servers)
	if faults := r.c.Faults; len(faults) > 0 && r.observed.Start != load.Never && now >= r.observed.Start+int64(faults[0].At) {
		n = min(n, int64(s.Active))
	}
	return n
}

func (r *run) event(text string) {
	r.happened.Lock()
	defer r.happened.Unlock()
	r.happened.events = append(r.happened.events, load.Event{At: time.Unix(0, r.c.Now()).UTC(), Text: text})
}

// measure lets the measured time pass, from the next window's start, with all
// that happens in it.
func (r *run) measure(ctx context.Context) error {
	o := &r.observed
	start := quota.WindowAt(r.c.Window(), o.Active+int64(r.c.MeasureAfter)).End()
	end := start + int64(r.c.Duration)
	r.crew.tell(func(s *worker.State) { s.Start, s.Stop = start, end })
	if !r.watch(ctx, start, func(int64, worker.Report) {}) {
		return ctx.Err()
	}
	before := r.crew.status().CPU
	happening, stop := context.WithCancel(ctx)
	var happens errgroup.Group
	for _, f := range []func(context.Context, int64) error{r.change, r.crew.depart, r.fault} {
		happens.Go(func() error { return f(happening, start) })
	}
	o.Start = start
	stopCounting := r.countWrites(ctx)
	r.watch(ctx, end, func(now int64, s worker.Report) {
		elapsed := max(0, time.Duration(now-start)).Round(100 * time.Millisecond)
		r.show.Tell("measuring", "measuring: %.1f of %v, %s permits issued", elapsed.Seconds(), r.c.Duration, humanize.Comma(s.Issued))
	})
	o.End = min(end, r.c.Now())
	r.writes = stopCounting(time.Duration(o.End - start).Seconds())
	r.cpu = r.crew.status().CPU - before
	stop()
	return happens.Wait()
}

// watch looks at the fleet until the instant end, or until ctx ends, which it
// reports as false.
func (r *run) watch(ctx context.Context, end int64, each func(now int64, s worker.Report)) bool {
	for now := r.c.Now(); now < end; now = r.c.Now() {
		each(now, r.see())
		if !pause(ctx, min(worker.Look, time.Duration(end-now))) {
			return false
		}
	}
	return true
}

// change makes the limit changes, in turn. The timeline is its own until it
// returns.
func (r *run) change(ctx context.Context, start int64) error {
	for _, ch := range r.c.Changes {
		if !pause(ctx, r.c.Until(start+int64(ch.At))) {
			return nil
		}
		r.event("limit " + ch.Text)
		entry := load.Change{Sent: r.c.Now(), Acked: load.Never, Limits: ch.Limits}
		err := r.write(ctx, ch.Limits, "load generator: --change "+ch.String())
		if err == nil {
			entry.Acked = r.c.Now()
			r.crew.tell(func(s *worker.State) { s.Limits = ch.Text })
		}
		r.observed.Timeline.Changes = append(r.observed.Timeline.Changes, entry)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("change to %s: %w", ch.Text, err)
		}
	}
	return nil
}
