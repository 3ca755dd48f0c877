package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/ratefields"
)

// again is how long a client is to wait if nothing else is known.
const again = ratefields.Again

// atOnce is how long it is to wait where it is served by then: as long as quotad's clients wait for one that restarts.
const atOnce = 50 * time.Millisecond

// fail answers a request that would fail again: with a problem (RFC 9457), as all but 200.
func fail(w http.ResponseWriter, status int, err error) {
	ratefields.Write(w, ratefields.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: ratefields.Detail(err)})
}

// later answers a request that may succeed after a time.
func later(w http.ResponseWriter, status int, err error, retry time.Duration) {
	p := ratefields.Later(w.Header(), status, retry)
	p.Detail = ratefields.Detail(err)
	ratefields.Write(w, p)
}

// busy answers a client that has as much as it may have.
func busy(w http.ResponseWriter, err error) { later(w, http.StatusTooManyRequests, err, again) }

// refuseProvider answers a request for a provider that cannot be opened.
func (s *Server) refuseProvider(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil:
		s.abandoned(w, r)
	case errors.Is(err, host.ErrUnknown):
		fail(w, http.StatusNotFound, err)
	case errors.Is(err, host.ErrForbidden):
		fail(w, http.StatusForbidden, err)
	default:
		later(w, http.StatusServiceUnavailable, err, again)
	}
}

// errLeft is told to a client that ended its side of the connection, and may still read.
var errLeft = errors.New("the client ended its side of the connection before the answer: keep it open")

// errMoved is told to a call that waits, when another quotad has the socket.
var errMoved = errors.New("another quotad serves this socket from now on: try again")

// abandoned answers a request whose context has ended: the server ends, another one has the socket, or the client has
// left. Without an answer of ours net/http would send an empty one of status 200.
func (*Server) abandoned(w http.ResponseWriter, r *http.Request) {
	err, retry := errLeft, again
	switch cause := context.Cause(r.Context()); {
	case errors.Is(cause, host.ErrClosed):
		err = cause
	case errors.Is(cause, errMoved):
		err, retry = cause, atOnce
	}
	w.Header().Set("Connection", "close")
	later(w, http.StatusServiceUnavailable, err, retry)
}

// refuse answers a request that got no permits, because of one part of it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, p *part, err error) {
	status := http.StatusTooManyRequests
	switch {
	case r.Context().Err() != nil:
		s.abandoned(w, r)
		return
	case errors.Is(err, consumer.ErrClosed), errors.Is(err, cause.ErrLeft):
		later(w, http.StatusServiceUnavailable, host.ErrClosed, again) // its client has closed nothing
		return
	case errors.Is(err, cause.ErrDenied): // as of a provider that is not open: see refuseProvider
		fail(w, http.StatusForbidden, host.Forbidden(p.provider, cause.ErrDenied.Error()))
		return
	case errors.Is(err, consumer.ErrNoPolicy):
		fail(w, http.StatusNotFound, err)
		return
	case errors.Is(err, consumer.ErrTooLarge):
		fail(w, http.StatusUnprocessableEntity, tooLarge(err))
		return
	case !errors.Is(err, consumer.ErrLimited), !ratefields.CauseOf(err).Limit:
		status = http.StatusServiceUnavailable
	}
	name, _ := ratefields.NewName(p.provider) // one that no field can hold is in none
	problem := name.Refuse(w.Header(), status, ratefields.UsesOf(p.limiter, p.Taker), p.permits, err, s.now())
	problem.Detail = ratefields.Detail(err)
	ratefields.Write(w, problem)
}

// tooLarge says how many permits a call could have, where it wants more than can ever come at once.
func tooLarge(err error) error {
	e, ok := errors.AsType[consumer.TooLargeError](err)
	if !ok {
		return err
	}
	most, of := fmt.Sprintf("at most %d can be had at once, as nothing is lent", e.Largest), ""
	switch {
	case e.Burst > 0:
		most = fmt.Sprintf("at most %d can be had at once, by the burst of %d", e.Largest, e.Burst)
	case e.Limit.Permits > 0:
		most = "the limit is " + e.Limit.String()
	}
	if e.Key != "" {
		of = fmt.Sprintf("key %q: ", e.Key)
	}
	return fmt.Errorf("%s: %s%d permits asked for, %s: split the call, or take a batch (partial)", e.Provider, of, e.Asked, most)
}

// tooMany answers a client that has too many IDs, or whose batch has become too large.
func (s *Server) tooMany(w http.ResponseWriter, p *part, err error, retry time.Duration) {
	name, _ := ratefields.NewName(p.provider)
	name.Add(w.Header(), ratefields.UsesOf(p.limiter, p.Taker), s.now())
	later(w, http.StatusTooManyRequests, err, max(0, retry))
}

// now is the time by the windows' clock: the machine's may differ.
func (s *Server) now() time.Time { return time.Unix(0, s.host.Clock().Wall()) }

// jsonType is the value of a field, shared by all answers.
var jsonType = []string{"application/json"}

// send sends a whole answer; false if that failed, as to a client that has gone.
func send(w http.ResponseWriter, body []byte) bool {
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	if _, err := w.Write(body); err != nil { //nolint:gosec // it is JSON
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}

func writeJSON(w http.ResponseWriter, data any) {
	body, err := json.Marshal(data)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	send(w, append(body, '\n'))
}
