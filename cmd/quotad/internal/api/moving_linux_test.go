package api

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/told"
	"github.com/quotient-limiter/quotient/quota"
)

// A quotad that gives way closes connections that are idle, and refuses calls that wait: they ask the other one at once.
// It still answers whoever comes. One that is alone goes on, but keeps no connection.
func TestClientsMoveToTheOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotad.sock")
	limits, err := quota.ParseLimits("2 inflight hold=10m")
	if err != nil {
		t.Fatal(err)
	}
	next := func() *Server {
		return listening(t, consumer.Fixed(quota.Policy{Limits: limits}), Flags{Group: new(string), socket: path, limits: roomy})
	}
	const call = `{"provider":"p","max_wait":60}`
	answers := func(c caller, want int, says string) {
		t.Helper()
		if status, body := c.answer(t); status != want || !strings.Contains(body, says) {
			t.Errorf("%d %s, want %d %s", status, body, want, says)
		}
	}
	ended := func(c caller) {
		t.Helper()
		if _, err := c.r.ReadByte(); err != io.EOF {
			t.Errorf("the connection is kept: %v", err)
		}
	}
	first := next()
	idle, waits := dial(t, path), dial(t, path)
	for _, c := range []caller{idle, waits} {
		c.send(t, "/v1/acquire", call)
		answers(c, 200, "permits")
	}
	waits.send(t, "/v1/acquire", call)
	await.Until(t, "a call waits", func() bool { return waiting(first) == 1 })
	if another, err := first.GiveWay(); another || err != nil {
		t.Errorf("another %v, %v", another, err)
	}
	ended(idle)
	if waiting(first) != 1 {
		t.Error("the call that waits is sent away, though there is no other quotad")
	}

	second := next()
	if another, err := second.GiveWay(); !another || err != nil {
		t.Errorf("another %v, %v", another, err)
	}
	late := dial(t, path)
	late.send(t, "/v1/acquire", `{"provider":"p"}`)
	answers(late, 429, "are taken") // of the first
	ended(late)
	if another, err := first.GiveWay(); !another || err != nil {
		t.Errorf("another %v, %v", another, err)
	}
	answers(waits, 503, `"detail":"another quotad serves this socket from now on: try again","retry_after":0.05}`)
	ended(waits)
	last := dial(t, path) // of the second
	for range 2 {
		last.send(t, "/v1/acquire", call)
		answers(last, 200, "permits")
		last = dial(t, path)
	}
}

// A quotad whose share of a provider has gone to others while it still runs says that it is stopping.
func TestAShareThatHasGone(t *testing.T) {
	source := told.New()
	s := serverOf(t, feed.Over[feed.Source](source), roomy)
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Second}}}
	source.Tell(&policy, time.Hour)
	source.Prove()
	source.Sink.Apply(source.Clock().Now(), protocol.Change{Revision: 41, Put: []protocol.Instance{{ID: "w.1.1", Until: time.Now()}}})
	one := newProcess(t, s, "one")
	await.Until(t, "its share is gone", func() bool {
		w := one.post("/v1/acquire", `{"provider":"p"}`)
		return w.Code == 503 && strings.Contains(w.Body.String(), `"detail":"quotad is stopping: try again","retry_after":1}`)
	})
}
