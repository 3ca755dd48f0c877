package api

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

// verdict says what is to be done with the bytes that a connection has sent.
type verdict int

const (
	answered verdict = iota // nothing: they were a call, and have their answer
	partial                 // read the rest of the call
	other                   // hand them to net/http
)

// note lets Read answer calls between two requests of net/http, by the states that it
// reports of a connection. With TLS all calls are net/http's. At the end of a connection
// net/http may still read it.
func note(c net.Conn, state http.ConnState) {
	if c, ok := c.(*connection); ok && state != http.StateClosed {
		c.between, c.renewed = state == http.StateIdle, time.Time{}
	}
}

// Read reads for net/http. A call for permits that are available is answered here, and
// net/http sees an idle connection: it would take twice the processor time, because it
// watches a connection while it answers. The first call, calls that must wait or are
// refused, and all other requests are net/http's. A shorter p than net/http's buffer is
// for the rest of a request.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.between = c.between && len(p) == httpBuffer
	for begun := false; c.between && n > 0 && err == nil; {
		switch v := c.answer(c, p[:n]); {
		case v == answered:
			n, begun = 0, false
		case v == partial && n < len(p):
			if !begun { // the whole call must come in time
				begun, c.renewed = true, time.Time{}
				_ = c.SetReadDeadline(time.Now().Add(headerTime))
			}
		default:
			c.between = false
			return n, nil
		}
		var more int
		more, err = c.Conn.Read(p[n:])
		n += more
	}
	return n, err
}

// httpBuffer is the size of the buffer into which net/http reads a connection.
const httpBuffer = 4096

var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// quick answers a call for permits that are available, if no other call waits.
func (s *Server) quick(c *connection, text []byte) verdict {
	call := call{began: time.Now(), client: c.Client()}
	if !bytes.HasPrefix(text, []byte("POST /v1/acquire HTTP/1.1\r\n")) {
		return other
	}
	if !bytes.Contains(text, []byte("\r\n\r\n")) {
		return partial
	}
	reader := readers.Get().(*bufio.Reader)
	defer readers.Put(reader)
	reader.Reset(bytes.NewReader(text))
	r, err := http.ReadRequest(reader)
	switch length := int64(reader.Buffered()); {
	case err != nil, r.Host == "", r.Close, r.Header.Get("Expect") != "", r.Header.Get("Content-Type") != jsonType[0]:
		return other
	case r.ContentLength > length && r.ContentLength <= maxBody:
		return partial
	case r.ContentLength != length: // unknown, too long, or another request follows
		return other
	}
	body, _ := reader.Peek(reader.Buffered())
	if call.request, err = parseRequest(body); err != nil {
		return other
	}
	want := call.wants[0]
	l := s.host.Opened(want.provider)
	if l == nil || len(call.wants) > 1 || call.named {
		return other
	}
	part := call.add(want, l, s.provider(want.provider))
	if part.busy() || part.early(want.permits) || part.foreseen(want.permits) > 0 {
		return other
	}
	permit, err := part.Take(context.Background(), want.permits, 0)
	if err != nil {
		return other
	}
	part.provider.seen(call.client)
	if c.send(call.began, s.granted(&call, &grant{permits: []consumer.Permit{permit}})) != nil {
		permit.Release() // nobody heard of it
		part.undo()
		_ = c.Close()
	}
	return answered
}

// send sends an answer, and renews the deadlines that net/http would renew.
func (c *connection) send(now time.Time, body []byte) error {
	if now.Sub(c.renewed) >= time.Second {
		c.renewed = now
		_ = c.SetReadDeadline(now.Add(idleTime))
		_ = c.SetWriteDeadline(now.Add(answerTime))
	}
	answer := append(make([]byte, 0, 320), "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "...)
	answer = strconv.AppendInt(answer, int64(len(body)), 10)
	answer = now.UTC().AppendFormat(append(answer, "\r\nDate: "...), http.TimeFormat)
	_, err := c.Write(append(append(answer, "\r\n\r\n"...), body...))
	return err
}
