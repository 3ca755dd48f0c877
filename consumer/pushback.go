package consumer

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// PauseUntil makes this instance issue nothing until the given time. A later time extends
// the pause; an earlier one does not shorten it, because answers arrive in any order. Resume
// ends it. For a provider's request for a pause, use Throttled.
func (l *Limiter) PauseUntil(until time.Time) {
	k, d := l.core, time.Until(until)
	if d <= 0 {
		return
	}
	k.mu.Lock()
	k.mu.pauses.own.extend(after(k.clock.Mono(), d), ownPause)
	k.obey(false)
}

// Resume ends the pauses of this instance, by PauseUntil and by Throttled. It does not end a
// pause of the fleet; `quota-admin resume` does.
func (l *Limiter) Resume() {
	k := l.core
	k.mu.Lock()
	k.mu.pauses.own, k.mu.pauses.provider = pause{}, pause{}
	k.obey(false)
}

// Throttled reports that the provider refused a call (429) and asked for a pause of
// retryAfter, or 0 or less if it named none. why is for operators, as in "429 from
// api.example.com". Throttled does not block.
//
// This instance issues nothing during the pause, at most for the policy's BackoffMax.
// With quota.BackoffFleet all others pause too when two instances were asked within 2 s,
// in fleets of up to 3 one, or when more than a tenth of this instance's calls are
// refused. Such refusals without retryAfter cause a pause of one second.
//
// After the pause shares of windows of up to a second grow from a third to the whole in 2 s; with a
// policy's WarmUp, those of all windows do in that time.
func (l *Limiter) Throttled(retryAfter time.Duration, why string) {
	k := l.core
	issued := k.gate.Issued(k.clock.Now())
	k.mu.Lock()
	now := k.clock.Mono()
	policy, _ := k.mu.planner.Policy()
	alone := k.mu.rate.Add(now, issued)
	if retryAfter <= 0 {
		if !alone {
			k.mu.Unlock()
			return
		}
		retryAfter = unnamedPause
	}
	provider := &k.mu.pauses.provider
	provider.extend(after(now, min(retryAfter, protocol.MaxBackoff(policy))), why)
	if policy != nil && policy.Backoff == quota.BackoffFleet {
		select {
		case <-k.asks: // the newest counts
		default:
		}
		k.asks <- protocol.Ask{At: k.wall(now), Until: k.wall(provider.until), Why: why, Alone: alone}
		(*k.need.Load())()
	}
	k.obey(true)
}

// throttleLocked obeys the newest view's throttle, and reports whether a pause has changed.
// One that an operator has deleted ends all pauses that the provider has asked for.
func (k *core) throttleLocked(t *protocol.Throttle) (changed bool) {
	now, p := k.clock.Mono(), &k.mu.planner
	wall := k.clock.WallAt(now)
	if t == nil && k.mu.throttle != nil {
		k.mu.pauses.provider, k.mu.pauses.fleet = pause{}, pause{}
	}
	k.mu.throttle = t
	policy, _ := p.Policy()
	if a := t.Pause(policy, p.Instances(), p.Has, time.Unix(0, wall)); !a.Until.IsZero() {
		k.mu.pauses.fleet.extend(after(now, time.Duration(a.Until.UnixNano()-wall)), a.Why)
	}
	return k.obeyLocked(true)
}

// Pushed implements feed.Sink.
func (k *core) Pushed() <-chan protocol.Ask { return k.asks }

// obey has the longest pause obeyed. It releases mu, as news does.
func (k *core) obey(warm bool) {
	if k.obeyLocked(warm) {
		k.news(true)
	} else {
		k.mu.Unlock()
	}
}

// obeyLocked has plans obey the longest pause, or its early end; with warm, a warm-up
// follows. It reports whether they are others.
func (k *core) obeyLocked(warm bool) (changed bool) {
	until, was, now := k.mu.pauses.longest().until, k.mu.planner.PausedUntil(), k.clock.Mono()
	if until == was || max(until, was) <= now {
		return false
	}
	k.mu.planner.PauseUntil(max(until, now), warm)
	return true
}

// pause is until when nothing is issued, in monotonic time, and why.
type pause struct {
	until int64
	why   string
}

func (p *pause) extend(until int64, why string) {
	if until > p.until {
		*p = pause{until, why}
	}
}

// ownPause is the cause of a pause by PauseUntil.
const ownPause = "this program paused the limiter"

// pauseLocked says who asked for the longest pause, and until when it lasts.
func (k *core) pauseLocked() string {
	pause := k.mu.pauses.longest()
	return pauseText(k.provider, pause.why, k.wall(pause.until))
}

func pauseText(provider, why string, until time.Time) string {
	if why == ownPause {
		return cause.OwnPause(until)
	}
	return cause.Pause(provider, why, until)
}

// pauses are the reasons to issue nothing: the application asked for it, the provider
// asked this instance, or it asked the fleet.
type pauses struct{ own, provider, fleet pause }

func (p *pauses) longest() pause {
	longest := p.own
	longest.extend(p.provider.until, p.provider.why)
	longest.extend(p.fleet.until, p.fleet.why)
	return longest
}

// problem is Problem, or else the pause, in one sentence.
func (s *Status) problem() string {
	switch {
	case s.Problem != "" || s.PausedUntil.IsZero():
		return s.Problem
	case s.State != quota.StatePausing:
		return cause.ShadowPause(s.PauseReason, s.PausedUntil)
	}
	return pauseText(s.Provider, s.PauseReason, s.PausedUntil)
}

// unnamedPause is for a provider that refuses calls and asks for no pause.
const unnamedPause = time.Second
