// Package webguard stands between the network and a small page for operators: it
// refuses what a browser can be tricked into, asks who is there, and bounds what a
// stranger can send or hold. What is behind it sees only requests that passed, each
// with an identity.
//
// There is no session and no cookie: a page sends its token with every request,
// which no other page, site or port can make a browser do.
package webguard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
)

// MaxBody is the longest request body, in bytes.
const MaxBody = 16 << 10

// Options of a Guard.
type Options struct {
	// Hosts are the names by which browsers reach the page, without ports; an IP
	// address is a name too. At least one.
	Hosts []string
	// Exactly one of these says who is there.
	Tokens   *Tokens
	Upstream *Upstream
	Anybody  string // everybody is this one
	// Public are the paths that are served to callers that are not known; nil: none.
	Public func(path string) bool
	// Log takes refusals; never a token. Default: nowhere.
	Log *slog.Logger
}

// Guard is safe for concurrent use.
type Guard struct{ o Options }

// New returns a guard, or says what is missing in the options.
func New(o Options) (*Guard, error) {
	upstream, tokens, anybody := o.Upstream != nil, o.Tokens != nil, o.Anybody != ""
	if upstream && tokens || upstream && anybody || tokens && anybody || !upstream && !tokens && !anybody {
		return nil, errors.New("webguard: need exactly one of tokens, an upstream's header, and anybody")
	}
	if len(o.Hosts) == 0 {
		return nil, errors.New("webguard: need the names by which the page is reached")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Guard{o}, nil
}

type whoKey struct{}

// Who returns the identity behind a request that passed; "" is possible on a
// public path.
func Who(ctx context.Context) string {
	who, _ := ctx.Value(whoKey{}).(string)
	return who
}

type refusal struct {
	status int
	text   string
}

// Wrap returns a handler that lets to next what passes.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w.Header(), r)
		for _, check := range []func(*http.Request) *refusal{checkPath, checkMethod, g.checkHost, g.checkProxy, checkSite, checkBody} {
			if no := check(r); no != nil {
				g.refuse(w, r, no)
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		who, no := g.identify(r)
		if no != nil && (g.o.Public == nil || !g.o.Public(r.URL.Path)) {
			g.refuse(w, r, no)
			return
		}
		if who != "" {
			defer known(r.Context())()
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, who)))
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
// has such a name.
func checkPath(r *http.Request) *refusal {
	p := r.URL.Path
	if !strings.HasPrefix(p, "/") || r.URL.RawPath != "" || strings.ContainsAny(p, "\\\x00%") || p != "/" && path.Clean(p) != p {
		return &refusal{http.StatusBadRequest, "this path is not spelled plainly"}
	}
	return nil
}

func checkMethod(r *http.Request) *refusal {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, r.Method) {
		return nil
	}
	return &refusal{http.StatusMethodNotAllowed, "only GET, HEAD and POST are served"}
}

// checkHost refuses host names that the page is not known by. A page of
// somebody else whose name was made to point here (DNS rebinding) is of the same
// origin for the browser, but it cannot change the name that it asks for.
func (g *Guard) checkHost(r *http.Request) *refusal {
	name := (&url.URL{Host: r.Host}).Hostname()
	if !slices.ContainsFunc(g.o.Hosts, func(h string) bool { return strings.EqualFold(h, name) }) {
		return &refusal{http.StatusMisdirectedRequest, "this page is not known by that host name; --host adds one"}
	}
	return nil
}

// checkProxy refuses connections that do not come from the upstream, if there is
// one.
func (g *Guard) checkProxy(r *http.Request) *refusal {
	if g.o.Upstream == nil {
		return nil
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		if slices.ContainsFunc(g.o.Upstream.Proxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) }) {
			return nil
		}
	}
	return &refusal{http.StatusForbidden, "connect through the proxy that knows who you are"}
}

// checkSite refuses what another site made the browser send. A browser says so
// by Sec-Fetch-Site, older ones by Origin. A write must say where it comes from.
// Another site may link to the page, and that is all.
func checkSite(r *http.Request) *refusal {
	no := &refusal{http.StatusForbidden, "another site sent this request"}
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) > 1, len(origins) == 1 && !sameOrigin(origins[0], r):
		return no
	case r.Method == http.MethodPost && len(origins) == 0:
		return &refusal{http.StatusForbidden, "a change must say which page it comes from (Origin)"}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return nil
	}
	if r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	return no
}

// sameOrigin compares without Sec-Fetch-Site. Behind a proxy that ends TLS the
// scheme cannot be compared.
func sameOrigin(origin string, r *http.Request) bool {
	scheme, host, _ := strings.Cut(origin, "://")
	return (scheme == "https" || scheme == "http" && r.TLS == nil) && strings.EqualFold(host, r.Host)
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

// policy is the content security policy: the page's own files and nothing else,
// no inline script or style, in no frame, and no text is ever taken for HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

func headers(h http.Header, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy": "camera=(), microphone=(), geolocation=()", "Cache-Control": "no-store",
	} {
		h.Set(name, value)
	}
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}
