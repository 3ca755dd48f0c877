package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
)

// The provider counts what it is told of permits, and nothing of strangers.
func TestTheProviderCountsPermits(t *testing.T) {
	hour := time.Hour // no request is on the edge of its window, but in 1 of so many runs
	p, err := StartProvider(load.Sheet{Until: time.Now().Add(hour).UnixNano(), Lengths: []time.Duration{hour}}, "sesame", func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	s := newSender(p.Address, "sesame")
	past := int64(5 * hour)
	s.send(3, load.Request{Start: past, Asked: past})                  // late
	s.send(2, load.Request{Start: past, Asked: time.Now().UnixNano()}) // for a window that was over
	s.send(1, load.Request{Start: time.Now().UnixNano(), Asked: past}) // of this window
	var sent Ended
	s.end(&sent)
	if sent.Sent != 6 || sent.Lost != 0 {
		t.Errorf("%+v", sent)
	}
	stranger := newSender(p.Address, "")
	stranger.send(5, load.Request{Start: time.Now().UnixNano(), Asked: past})
	var refused Ended
	stranger.end(&refused)
	if refused.Sent != 0 || refused.Lost != 5 || !strings.Contains(refused.Problem, "403") {
		t.Errorf("strangers: %+v", refused)
	}
	counts := p.Close()
	var arrived, late int64
	for _, c := range counts[hour] {
		arrived, late = arrived+c.Issued, late+c.Offered
	}
	if arrived != 6 || late != 3 {
		t.Errorf("%d arrived, %d late", arrived, late)
	}
}
