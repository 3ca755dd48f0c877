//go:build e2e && linux

package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

const (
	// sweepEvery is how often every instance of a lane asks for a permit: so
	// exact are the times.
	sweepEvery = 5 * time.Millisecond
	// impatience is how long what is expected may not come.
	impatience = 2 * time.Minute
)

// lane is one provider of a fleet, and what its instances take of it.
type lane struct {
	*fleetOf
	provider string
	limiters []*consumer.Limiter // of the fleet's members

	mu sync.Mutex
	// mark is the number of permits that an instance takes at once when a window
	// starts; then it takes one with each sweep. The mark is the smaller of two
	// shares: a permit beyond it is one that the larger share allows.
	mark int64
	rest bool   // nobody takes more than the mark
	seen []seen // by member
}

// seen is what one instance has got.
type seen struct {
	start       time.Time // of the window of its latest permit
	taken       int64     // of that window
	first, last time.Time // when it got a permit beyond the mark, since that was set
}

// spend lets all instances take permits until what it returns is called.
func (l *lane) spend() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			l.sweep(ctx)
			<-tick.C
		}
	})
	return func() { cancel(); sweeping.Wait() }
}

func (l *lane) sweep(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, limiter := range l.limiters {
		s := &l.seen[i]
		if l.rest && s.taken >= l.mark && time.Since(s.start) < window {
			continue
		}
		if !s.take(ctx, limiter, 1) {
			continue
		}
		if s.taken < l.mark {
			s.take(ctx, limiter, l.mark-s.taken)
		}
		if s.taken > l.mark {
			s.last = time.Now()
			if s.first.IsZero() {
				s.first = s.last
			}
		}
	}
}

// take takes n permits, or none, and counts them.
func (s *seen) take(ctx context.Context, limiter *consumer.Limiter, n int64) bool {
	p, err := limiter.Take(ctx, n, 0)
	if err != nil {
		return false
	}
	if !p.Start().Equal(s.start) {
		s.start, s.taken = p.Start(), 0
	}
	s.taken += n
	return true
}

// look begins anew to look for permits beyond the share that each of n has of a
// total.
func (l *lane) look(permits int64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark, l.rest = (permits+int64(n)-1)/int64(n), false
	for i := range l.seen {
		l.seen[i].first, l.seen[i].last = time.Time{}, time.Time{}
	}
}

// leave lets all take their marks alone.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = true
}

// found returns when the earliest and when the latest instance first got a
// permit beyond the mark, when the last of all these permits was, and how many
// instances got one.
func (l *lane) found() (earliest, latest, last time.Time, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.seen {
		s := &l.seen[i]
		if s.first.IsZero() {
			continue
		}
		if n++; n == 1 || s.first.Before(earliest) {
			earliest = s.first
		}
		if s.first.After(latest) {
			latest = s.first
		}
		if s.last.After(last) {
			last = s.last
		}
	}
	return earliest, latest, last, n
}

// settle waits until every instance has its part of a total for n.
func (l *lane) settle(permits int64, n int) error {
	began := time.Now()
	for i, limiter := range l.limiters {
		for {
			st := limiter.Status()
			share := st.Shortest().Share
			if share == permits/int64(n) || share == permits/int64(n)+1 {
				break
			}
			if time.Since(began) > impatience {
				return fmt.Errorf("the share of instance %d is %d after %v, which is %s: %s; its view has %d, its newest proof is %v old",
					i, share, impatience, st.State, st.Problem, st.Instances, st.ProofAge)
			}
			wait(10 * time.Millisecond)
		}
	}
	return nil
}

// at waits for a part of a window, of the next one at the earliest, and returns
// the time.
func at(part time.Duration) time.Time {
	now := time.Now()
	wait(now.Truncate(window).Add(window + part).Sub(now))
	return time.Now()
}

