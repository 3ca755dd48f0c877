package consumer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// A key that has asked for a loan is kept until the window ends, also before the loan has come:
// its calls find the permits. Then it is forgotten.
func TestAKeyThatHasAskedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := keyMarket(t, 10, 1, quota.OutageHold, "a", "b")
		l := all["a"]
		key := l.Key("")
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
		time.Sleep(2 * time.Second)
		m.prove()
		if sweep(); l.core.keys.known(key.state.key.Name) != nil {
			t.Error("it is never forgotten")
		}
	})
}
