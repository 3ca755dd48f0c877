package sse

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reader is a browser: it remembers the last number, and begins anew at a reset.
type reader struct {
	last   string
	points []string
	state  string
}

func (r *reader) take(frame string) {
	var event, data string
	for line := range strings.SplitSeq(strings.TrimSpace(frame), "\n") {
		switch name, value, _ := strings.Cut(line, ": "); name {
		case "event":
			event = value
		case "id":
			r.last = value
		case "data":
			data = value
		}
	}
	switch event {
	case "reset":
		r.points = nil
	case "point":
		r.points = append(r.points, data)
	case "state":
		r.state = data
	}
}

// Whenever connections break, and whenever the server is another one, a reader
// ends with the newest points, each once and in order, and the newest state.
func TestNothingIsDoubledOrMissed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(1, 8).Draw(t, "keep")
		topic := NewTopic(keep)
		var all []string // of this topic
		r := &reader{}
		at := cursor{}
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"point": func(*rapid.T) {
				n++
				all = append(all, fmt.Sprint(n))
				topic.Point([]byte(all[len(all)-1]))
			},
			"state": func(*rapid.T) {
				n++
				topic.State(fmt.Append(nil, n))
			},
			"read part": func(t *rapid.T) {
				frames, after, _ := topic.read(at)
				k := rapid.IntRange(0, len(frames)).Draw(t, "frames that arrive")
				for _, f := range frames[:k] {
					r.take(string(f))
				}
				if at = after; k < len(frames) { // the connection broke
					at = topic.resume(r.last)
				}
			},
			"another server": func(*rapid.T) {
				topic, all = NewTopic(keep), nil
				at = topic.resume(r.last)
			},
			"": func(t *rapid.T) {
				frames, after, _ := topic.read(at)
				for _, f := range frames {
					r.take(string(f))
				}
				at = after
				if len(r.points) < min(keep, len(all)) || !slices.Equal(r.points, all[len(all)-len(r.points):]) {
					t.Fatalf("the reader has %v of %v", r.points, all)
				}
			},
		})
	})
}

// A stream ends with the server, and says what is needed to come back.
func TestServe(t *testing.T) {
	t.Parallel()
	topic := NewTopic(3)
	topic.Point([]byte(`{"t":1}`))
	topic.State([]byte(`{"n":1}`))
	ends := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { topic.Serve(w, r, ends) }))
	defer server.Close()
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	r, lines, frame := &reader{}, bufio.NewScanner(answer.Body), ""
	for lines.Scan() {
		if line := lines.Text(); line != "" {
			frame += line + "\n"
			continue
		}
		r.take(frame)
		frame = ""
		switch {
		case r.state == `{"n":1}` && len(r.points) == 1:
			topic.Point([]byte(`{"t":2}`))
			r.state = "waits"
		case r.state == "waits" && len(r.points) == 2:
			close(ends)
		}
	}
	if len(r.points) != 2 || r.last != topic.epoch+".2" {
		t.Errorf("the stream ended with %v after %q", r.points, r.last)
	}
}
