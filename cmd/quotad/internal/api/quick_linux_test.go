package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
)

const plain = "POST /v1/acquire HTTP/1.1\r\nHost: quotad\r\nContent-Type: application/json\r\n"

// text is a request with a body.
func text(header, body string) string {
	return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
}

// sink is the other end of a connection, which may be broken.
type sink struct {
	net.Conn
	strings.Builder
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.Builder.Write(p)
}

func (*sink) Close() error                     { return nil }
func (*sink) SetReadDeadline(time.Time) error  { return nil }
func (*sink) SetWriteDeadline(time.Time) error { return nil }

// Only a plain call for permits that are there is answered without net/http.
func TestQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 10, roomy)
		call := text(plain, `{"provider":"p","max_wait":1}`)
		for _, test := range []struct {
			name, text string
			want       verdict
		}{
			{"plain", call, answered},
			{"with other fields", strings.Replace(call, "Host", "Accept-Encoding: identity\r\nhOST", 1), answered},
			{"half a line", call[:40], partial},
			{"no body yet", call[:strings.Index(call, "{")], partial},
			{"half a body", call[:len(call)-1], partial},
			{"another call follows", call + call, other},
			{"another path", strings.Replace(call, "acquire", "acquired", 1), other},
			{"with an ID", text(plain, `{"provider":"p","settle_within":1}`), other},
			{"of several", text(plain, `{"wants":[{"provider":"p"},{"provider":"p","key":"a"}]}`), other},
			{"the last of the connection", strings.Replace(call, "Host", "Connection: close\r\nHost", 1), other},
			{"it expects a word", strings.Replace(call, "Host", "Expect: 100-continue\r\nHost", 1), other},
			{"no host", strings.Replace(call, "Host", "Ghost", 1), other},
			{"of another type", strings.Replace(call, "json", "xml", 1), other},
			{"of unknown length", plain + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", other},
			{"of two lengths", strings.Replace(call, "Content-Length", "Content-Length: 3\r\nContent-Length", 1), other},
			{"too long", plain + "Content-Length: 5000\r\n\r\n{", other},
			{"no field", strings.Replace(call, "Host:", "Host", 1), other},
			{"wrong", text(plain, `{"provider":"p","permits":0}`), other},
			{"unknown", text(plain, `{"provider":"x"}`), other},
			{"more than there are", text(plain, `{"provider":"p","permits":9}`), other},
			{"the rest", text(plain, `{"provider":"p","permits":8}`), answered},
			{"a refusal", call, other},
		} {
			answer := &sink{}
			c := newProcess(t, s, "one").c
			c.Conn.Conn = answer
			if got := s.quick(c, []byte(test.text)); got != test.want || (answer.Len() > 0) != (got == answered) {
				t.Errorf("%s: %v %s", test.name, got, answer)
			}
		}
		if status, _ := s.host.Status("p"); status.Issued != 10 || status.Refused != 0 {
			t.Errorf("%d issued, %d refused", status.Issued, status.Refused)
		}
	})
}

// A call does not overtake one that has the turn.
func TestQuickOvertakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 10, roomy)
		c := newProcess(t, s, "one").c
		c.Conn.Conn = &sink{}
		if _, err := s.host.Limiter(t.Context(), fair.Client{User: "user 1"}, "p"); err != nil {
			t.Fatal(err)
		}
		turns := s.provider("p").turns[consumer.Default]
		if err := turns.Enter(t.Context(), fair.Client{User: "user 2"}, 1, 0); err != nil {
			t.Fatal(err)
		}
		call := []byte(text(plain, `{"provider":"p"}`))
		if got := s.quick(c, call); got != other {
			t.Errorf("while another call has the turn: %v", got)
		}
		turns.Leave()
		if got := s.quick(c, call); got != answered {
			t.Errorf("when nobody has: %v", got)
		}
	})
}

