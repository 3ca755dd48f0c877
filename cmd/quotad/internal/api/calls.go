package api

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// call is a request for permits that could be read.
type call struct {
	request
	began    time.Time
	client   fair.Client
	limiter  *consumer.Limiter
	from     taker // the limiter, or its key
	provider *provider
}

// taker is a *consumer.Limiter or a consumer.Key.
type taker interface {
	consumer.Taker
	TryTake(n int64) consumer.Permit
}

// of sets the limiter of the call.
func (c *call) of(l *consumer.Limiter) {
	c.limiter = l.Class(c.class)
	if c.from = c.limiter; c.key != "" {
		c.from = c.limiter.Key(c.key)
	}
}

// read reads a request for permits, or answers why not.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (c call, ok bool) {
	c.began = time.Now()
	var body []byte
	if c.client, body, ok = s.body(w, r); !ok {
		return c, false
	}
	var err error
	if c.request, err = parseRequest(body); err != nil {
		fail(w, http.StatusBadRequest, err)
		return c, false
	}
	l, err := s.host.Limiter(r.Context(), c.client, c.request.provider)
	if err != nil {
		s.refuseProvider(w, r, err)
		return c, false
	}
	c.of(l)
	if c.maxWait > 0 {
		// The deadline for the body would end the wait.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	c.provider = s.provider(c.request.provider)
	c.provider.seen(c.client)
	return c, true
}

// body returns the client of a request and its body, or answers why not.
func (s *Server) body(w http.ResponseWriter, r *http.Request) (client fair.Client, body []byte, ok bool) {
	client, err := s.client(r)
	if err != nil {
		w.Header().Set("Connection", "close")
		busy(w, err)
		return client, nil, false
	}
	if kind := r.Header.Get("Content-Type"); kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, fmt.Errorf("Content-Type is %.40q: send application/json", kind))
		return client, nil, false
	}
	switch n := r.ContentLength; {
	case n < 0:
		fail(w, http.StatusLengthRequired, errors.New("the length of the body is not known: send Content-Length"))
		return client, nil, false
	case n > maxBody:
		fail(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has %d bytes, more than the most, %d: one call is for one provider", n, maxBody))
		return client, nil, false
	}
	body = make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil { // the client has gone, or is slow
		w.Header().Set("Connection", "close")
		fail(w, http.StatusBadRequest, errors.New("the body is shorter than Content-Length"))
		return client, nil, false
	}
	return client, body, true
}

func (s *Server) acquire(w http.ResponseWriter, r *http.Request) {
	c, ok := s.read(w, r)
	if !ok {
		return
	}
	permit, err := c.take(r.Context(), c.permits)
	if err != nil {
		s.refuse(w, r, &c, err)
		return
	}
	if !s.grant(w, r, &c, permit, "") {
		permit.Release() // nobody heard of it
	}
}

// lease gives a batch: at most the permits asked for, and at most the client's part of
// the share, which is equal for all active clients. Without a limit of up to a minute it
// is a part of the shortest limit. A lease for a key has at most the key's share.
func (s *Server) lease(w http.ResponseWriter, r *http.Request) {
	c, ok := s.read(w, r)
	if !ok {
		return
	}
	use, h := c.limiter.Status().Shortest(), holding{c.client.Process, c.request.provider}
	share, retry := use.Share, use.End.Sub(s.now())
	if use.Limit.Window > quota.MaxWindow { // more of it is taken when it is wanted
		share, retry = use.Limit.Permits, again
	}
	most := c.permits
	if key, ok := c.from.(consumer.Key); ok {
		for _, u := range key.Limits() {
			most = min(most, max(1, u.Share))
		}
	}
	n, err := s.clients.reserve(h, most, max(1, share/c.provider.active(c.client)))
	if err != nil {
		s.tooMany(w, &c, err, retry)
		return
	}
	var permit consumer.Permit
	if !c.busy() {
		permit = c.from.TryTake(n)
	}
	if permit.N() == 0 {
		permit, err = c.take(r.Context(), n)
	}
	s.clients.unreserve(h, n-permit.N())
	if errors.Is(err, consumer.ErrTooLarge) { // the share became smaller: the next lease is of fewer
		s.tooMany(w, &c, err, 0)
		return
	}
	if err != nil {
		s.refuse(w, r, &c, err)
		return
	}
	l := &lease{id: rand.Text(), of: h, permit: permit, n: permit.N()}
	s.clients.lend(l, s.left(permit))
	if !s.grant(w, r, &c, permit, l.id) && s.clients.end(l) {
		permit.Release()
	}
}

// giveBack ends a lease.
func (s *Server) giveBack(w http.ResponseWriter, r *http.Request) {
	c, body, ok := s.body(w, r)
	if !ok {
		return
	}
	l := s.clients.lease(c.Process, r.PathValue("id"))
	var used int64
	if l != nil {
		var err error
		if used, err = parseUsed(body, l.n); err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
	}
	if l == nil || !s.clients.end(l) {
		fail(w, http.StatusNotFound, errors.New("this process has no such lease: it was returned, or has ended"))
		return
	}
	_ = l.permit.Settle(used) // the first and only time, and no more than it has
	writeJSON(w, struct {
		Returned int64 `json:"returned"`
	}{l.n - used})
}

// left returns the time for which a permit is certainly valid.
func (s *Server) left(p consumer.Permit) time.Duration {
	c := s.host.Clock()
	return time.Duration(p.Until().UnixNano() - c.Latest(c.Now()))
}

// grant answers with a permit, and its lease's name if it has one. It returns false if
// the client has left, or the answer could not be sent.
func (s *Server) grant(w http.ResponseWriter, r *http.Request, c *call, p consumer.Permit, lease string) bool {
	if r.Context().Err() != nil {
		s.abandoned(w, r)
		return false
	}
	return send(w, s.granted(c, p, lease))
}

// granted returns the answer with a permit. expires_in counts from when the client sent its
// request, so that it needs no clock set like this one's.
func (s *Server) granted(c *call, p consumer.Permit, lease string) []byte {
	expires := s.left(p) + time.Since(c.began)
	text := make([]byte, 0, 160)
	text = append(text, '{')
	if lease != "" {
		text = append(append(append(text, `"lease":"`...), lease...), `",`...)
	}
	text = strconv.AppendInt(append(text, `"permits":`...), p.N(), 10)
	text = p.Until().UTC().AppendFormat(append(text, `,"until":"`...), time.RFC3339Nano)
	text = strconv.AppendFloat(append(text, `","expires_in":`...), max(0, expires.Seconds()), 'f', 6, 64)
	return append(text, "}\n"...)
}
