package consumer

import "time"

// Stated reports what the provider says is left of a long limit, one of more than a minute, and until
// when: as GitHub does by X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset. Then the fleet
// issues no more than that until then, although others use the same account. It is written into etcd if
// it is lower than what the fleet counts by over a hundredth of the limit, or if nothing is left. A higher
// rest changes nothing, since answers come out of order, nor does one of a time that is over.
//
// limit is the provider's limit of which that is left, 0 if it does not say. It tells which limit of the policy
// is meant: the one of so many permits. If there is none, for example where the policy has less than the provider
// allows, it is the shortest that may last until then. It is never a limit in flight. Permits that instances have
// in hand, and calls on their way, come on top: the provider does not know of these yet.
//
// If the policy's limit changes as the provider's does, what others have used stays used: as much more or less is
// left at once as the limit is larger or smaller. As long as it is smaller than the provider's, a change gives
// nothing beyond left, and with limit 0 none does: say 0 for a pause, such as Retry-After. A higher rest counts if
// it is of the policy's limit, and the one before was of another, until the same time within a minute.
//
// httplimit.Transport.Stated reads it from responses. Stated does not block, and is best effort: etcd is
// told with the next permits that are taken, or within a second.
func (l *Limiter) Stated(limit, left int64, until time.Time) {
	k := l.core
	k.gate.States(k.clock.Now(), limit, max(0, left), until.UnixNano())
}

// Stated is Limiter.Stated for the limits of the key, if that is in use.
func (y Key) Stated(limit, left int64, until time.Time) {
	k := y.limiter.core
	state, s, now := k.keys.lock(k, y.state.key.Name)
	if state == nil {
		return
	}
	defer state.mu.Unlock()
	if s.Keys != nil && state.use.States(limit, max(0, left), until.UnixNano(), now) {
		k.keys.funds.want(k, state, true)
	}
}