// A permit of which its client cannot be told is given back.
func TestQuickToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 1, roomy)
		p := newProcess(t, s, "one")
		p.c.Conn.Conn = &sink{err: io.ErrClosedPipe}
		if got := s.quick(p.c, []byte(text(plain, `{"provider":"p"}`))); got != answered {
			t.Error(got)
		}
		if w := p.post("/v1/acquire", `{"provider":"p"}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// servePipe serves one connection, and returns its other end.
func servePipe(t *testing.T, permits int64) caller {
	t.Helper()
	ours, theirs := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- theirs
	peer := func(net.Conn) (fair.Client, error) { return fair.Client{User: "user 1", Process: "one"}, nil }
	s, _ := newServer(t, permits, roomy)
	s.Listeners = append(s.Listeners, s.accept(pipe{conns, sync.OnceFunc(func() { close(conns) })}, peer, s.quick))
	serve(t, s)
	return caller{ours, bufio.NewReader(ours)}
}

// sendParts sends a call in three parts.
func (c caller) sendParts(t *testing.T, body string) {
	t.Helper()
	call := text(plain, body)
	for _, part := range []string{call[:60], call[60 : len(call)-3], call[len(call)-3:]} {
		if _, err := io.WriteString(c, part); err != nil {
			t.Fatal(err)
		}
	}
}

// Calls with and without net/http take turns on a connection, and their answers are alike.
func TestTurnsWithNetHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servePipe(t, 3)
		for i, want := range []int{200, 200, 200, 429, 200, 200} {
			body := `{"provider":"p"}`
			if i == 4 {
				body = `{"provider":"p","max_wait":1}`
			}
			c.sendParts(t, body)
			a, err := http.ReadResponse(c.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(a.Body)
			_ = a.Body.Close()
			if err != nil || a.StatusCode != want || want == 200 && (a.Header.Get("Content-Type") != "application/json" || a.Header.Get("Date") == "" || len(a.Header) != 3) {
				t.Errorf("call %d: %s %v %s %v", i, a.Status, a.Header, answer, err)
			}
		}
	})
}

// A connection stays open while it has calls. It is closed when it was idle, when a call
// is not sent to its end, and when an answer is not read.
func TestQuickDeadlines(t *testing.T) {
	call := text(plain, `{"provider":"p"}`)
	for _, test := range []struct {
		last              string
		quiet, from, till time.Duration
		drips             string // a byte of it is sent just before time is up, and so on
	}{
		{"", 0, idleTime, idleTime, ""},
		{call[:60], 0, headerTime, headerTime + bodyTime, ""},
		{call[:60], 0, headerTime, headerTime + bodyTime, call[60:90]},
		{call, answerTime + time.Second, 0, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := servePipe(t, 100)
			for range 4 {
				for range 2 {
					c.sendParts(t, `{"provider":"p"}`)
					if status, body := c.answer(t); status != 200 {
						t.Fatal(status, body)
					}
				}
				time.Sleep(idleTime * 2 / 3)
			}
			c.sendParts(t, `{"provider":"p"}`)
			c.answer(t)
			if _, err := io.WriteString(c, test.last); err != nil {
				t.Fatal(err)
			}
			time.Sleep(test.quiet)
			began := time.Now()
			var dripping sync.WaitGroup
			defer dripping.Wait()
			dripping.Go(func() {
				for i := range test.drips {
					time.Sleep(headerTime - time.Second)
					_, _ = io.WriteString(c, test.drips[i:i+1])
				}
			})
			n, err := io.Copy(io.Discard, c.r)
			if after := time.Since(began); after < test.from || after > test.till || test.quiet > 0 && n > 0 {
				t.Errorf("after %q and %v: %d bytes, %v after %v", test.last, test.quiet, n, err, after)
			}
		})
	}
}

// The rest of a request is no call, whatever it looks like.
func TestQuickReadsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servePipe(t, 100)
		c.sendParts(t, `{"provider":"p"}`)
		c.answer(t)
		const buffer = 4096 // of net/http
		long := plain + "User-Agent: "
		long += strings.Repeat("x", buffer-len(long)-2) + "\r\n"
		go func() { _, _ = io.WriteString(c, long+text(plain, `{"provider":"p"}`)) }()
		if status, body := c.answer(t); status != 400 {
			t.Error(status, body)
		}

		c = servePipe(t, 100)
		c.sendParts(t, `{"provider":"p"}`)
		c.answer(t)
		call := text(plain, `{"provider":"p"}`)
		go func() {
			_, _ = io.WriteString(c, call+"GET ")
			_, _ = io.WriteString(c, call)
		}()
		for _, want := range []int{200, 400} {
			if status, body := c.answer(t); status != want {
				t.Error(status, body)
			}
		}
	})
}

// A connection is closed while net/http reads it, as after a call whose body was skipped:
// with -race.
func TestCloseWhileReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newServer(t, 1000, roomy)
	s.Listeners = append(s.Listeners, s.accept(l, listen.Peer, s.quick))
	serve(t, s)
	call := strings.Replace(text(plain, `{"provider":"p"}`), "Host", "Connection: close\r\nHost", 1)
	for range 50 {
		c := dial(t, path)
		if _, err := io.WriteString(c, call); err != nil {
			t.Fatal(err)
		}
		if status, body := c.answer(t); status != 200 {
			t.Fatal(status, body)
		}
	}
}
