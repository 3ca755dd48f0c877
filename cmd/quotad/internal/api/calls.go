package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

// call is a request for permits that could be read.
type call struct {
	request
	began  time.Time
	opened time.Duration // how long providers took that were not open
	client string
	parts  []part // one for each want
}

// part is what a call wants of one provider.
type part struct {
	consumer.Taker // the limiter, or its key
	want
	limiter *consumer.Limiter
}

// add adds the part of a want.
func (c *call) add(w want, l *consumer.Limiter) {
	if l = l.Class(c.class); c.label != "" {
		l = l.Label(c.label)
	}
	one := part{want: w, limiter: l, Taker: l}
	if w.key != "" {
		one.Taker = l.Key(w.key)
	}
	c.parts = append(c.parts, one)
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
	for _, want := range c.wants {
		l, err := s.limiter(r, &c, want.provider)
		if err != nil {
			s.refuseProvider(w, r, err)
			return c, false
		}
		c.add(want, l)
	}
	if c.maxWait = max(0, c.maxWait-c.opened); c.maxWait > 0 {
		// The deadline for the body would end the wait.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	return c, true
}

// openingWait is how long a call that does not wait gives etcd to say whether its provider, which is not open here, has a
// limit: several times what an etcd that answers needs.
const openingWait = 200 * time.Millisecond

// limiter returns a provider's limiter. If the call is the first for it, it waits for etcd's answer as long as for permits,
// and openingWait at least.
func (s *Server) limiter(r *http.Request, c *call, provider string) (*consumer.Limiter, error) {
	if l := s.host.Opened(provider); l != nil {
		return l, nil
	}
	ctx, cancel := context.WithDeadline(r.Context(), c.began.Add(max(c.maxWait, openingWait)))
	defer cancel()
	l, err := s.host.Limiter(ctx, provider)
	c.opened = time.Since(c.began)
	return l, err
}

// body returns the client of a request and its body, or answers why not.
func (s *Server) body(w http.ResponseWriter, r *http.Request) (client string, body []byte, ok bool) {
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
		fail(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has %d bytes, more than the most, %d: make several calls", n, maxBody))
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

// acquire gives permits of all wants or none, and an ID if the call asks for one.
func (s *Server) acquire(w http.ResponseWriter, r *http.Request) {
	c, ok := s.read(w, r)
	if !ok {
		return
	}
	g := &grant{client: c.client, parts: c.parts}
	counted := c.named
	if counted && !s.room(w, &c) {
		return
	}
	defer func() {
		if counted && g.id == "" {
			s.clients.noID(c.client)
		}
	}()
	if c.partial {
		if !s.takeSome(w, r, &c, g) {
			return
		}
	} else if refusing, err := c.take(r.Context(), g); err != nil {
		s.refuse(w, r, refusing, err)
		return
	}
	if !c.named && g.inFlight() { // what ends the call is its ID
		if counted = s.room(w, &c); !counted {
			g.release()
			return
		}
		c.named = true
	}
	if c.named {
		g.id = rand.Text()
		for _, p := range c.parts {
			s.host.Opened(p.provider) // it stays open until the grant has ended
		}
		s.clients.enter(g, s.known(g, c.settleWithin))
	}
	if !s.grant(w, r, &c, g) && (!c.named || s.clients.end(g)) {
		g.release()
	}
}

// room counts the ID of a call, or answers why its client has no more.
func (s *Server) room(w http.ResponseWriter, c *call) bool {
	err := s.clients.room(c.client)
	if err != nil {
		s.tooMany(w, &c.parts[0], err, again)
	}
	return err == nil
}

// take takes the permits of all wants. If there is an error it returns the part that refused.
func (c *call) take(ctx context.Context, g *grant) (refusing *part, err error) {
	if len(c.parts) == 1 {
		p, err := c.parts[0].Take(ctx, c.wants[0].permits, c.maxWait)
		g.permits = []consumer.Permit{p}
		return &c.parts[0], err
	}
	wants := map[consumer.Taker]int64{}
	for _, p := range c.parts {
		wants[p.Taker] = p.permits
	}
	permits, err := consumer.TakeAll(ctx, c.maxWait, wants)
	if err != nil {
		limited, _ := errors.AsType[consumer.LimitError](err)
		i := slices.IndexFunc(c.parts, func(p part) bool {
			return p.provider == limited.Provider && (limited.Key == "" || p.key == limited.Key)
		})
		return &c.parts[max(0, i)], err
	}
	for _, p := range c.parts {
		g.permits = append(g.permits, permits[p.Taker])
	}
	return nil, nil
}

// takeSome takes a batch, or answers why not: as many as there are, up to the permits asked for.
// If there are none it waits for all of them, but for no more than this host's share, or the
// key's; in flight for one. Without a limit of up to a minute the share is the shortest limit.
func (s *Server) takeSome(w http.ResponseWriter, r *http.Request, c *call, g *grant) bool {
	p := &c.parts[0]
	use := p.limiter.Status().Shortest()
	share := use.Share
	if use.Limit.Long() { // more of it is taken when it is wanted
		share = use.Limit.Permits
	}
	n := min(p.permits, max(1, share))
	if key, ok := p.Taker.(consumer.Key); ok {
		for _, u := range key.Limits() {
			n = min(n, max(1, u.Share))
		}
	}
	permit, err := p.tryTake(n), error(nil)
	if permit.N() == 0 {
		if c.maxWait <= 0 || use.Limit.InFlight { // not one is there, and calls end one by one
			n = 1
		}
		permit, err = p.Take(r.Context(), n, c.maxWait)
	}
	g.permits = []consumer.Permit{permit}
	switch {
	case errors.Is(err, consumer.ErrTooLarge): // the share became smaller: the next batch is of fewer
		s.tooMany(w, p, err, 0)
	case err != nil:
		p.permits = n
		s.refuse(w, r, p, err)
	}
	return err == nil
}

// tryTake takes at most n permits, as many as there are.
func (p *part) tryTake(n int64) consumer.Permit {
	return p.Taker.(interface {
		TryTake(n int64) consumer.Permit
	}).TryTake(n)
}

// settle ends a grant by its ID. Permits that were not used are given back, and a cost above
// them is a debt.
func (s *Server) settle(w http.ResponseWriter, r *http.Request) {
	client, body, ok := s.body(w, r)
	if !ok {
		return
	}
	g := s.find(w, r, client, body)
	if g == nil {
		return
	}
	used, err := parseUsed(body, len(g.permits))
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if !s.clients.end(g) {
		fail(w, http.StatusNotFound, errNoGrant)
		return
	}
	var errs error
	for i, p := range g.permits {
		errs = errors.Join(errs, p.Settle(used[i]))
	}
	switch {
	case errors.Is(errs, consumer.ErrTooLarge): // a part of it is booked
		fail(w, http.StatusUnprocessableEntity, errs)
		return
	case errs != nil: // the provider was closed
		fail(w, http.StatusConflict, errs)
		return
	}
	writeJSON(w, struct{}{})
}

// done ends the calls of a grant in flight by its ID. What was taken of other limits is used.
func (s *Server) done(w http.ResponseWriter, r *http.Request) {
	client, err := s.client(r)
	if err != nil {
		w.Header().Set("Connection", "close")
		busy(w, err)
		return
	}
	g := s.find(w, r, client, nil)
	if g == nil {
		return
	}
	if !s.clients.end(g) {
		fail(w, http.StatusNotFound, errNoGrant)
		return
	}
	g.done()
	writeJSON(w, struct{}{})
}

// known returns for how long the ID of a grant is known: while its permits can be given back, settled or ended.
func (s *Server) known(g *grant, settleWithin time.Duration) time.Duration {
	return max(settleWithin, s.left(g.permits), s.mayLast(g))
}

// mayLast returns for how long the calls of a grant may last, 0 if none of their limits is in flight.
func (s *Server) mayLast(g *grant) time.Duration {
	if all := g.ofFlight(); len(all) > 0 {
		return s.left(all)
	}
	return 0
}

// left returns the time for which all permits are certainly valid.
func (s *Server) left(permits []consumer.Permit) time.Duration {
	c := s.host.Clock()
	return time.Duration(earliest(permits).UnixNano() - c.Latest(c.Now()))
}

// earliest returns the end of the first window that ends.
func earliest(permits []consumer.Permit) time.Time {
	until := permits[0].Until()
	for _, p := range permits[1:] {
		if t := p.Until(); t.Before(until) {
			until = t
		}
	}
	return until
}

// grant answers with what a call got. It returns false if the client has left, or the answer
// could not be sent.
func (s *Server) grant(w http.ResponseWriter, r *http.Request, c *call, g *grant) bool {
	if r.Context().Err() != nil {
		s.abandoned(w, r)
		return false
	}
	return send(w, s.granted(c, g))
}

// granted returns the answer of a call. expires_in and ends_in count from when the client sent its
// request. So it needs no clock set like this one's, and the answer may be late; the clients subtract
// the time since then.
func (s *Server) granted(c *call, g *grant) []byte {
	expires := s.left(g.permits) + time.Since(c.began)
	text := make([]byte, 0, 160)
	text = append(text, '{')
	if g.id != "" {
		text = append(append(append(text, `"id":"`...), g.id...), `",`...)
	}
	if len(g.permits) == 1 {
		text = append(strconv.AppendInt(append(text, `"permits":`...), g.permits[0].N(), 10), ',')
	}
	text = earliest(g.permits).UTC().AppendFormat(append(text, `"until":"`...), time.RFC3339Nano)
	text = strconv.AppendFloat(append(text, `","expires_in":`...), max(0, expires.Seconds()), 'f', 6, 64)
	if g.inFlight() {
		ends := s.mayLast(g) + time.Since(c.began)
		text = strconv.AppendFloat(append(text, `,"ends_in":`...), max(0, ends.Seconds()), 'f', 6, 64)
	}
	return append(text, "}\n"...)
}
