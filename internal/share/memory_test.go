package share

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// heap returns the bytes of live objects.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAFloodOfChangesFillsNoMemory: instances with the longest names come and go,
// and totals change, faster than a history can remember. It begins anew, with share
// 0 until it has been complete for the settle time.
func TestAFloodOfChangesFillsNoMemory(t *testing.T) {
	p := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Second}}}.WithDefaults()
	var h History
	now := int64(time.Hour)
	h.Reset(now, "self", protocol.View{Revision: 1, Policy: &p, Instances: []protocol.Instance{{ID: "self"}}})
	before := heap()
	w := func() quota.Window { return quota.WindowAt(time.Second, now+int64(time.Second)) }
	now += int64(10 * time.Second)
	if b := h.bound(w(), now, 0, NotFrozen); b.Permits != 100 {
		t.Fatalf("share %d of 100", b.Permits)
	}
	revision, most, began := int64(1), int64(0), 0
	long := strings.Repeat("x", 240)
	for round := range 2000 {
		for _, here := range []bool{true, false} {
			revision++
			now += int64(time.Millisecond)
			c := protocol.Change{Revision: revision}
			for i := range 128 {
				id := fmt.Sprint(long, round, ".", i)
				if here {
					c.Put = append(c.Put, protocol.Instance{ID: id, Name: long[:protocol.MaxNameBytes]})
				} else {
					c.Deleted = append(c.Deleted, id)
				}
			}
			since := h.since
			h.Apply(now, c)
			if h.since != since {
				began++
				if b := h.bound(w(), now, 0, NotFrozen); b.Permits != 0 || b.Reason != ReasonJoining {
					t.Fatalf("began anew with a share of %d, %v", b.Permits, b.Reason)
				}
			}
		}
		if round%100 == 99 {
			most = max(most, heap()-before)
		}
	}
	if began == 0 {
		t.Error("it never began anew: the flood was too small")
	}
	if most > 2*MaxHistory {
		t.Errorf("the history takes %d MB", most>>20)
	}
	t.Logf("at most %d MB; began anew %d times", most>>20, began)
	now += int64(10 * time.Second)
	if b := h.bound(w(), now, 0, NotFrozen); b.Permits != 100 {
		t.Errorf("share %d of 100 when it is over", b.Permits)
	}
	h.Prune(now)
	if h.bytes != 0 || len(h.log) != 0 {
		t.Errorf("%d bytes are counted for %d changes", h.bytes, len(h.log))
	}
	runtime.KeepAlive(&h)
}

// A throttle changes no total: it takes no more memory than a change of nothing, however often
// it is written.
func TestAsksFillNoHistory(t *testing.T) {
	var h History
	p := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Second}}}.WithDefaults()
	h.Reset(0, "a", protocol.View{Revision: 1, Policy: &p})
	for revision, throttle := range []*protocol.Throttle{{Asks: []protocol.Ask{{By: "a"}}}, nil, {}} {
		before := h.bytes
		h.Apply(int64(revision), protocol.Change{Revision: int64(2 + revision), Throttle: throttle, ThrottleDeleted: throttle == nil})
		if n := h.bytes - before; n > 1000 {
			t.Errorf("%+v takes %d bytes", throttle, n)
		}
	}
}
