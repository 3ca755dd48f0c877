package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
)

// reader is a page: it begins anew at a reset, and whenever it comes back.
type reader struct {
	newest int64
	points []int64
	state  int64
}

func (r *reader) take(m message) {
	if m.Reset {
		r.points = nil
	}
	for _, p := range m.Points {
		r.points = append(r.points, p.At)
		r.newest = p.At
	}
	if m.State != nil {
		r.state = m.State.Now
	}
}

// TestNothingIsDoubledOrMissed: however seldom a page reads, and whenever its
// connection breaks, it ends with the newest points, each once and in order, and
// with the newest state.
func TestNothingIsDoubledOrMissed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		topic, r, n := &topic{changed: make(chan struct{})}, &reader{}, int64(0)
		var points []live.Point
		read := func() {
			m, _ := topic.read(r.newest)
			r.take(m)
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{0, 1, 2, live.PointsAtMost, 2 * live.PointsAtMost}).Draw(t, "points") {
					n++
					points = append(points, live.Point{At: n})
				}
				points = points[max(0, len(points)-live.PointsAtMost):]
				topic.send(points, &state{Now: n})
			},
			"read":       func(*rapid.T) { read() },
			"come again": func(*rapid.T) { r.newest = 0 },
			"": func(t *rapid.T) {
				read()
				if r.state != n || len(r.points) < int(min(n, live.PointsAtMost)) {
					t.Fatalf("%d points and state %d of %d", len(r.points), r.state, n)
				}
				for i, at := range r.points {
					if want := n - int64(len(r.points)-1-i); at != want {
						t.Fatalf("point %d is %d, want %d", i, at, want)
					}
				}
			},
		})
	})
}

// TestServe: a line for each message, until the server ends.
func TestServe(t *testing.T) {
	t.Parallel()
	topic := &topic{changed: make(chan struct{})}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { topic.serve(ctx, w) }))
	defer server.Close()
	topic.send([]live.Point{{At: 1}}, &state{Now: 1})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	r, lines := &reader{}, bufio.NewScanner(answer.Body)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		r.take(m)
		if r.state == 1 {
			topic.send([]live.Point{{At: 1}, {At: 2}}, &state{Now: 2})
		} else {
			end()
		}
	}
	if len(r.points) != 2 || r.state != 2 {
		t.Errorf("the stream ended with %v", r.points)
	}
}

// TestTheOldestStreamEnds: a page that opens streams without end holds so many at most.
func TestTheOldestStreamEnds(t *testing.T) {
	t.Parallel()
	f := newFollower(nil, slog.New(slog.DiscardHandler))
	var all []context.Context
	var ends []func()
	for range streamsAtMost + 3 {
		_, ctx, end, err := f.open(t.Context(), overview)
		if err != nil {
			t.Fatal(err)
		}
		all, ends = append(all, ctx), append(ends, end)
	}
	for i, ctx := range all {
		if ended := ctx.Err() != nil; ended != (i < 3) {
			t.Errorf("stream %d: ended %v", i, ended)
		}
	}
	last := len(all) - 1
	for _, end := range ends[:last] {
		end()
	}
	if all[last].Err() != nil || len(f.streams) != 1 {
		t.Errorf("%d are left", len(f.streams))
	}
	if f.end(); all[last].Err() == nil {
		t.Error("a stream outlives the server")
	}
}

// TestNobodyFillsTheTopics: they are bounded, and one without readers makes room.
func TestNobodyFillsTheTopics(t *testing.T) {
	t.Parallel()
	f := newFollower(nil, slog.New(slog.DiscardHandler))
	for i := range 3 * maxOpened {
		_, _, done, err := f.open(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		done()
	}
	var ends []func()
	for i := range maxOpened {
		_, _, done, err := f.open(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	if _, _, _, err := f.open(t.Context(), "one more"); !errors.Is(err, errTooMany) {
		t.Errorf("one more: %v", err)
	}
	if _, _, done, err := f.open(t.Context(), "0"); err != nil {
		t.Errorf("a second reader: %v", err)
	} else {
		done()
	}
	ends[0]()
	if _, _, _, err := f.open(t.Context(), "one more"); err != nil {
		t.Errorf("after one has gone: %v", err)
	}
}

// TestSharesBeyondTheTotalAreLogged: when they begin to sum to too much, once.
func TestSharesBeyondTheTotalAreLogged(t *testing.T) {
	var log strings.Builder
	f := newFollower(nil, slog.New(slog.NewTextHandler(&log, nil)))
	for _, beyond := range []string{"", "shares sum to 73", "shares sum to 74", "", "shares sum to 75"} {
		f.tell("p", beyond)
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `level=ERROR msg="shares sum to 73" provider=p`) || !strings.Contains(got, "sum to 75") {
		t.Errorf("logged:\n%s", got)
	}
}
