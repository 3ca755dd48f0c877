package httplimit

import (
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/internal/ratefields"
)

// RefuseFunc answers a refused request with the status that the middleware proposes.
// Retry-After and the fields of the limits are set. err is the reason.
type RefuseFunc func(w http.ResponseWriter, r *http.Request, status int, err error)

// refusal is a request's refusal, before it is answered.
type refusal struct {
	status  int
	retry   time.Duration // if the limiter knows it
	err     error
	name    string
	uses    []ratefields.Use
	cost    int64
	respond RefuseFunc
}

// answer sends the refusal.
func (f *refusal) answer(w http.ResponseWriter, r *http.Request) {
	p := ratefields.Refuse(w.Header(), f.status, f.name, f.uses, f.cost, f.retry)
	if f.respond != nil {
		f.respond(w, r, f.status, f.err)
		return
	}
	ratefields.Write(w, f.status, p)
}