// play takes a sample of everything; changes are made at a part of a window.
func (l *lane) play(part time.Duration) error {
	for _, step := range []func(time.Duration) error{l.joinAndGo(toClose), l.cutAndRaise, l.joinAndGo(toLeave), l.joinAndGo(toCrash)} {
		if err := step(part); err != nil {
			return err
		}
	}
	return nil
}

// joinAndGo lets one more instance come, and go in a way.
func (l *lane) joinAndGo(how kind) func(time.Duration) error {
	return func(part time.Duration) error {
		joins := toJoin
		l.look(total/2, l.size)
		l.leave() // all have some of their shares left
		if how == toLeave {
			joins = toBorrow
			l.look(total-total%int64(l.size), l.size) // all take their whole shares at once
			wait(2 * window)
		}
		wrote := l.wrote()
		began := at(part)
		client, err := l.dial()
		if err != nil {
			return err
		}
		defer client.Close()
		g, err := l.invite(client, l.provider)
		if err != nil {
			return err
		}
		for !g.limiters[0].TryAcquire() {
			if time.Since(began) > impatience {
				return fmt.Errorf("no permit %v after the join", impatience)
			}
			wait(sweepEvery)
		}
		l.took.add(joins, time.Since(began))
		if err := l.settle(total, l.size+1); err != nil {
			return err
		}
		l.took.addWrites(string(joins), l.wrote()-wrote)
		wrote = l.wrote()
		l.look(total, l.size+1)
		began = at(part)
		switch how {
		case toCrash: // without a way to etcd it cannot say that it goes
			_ = client.Close()
			_ = g.session.Close()
		case toLeave:
			if err := g.session.Shutdown(context.Background()); err != nil {
				return err
			}
		default:
			_ = g.session.Close()
		}
		for {
			_, latest, _, n := l.found()
			if n == l.size {
				l.took.add(how, latest.Sub(began))
				l.took.addWrites(string(how), l.wrote()-wrote)
				return l.settle(total, l.size)
			}
			if time.Since(began) > impatience {
				return fmt.Errorf("only %d of %d instances have their share back %v after the end of one", n, l.size, impatience)
			}
			wait(sweepEvery)
		}
	}
}

// wrote returns how often etcd has written the provider's keys up to now.
func (l *lane) wrote() int {
	l.fleetOf.mu.Lock()
	defer l.fleetOf.mu.Unlock()
	_, of, _ := strings.Cut(l.provider, "/")
	return l.writings[of]
}

// allSpent waits until every instance has got a permit beyond the mark.
func (l *lane) allSpent() error {
	for began := time.Now(); ; wait(sweepEvery) {
		_, _, _, n := l.found()
		if n == l.size {
			return nil
		}
		if time.Since(began) > impatience {
			return fmt.Errorf("only %d of %d instances have spent their shares after %v", n, l.size, impatience)
		}
	}
}

// cutAndRaise halves the limit and doubles it again.
func (l *lane) cutAndRaise(part time.Duration) error {
	l.look(total/2, l.size)
	if err := l.allSpent(); err != nil { // from now on all are beyond the mark in every window
		return err
	}
	began := at(part)
	if err := l.set(total / 2); err != nil {
		return err
	}
	for {
		_, _, last, _ := l.found()
		if time.Since(last) > 2*window {
			l.took.add(toCut, max(0, last.Sub(began)))
			break
		}
		if time.Since(began) > impatience {
			return fmt.Errorf("the old limit is in use %v after the cut", impatience)
		}
		wait(sweepEvery)
	}
	l.look(total/2, l.size)
	began = at(part)
	wrote := l.wrote()
	if err := l.set(total); err != nil {
		return err
	}
	if err := l.allSpent(); err != nil {
		return err
	}
	l.took.addWrites(string(toRaise), l.wrote()-wrote)
	earliest, latest, _, _ := l.found()
	l.took.add(toRaise, earliest.Sub(began))
	l.took.add(toSpend, latest.Sub(began))
	return l.settle(total, l.size)
}
