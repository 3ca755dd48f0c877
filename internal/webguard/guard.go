package webguard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strings"
)

// MaxBody is the longest request body, in bytes.
const MaxBody = 16 << 10

// Options of a Guard.
type Options struct {
	// Hosts are the names by which browsers reach the page, without ports; an IP
	// address is a name too. At least one.
	Hosts []string
	// Secure says that browsers reach the page by https: cookies and the page
	// then insist on it.
	Secure bool
	// Exactly one of these says who is there.
	Tokens   *Tokens
	Upstream *Upstream
	Anybody  string // everybody is this one
	// Public are the paths that are served to those who are not known.
	Public func(path string) bool
	// Log takes refusals; never a token. Default: nowhere.
	Log *slog.Logger
}

// Guard is safe for concurrent use.
type Guard struct {
	o      Options
	hosts  map[string]bool
	origin *http.CrossOriginProtection
}

// New returns a guard, or says what is missing in the options.
func New(o Options) (*Guard, error) {
	ways := 0
	for _, given := range []bool{o.Tokens != nil, o.Upstream != nil, o.Anybody != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, errors.New("webguard: need exactly one of tokens, an upstream's header, and anybody")
	}
	if len(o.Hosts) == 0 {
		return nil, errors.New("webguard: need the names by which the page is reached")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Public == nil {
		o.Public = func(string) bool { return false }
	}
	g := &Guard{o: o, hosts: map[string]bool{}, origin: http.NewCrossOriginProtection()}
	for _, h := range o.Hosts {
		g.hosts[strings.ToLower(h)] = true
	}
	return g, nil
}

type contextKey struct{}

// Who returns the identity behind a request that passed, "" for a public path.
func Who(ctx context.Context) string {
	who, _ := ctx.Value(contextKey{}).(string)
	return who
}

// refusal is why a request is not served.
type refusal struct {
	status int
	text   string
}

// Wrap returns a handler that lets to next what passes.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.headers(w.Header(), r)
		for _, check := range []func(*http.Request) *refusal{checkPath, checkMethod, g.checkHost, g.checkProxy, g.checkSite, checkBody} {
			if no := check(r); no != nil {
				g.refuse(w, r, no)
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		who, no := g.identify(r)
		if no != nil && !g.o.Public(r.URL.Path) {
			g.refuse(w, r, no)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, who)))
	})
}

func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, no *refusal) {
	// The path is what a stranger sent: the handler quotes it.
	g.o.Log.WarnContext(r.Context(), "request refused", "status", no.status, "reason", no.text, "method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr)
	WriteJSON(w, no.status, map[string]string{"error": no.text})
}

// WriteJSON writes an answer. An error in writing it is the reader's.
func WriteJSON(w http.ResponseWriter, status int, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// checkPath refuses what would have to be cleaned or decoded twice: nothing here
// has such a name, and who asks for it tries something.
func checkPath(r *http.Request) *refusal {
	p := r.URL.Path
	if !strings.HasPrefix(p, "/") || r.URL.RawPath != "" || strings.ContainsAny(p, "\\\x00%") || p != "/" && path.Clean(p) != p {
		return &refusal{http.StatusBadRequest, "this path is not spelled plainly"}
	}
	return nil
}

func checkMethod(r *http.Request) *refusal {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return nil
	}
	return &refusal{http.StatusMethodNotAllowed, "only GET, HEAD and POST are served"}
}

// checkBody refuses what a form of another site could send: those cannot say
// that they send JSON without asking first.
func checkBody(r *http.Request) *refusal {
	if r.Method != http.MethodPost {
		if r.ContentLength != 0 {
			return &refusal{http.StatusBadRequest, "only POST has a body"}
		}
		return nil
	}
	if r.ContentLength > MaxBody {
		return &refusal{http.StatusRequestEntityTooLarge, "the request is too large"}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &refusal{http.StatusUnsupportedMediaType, "the body must be application/json"}
	}
	return nil
}
