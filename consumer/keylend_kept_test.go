package consumer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// A key that has asked for a loan is kept until the window ends, also before the loan has come:
// its calls find the permits. Then it is forgotten. Both instances count the loan.
func TestAKeyThatHasAskedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 10, 1, quota.OutageHold, "a", "b")
		l := all["a"]
		var key Key
		for n := 0; ; n++ {
			key = l.Key(fmt.Sprint("key-", n))
			if _, self := key.Owner(); !self {
				break
			}
		}
		sweep := func() {
			s, _ := l.core.segmentNow()
			l.core.keys.swept = nil
			l.core.keys.sweep(s.Keys)
		}
		if key.TryAcquire() {
			t.Fatal("a permit of another owner comes from nowhere")
		}
		synctest.Wait() // it has asked, and the loan is under way
		for _, when := range []string{"before the loan has come", "after that"} {
			sweep()
			time.Sleep(100 * time.Millisecond)
			if l.core.keys.known(key.state.key.Name) == nil {
				t.Fatalf("forgotten %s", when)
			}
		}
		if !key.TryAcquire() {
			t.Error("its calls do not find the loan")
		}
		guest, host := l.Status(), all["b"].Status()
		if guest.KeyAsks != 1 || guest.KeysBorrowed != 1 || guest.KeysLent != 0 || guest.Borrowed+guest.Asks != 0 {
			t.Errorf("asked %d times, borrowed %d, lent %d; want 1, 1 and 0, of keys only", guest.KeyAsks, guest.KeysBorrowed, guest.KeysLent)
		}
		if host.KeyAsks != 0 || host.KeysBorrowed != 0 || host.KeysLent != 1 || host.Lent != 0 {
			t.Errorf("the host asked %d times, borrowed %d, lent %d; want 0, 0 and 1, of keys only", host.KeyAsks, host.KeysBorrowed, host.KeysLent)
		}
		time.Sleep(2 * time.Second)
		m.prove()
		if sweep(); l.core.keys.known(key.state.key.Name) != nil {
			t.Error("it is never forgotten")
		}
	})
}
