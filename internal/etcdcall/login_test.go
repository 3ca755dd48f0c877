package etcdcall

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// After a refused password a call goes out after 1 s, and later ones after ever longer pauses, up to 30 s, whatever becomes
// of them. Those between fail at once, by the same error. When a call succeeds all go out, and after a stream the pauses
// begin anew.
func TestLoginsAfterARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Logins
		sent, answer := 0, rpctypes.ErrAuthFailed
		call := func() (any, error) { sent++; return nil, answer }
		// during returns how many of the calls, ten in a second, went out.
		during := func(d time.Duration) int {
			before := sent
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if _, err := Held(&l, call); answer != nil && !errors.Is(Kind(err), cause.ErrLogin) && !errors.Is(Kind(err), ErrUnreachable) {
					t.Fatal(err)
				}
			}
			return sent - before
		}
		if n := during(15 * time.Second); n < 4 || n > 6 { // the first, and after at most 1, 3, 7 and 15 s, at least half of that
			t.Errorf("%d calls in the first 15 s", n)
		}
		answer = context.DeadlineExceeded // an etcd that many passwords keep busy
		if n := during(5 * time.Minute); n < 10 || n > 24 {
			t.Errorf("%d calls in 5 minutes", n)
		}
		answer = nil
		if n := during(time.Minute); n < 300 {
			t.Errorf("%d of 600 calls once it answers", n)
		}
		answer = rpctypes.ErrAuthFailed // of a stream; the call's token was good
		if n := during(time.Minute); n < 2 || n > 5 {
			t.Errorf("%d calls in a minute, though no stream was opened", n)
		}
		time.Sleep(lastPause)
		answer = nil
		if _, err := HeldStream(&l, call); err != nil {
			t.Fatal(err)
		}
		answer = rpctypes.ErrAuthFailed
		if n := during(15 * time.Second); n < 4 || n > 6 {
			t.Errorf("%d calls in 15 s after a stream", n)
		}
	})
}

// Only a refused login holds calls back, and any other answer of etcd to the call that goes out then ends that.
func TestWhatHoldsCallsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Logins
		answer := func(err error) error {
			_, err = Held(&l, func() (any, error) { return nil, err })
			return err
		}
		for _, err := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, context.DeadlineExceeded, context.Canceled} {
			if _ = answer(err); answer(nil) != nil {
				t.Errorf("%v holds calls back", err)
			}
		}
		if _ = answer(rpctypes.ErrAuthFailed); answer(nil) == nil {
			t.Error("a refused password holds nothing back")
		}
		time.Sleep(firstPause)
		if _ = answer(rpctypes.ErrLeaseNotFound); answer(nil) != nil {
			t.Error("held back after an answer")
		}
	})
}
