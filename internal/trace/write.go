package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
)

// The suffixes of the files: of all, and of those whose process was killed.
const (
	suffix       = ".trace"
	killedSuffix = ".killed" + suffix
)

// Killed says that a process of a run was killed, and is gone: its traces in the directory,
// if there are any, are whole though they do not end.
func Killed(dir string, pid int) error {
	files, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%d-*%s", pid, suffix)))
	for _, name := range files {
		if !strings.HasSuffix(name, killedSuffix) {
			err = errors.Join(err, os.Rename(name, strings.TrimSuffix(name, suffix)+killedSuffix))
		}
	}
	return err
}

// Writer writes the trace of all limiters of one process into one file. It is safe for
// concurrent use.
type Writer struct {
	now    func() int64 // true time
	failed func(error)  // told the first error; nothing is written after it

	mu      sync.Mutex
	file    *os.File
	number  int64
	streams int
	said    map[uint64]bool // sums of the views in the file
	bad     bool
}

// Prepare makes a directory for traces, in which there are none yet.
func Prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*"+suffix)); len(files) > 0 {
		return fmt.Errorf("%s has %d traces of another run: give an empty directory", dir, len(files))
	}
	return nil
}

// Create makes a file in a directory, which exists. The clocks of the run are ahead of the
// system's by so much. failed is called once, with the first error, under a lock.
func Create(dir string, ahead time.Duration, failed func(error)) (*Writer, error) {
	f, err := os.CreateTemp(dir, fmt.Sprintf("%d-*%s", os.Getpid(), suffix))
	if err != nil {
		return nil, err
	}
	w := &Writer{now: func() int64 { return time.Now().UnixNano() + int64(ahead) }, failed: failed, file: f, said: map[uint64]bool{}}
	w.write(&line{Kind: kindTrace, Version: Version})
	return w, nil
}

// Close ends the file, after all limiters were closed: of others the judge does not know what
// they issue later. Close of nil does nothing.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bad = true
	return w.file.Close()
}

func (w *Writer) write(l *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeLocked(l)
}

// writeLocked numbers and writes a line, at the present unless it has an instant.
func (w *Writer) writeLocked(l *line) {
	if w.bad {
		return
	}
	w.number++
	if l.Number = w.number; l.At == 0 {
		l.At = w.now()
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = w.file.Write(append(text, '\n'))
	}
	w.failLocked(err)
}

func (w *Writer) failLocked(err error) {
	if err != nil && !w.bad {
		w.bad = true
		w.failed(fmt.Errorf("trace: %w", err))
	}
}

// writeView writes a line of a view or change, whose content stands in the file once.
func (w *Writer) writeView(l *line, v *content) {
	text, err := json.Marshal(v)
	hash := fnv.New64a()
	hash.Write(text)
	l.Sum, l.Revision = hash.Sum64(), v.Revision
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(err)
	if !w.said[l.Sum] {
		w.said[l.Sum] = true
		w.writeLocked(&line{Kind: kindView, Sum: l.Sum, View: v})
	}
	w.writeLocked(l)
}

// Wrap returns a source for consumer.Open whose limiters write to w; the source itself if
// w is nil.
func (w *Writer) Wrap(s feed.Covered) feed.Covered {
	if w == nil {
		return s
	}
	return feed.Over[feed.Source](&source{feed.Inside(s), w})
}

type source struct {
	feed.Source
	w *Writer
}

// Subscribe implements feed.Source.
func (s *source) Subscribe(provider string, create func() feed.Sink) (feed.Sink, func() error, error) {
	got, leave, err := s.Source.Subscribe(provider, func() feed.Sink {
		s.w.mu.Lock()
		s.w.streams++
		t := &sink{Sink: create(), w: s.w, stream: s.w.streams, clock: s.Clock()}
		s.w.writeLocked(&line{Kind: kindOpen, Stream: t.stream, Provider: provider})
		s.w.mu.Unlock()
		if limiter, ok := t.Sink.(interface {
			Trace(func(string, []window.Use))
		}); ok {
			limiter.Trace(t.booked)
		}
		return t
	})
	if t, ok := got.(*sink); ok {
		got = t.Sink
	}
	return got, leave, err
}

// sink writes what it passes on to a limiter.
type sink struct {
	feed.Sink
	w      *Writer
	stream int
	clock  *clock.Clock
	last   []window.Use // as last told, under the gate's lock
}

// Reset implements feed.Sink.
func (s *sink) Reset(at clock.Instant, self string, v protocol.View) {
	s.w.writeView(&line{Kind: kindReset, Stream: s.stream, Self: self}, ofView(&v))
	s.Sink.Reset(at, self, v)
}

// Apply implements feed.Sink.
func (s *sink) Apply(at clock.Instant, c protocol.Change) {
	s.w.writeView(&line{Kind: kindApply, Stream: s.stream}, ofChange(&c))
	s.Sink.Apply(at, c)
}

// Prove implements feed.Sink.
func (s *sink) Prove(sent clock.Instant) {
	at := s.w.now()
	age := s.clock.Mono() - sent.Mono
	s.w.write(&line{Kind: kindProof, At: at, Stream: s.stream, Sent: at - age - age/protocol.DriftBound})
	s.Sink.Prove(sent)
}

// Close implements feed.Sink.
func (s *sink) Close() {
	s.Sink.Close()
	s.w.write(&line{Kind: kindClose, Stream: s.stream})
}

// booked writes a plan if it differs from the last. Keys are not traced.
func (s *sink) booked(key string, uses []window.Use) {
	if key != "" || slices.Equal(uses, s.last) {
		return
	}
	s.last = uses
	before := s.w.now()
	wall := s.clock.Wall()
	l := &line{Kind: kindPlan, Stream: s.stream, At: s.w.now()}
	l.Off = max(0, before-wall, wall-l.At)
	for _, u := range uses {
		l.Uses = append(l.Uses, wireUse{int64(u.Window.Length), u.Window.Index, u.Bound, u.Used, u.Borrowed})
	}
	s.w.write(l)
}
