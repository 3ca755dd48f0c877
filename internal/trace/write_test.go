package trace

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// limiter is a sink that can be traced.
type limiter struct {
	feed.Sink
	booked func(string, []window.Use)
	heard  []string
}

func (l *limiter) Trace(booked func(string, []window.Use)) { l.booked = booked }
func (l *limiter) Reset(clock.Instant, string, protocol.View) {
	l.heard = append(l.heard, "reset")
}
func (l *limiter) Apply(clock.Instant, protocol.Change) { l.heard = append(l.heard, "apply") }
func (l *limiter) Prove(clock.Instant)                  { l.heard = append(l.heard, "prove") }
func (l *limiter) Close()                               { l.heard = append(l.heard, "close") }

// only is a source with one sink.
type only struct {
	clock *clock.Clock
	sink  feed.Sink
}

func (o *only) Clock() *clock.Clock { return o.clock }
func (o *only) Subscribe(_ string, create func() feed.Sink) (feed.Sink, func() error, error) {
	if o.sink == nil {
		o.sink = create()
	}
	return o.sink, func() error { return nil }, nil
}

// What a limiter is told and books is in its file, and comes out as it was; the limiter is
// told all the same.
func TestTheWriter(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	w, err := Create(dir, time.Hour, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	source, inner := &only{clock: clock.New()}, &limiter{}
	for range 2 { // two limiters of one provider share a sink
		got, _, err := feed.Inside(w.Wrap(feed.Over[feed.Source](source))).Subscribe("p", func() feed.Sink { return inner })
		if err != nil || got != feed.Sink(inner) {
			t.Fatalf("Subscribe returns %v, %v", got, err)
		}
	}
	p := *policy(70)
	p.Next = []quota.LimitChange{{From: time.Unix(2e9, 0).UTC(), Limits: p.Limits}}
	view := protocol.View{Revision: 4, Policy: &p, PolicyRevision: 3, Instances: instances("b", "a")}
	change := protocol.Change{Revision: 6, ThrottleDeleted: true, Deleted: []string{"b"}, Put: instances("c")}
	sent := source.clock.Now()
	s := source.sink
	s.Reset(sent, "a", view)
	s.Apply(sent, change)
	s.Prove(sent)
	uses := []window.Use{{Window: quota.Window{Length: time.Second, Index: 7}, Bound: 30, Used: 20, Borrowed: 5}}
	inner.booked("", uses)
	inner.booked("", uses) // nothing new
	inner.booked("a key", []window.Use{{Window: uses[0].Window, Bound: 1, Used: 1}})
	s.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(inner.heard, []string{"reset", "apply", "prove", "close"}) {
		t.Error("the limiter heard", inner.heard)
	}
	if Prepare(dir) == nil {
		t.Error("Prepare takes a directory with traces")
	}
	r, err := ReadDir(dir)
	if err != nil || len(r.streams) != 1 {
		t.Fatal(err, r)
	}
	line, err := r.timelineOf(r.streams)
	if err != nil || len(line.Views) != 2 {
		t.Fatal(err, line)
	}
	want := protocol.View{Revision: 6, Policy: &p, PolicyRevision: 3, Instances: instances("a", "c")}
	if got := line.Views[1].View; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	got := r.streams[0]
	if u := got.uses[uses[0].Window]; len(got.uses) != 1 || u.bound != 25 || u.issued != 15 || u.self != "a" || u.revision != 6 {
		t.Errorf("booked %+v", u)
	}
	// A question was sent before its answer was written, by the run's clock.
	if x := got.proofs[0]; !got.closed || x.sent > x.at || x.at-x.sent > int64(time.Minute) || line.Views[1].By < time.Now().Add(30*time.Minute).UnixNano() {
		t.Errorf("proof %+v, view 6 by %d", x, line.Views[1].By)
	}
}

// The trace of a living process that is cut in half makes later windows undecided. That of a
// process that was killed does not, once that is said.
func TestACutTrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tapes := two(t, 14, func(_ int, p *tape, at int64) {
		if at%second == 0 && at >= 4*second {
			p.plan(at, 50, 50)
		}
	})
	for i, p := range tapes {
		text := p.text()
		if i == 0 {
			text = text[:len(text)*3/4] // of 14 s
		} else {
			p.close(14 * second)
			text = p.text()
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d-5.trace", 70+i)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := JudgeDir(dir); got.OK() || got.Over > 0 || got.Held != 6 || got.Undecided["a trace ends before its limiter was closed"] != 4 {
		t.Error(got)
	}
	for range 2 { // the second time there is nothing left to say
		if err := errors.Join(Killed(dir, 7), Killed(dir, 70)); err != nil {
			t.Fatal(err)
		}
	}
	if got := JudgeDir(dir); !got.OK() || got.Held != 10 {
		t.Error(got)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "70-5.killed.trace")); len(files) != 1 {
		t.Error(err, "the file has another name")
	}
}

// A file that cannot be written is told, once.
func TestTheWriterFails(t *testing.T) {
	t.Parallel()
	failed := 0
	w, err := Create(t.TempDir(), 0, func(error) { failed++ })
	if err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	w.write(&line{Kind: kindClose})
	w.write(&line{Kind: kindClose})
	if failed != 1 {
		t.Errorf("%d failures are told", failed)
	}
	if _, err := Create(filepath.Join(t.TempDir(), "none"), 0, nil); !os.IsNotExist(err) {
		t.Errorf("no directory: %v", err)
	}
}

// A trace that is torn at any byte is a whole one with less in it, or has no whole line.
func TestATornTrace(t *testing.T) {
	t.Parallel()
	text := two(t, 2, func(_ int, p *tape, at int64) { p.plan(at, 50, at/(100*ms)) })[0].text()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := r.IntN(len(text))
		run := &Run{}
		if err := run.Add(&torn{text: text[:n]}, true); err != nil && n > 200 {
			t.Fatalf("torn at %d: %v", n, err)
		}
	}
}

// torn reads a text in small pieces.
type torn struct{ text []byte }

func (r *torn) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), 7)], r.text)
	r.text = r.text[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
