package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/quotient-limiter/quotient/quota"
)

// Bounds of what is read.
const (
	maxFiles = 10_000
	maxLine  = 32 << 20
)

// Run is what the traces of a run say. It grows by Add, and Judge decides on it.
type Run struct {
	streams  []*stream
	contents map[uint64]*content // by sum
}

// stream is one limiter of a process.
type stream struct {
	provider string
	self     string // the incarnation; the latest, if there were several
	closed   bool
	cut      int64 // when the trace of a living process ends, which says no more; 0: it does not
	sights   []sight
	proofs   []proof
	uses     map[quota.Window]*use
	running  []quota.Window // of the latest plan
}

// sight is a view that a limiter has from an instant on. before is the revision of the
// view that it replaces, 0 for the beginning of a history.
type sight struct {
	at, revision, before int64
	self                 string
	sum                  uint64
}

// proof says at the instant at that the newest view, that of a sight, had everything that
// was committed before sent.
type proof struct {
	at, sent int64
	sight    int
}

// use is what a limiter has issued of one window.
type use struct {
	self          string
	bound, issued int64 // without what others have lent it
	revision      int64 // of the newest view when it was last booked
	off           int64 // of its clock, at least and at most while it booked
}

// ReadDir reads all traces in a directory.
func ReadDir(dir string) (*Run, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 || len(files) > maxFiles {
		return nil, fmt.Errorf("%s has %d files *%s; from 1 to %d can be judged", dir, len(files), suffix, maxFiles)
	}
	r := &Run{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = r.Add(f, strings.HasSuffix(name, killedSuffix))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
	}
	return r, nil
}

// Add reads one trace. killed says that its process was killed: then it told all that its
// limiters could still issue, but for a last line that does not end, which is left out. The
// trace of any other process says nothing after its end of a limiter that was not closed.
func (r *Run) Add(from io.Reader, killed bool) error {
	if r.contents == nil {
		r.contents = map[uint64]*content{}
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	lines.Split(wholeLines)
	streams, n, last := map[int]*stream{}, int64(0), int64(0)
	for lines.Scan() {
		n++
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("line %d is no line of a trace: %w", n, err)
		}
		if l.Number != n {
			return fmt.Errorf("line %d has the number %d: lines are missing", n, l.Number)
		}
		if err := r.take(&l, streams); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		last = max(last, l.At)
	}
	for _, s := range streams {
		if !s.closed && !killed {
			s.cut = last
		}
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("line %d is longer than %d bytes", n+1, maxLine)
	case err == nil && n == 0:
		return errors.New("it has no whole line")
	}
	return err
}

// wholeLines is bufio.ScanLines without a last line that does not end.
func wholeLines(data []byte, _ bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

func (r *Run) take(l *line, streams map[int]*stream) error {
	switch {
	case (l.Number == 1) != (l.Kind == kindTrace):
		return fmt.Errorf("the kind %q is not expected here", l.Kind)
	case l.Kind == kindTrace && l.Version != Version:
		return fmt.Errorf("version %d is not the one this version knows, %d", l.Version, Version)
	case l.Kind == kindTrace:
		return nil
	case l.Kind == kindView && l.View != nil:
		r.contents[l.Sum] = l.View
		return l.View.complete()
	case l.Kind == kindOpen && streams[l.Stream] == nil:
		s := &stream{provider: l.Provider, uses: map[quota.Window]*use{}}
		streams[l.Stream], r.streams = s, append(r.streams, s)
		return nil
	}
	s := streams[l.Stream]
	if s == nil || s.closed {
		return fmt.Errorf("stream %d is not open", l.Stream)
	}
	switch l.Kind {
	case kindReset, kindApply:
		if v := r.contents[l.Sum]; v == nil || v.Revision != l.Revision {
			return fmt.Errorf("the content of view %d is missing", l.Revision)
		}
		next := sight{at: l.At, revision: l.Revision, sum: l.Sum, self: s.self}
		if l.Kind == kindReset {
			s.self, next.self = l.Self, l.Self
		} else if next.before = s.revision(); next.before == 0 {
			return errors.New("a change comes before the first view")
		}
		if next.before < next.revision { // otherwise it is ignored, as by limiters
			s.sights = append(s.sights, next)
		}
	case kindProof:
		if len(s.sights) == 0 {
			return errors.New("a proof comes before the first view")
		}
		s.proofs = append(s.proofs, proof{l.At, l.Sent, len(s.sights) - 1})
	case kindPlan:
		return s.plan(l)
	case kindClose:
		s.closed = true
	default:
		return fmt.Errorf("the kind %q is unknown", l.Kind)
	}
	return nil
}

// revision returns that of the newest view; 0 without one.
func (s *stream) revision() int64 {
	if len(s.sights) == 0 {
		return 0
	}
	return s.sights[len(s.sights)-1].revision
}

func (s *stream) plan(l *line) error {
	s.running = s.running[:0]
	for i := range l.Uses {
		w, u := l.Uses[i].window(), s.uses[l.Uses[i].window()]
		if w.Length <= 0 || w.Length > quota.MaxWindow {
			return fmt.Errorf("a window of %v", w.Length)
		}
		if u == nil {
			u = &use{}
			s.uses[w] = u
		}
		bound, used, lent := l.Uses[i][2], l.Uses[i][3], l.Uses[i][4]
		s.running = append(s.running, w)
		if issued := max(0, used-lent); issued != u.issued || u.self == "" {
			u.self, u.revision, u.issued = s.self, s.revision(), issued
		}
		u.bound, u.off = max(0, bound-lent), max(u.off, l.Off)
	}
	return nil
}
