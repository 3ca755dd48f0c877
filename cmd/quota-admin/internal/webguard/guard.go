// Package webguard stands between the network and a small page for operators: it
// refuses what a browser can be tricked into, asks who is there, and bounds what a
// stranger can send or hold. The page behind it sees only requests that passed, each
// with an identity.
//
// There is no session and no cookie: a page sends its token with every request,
// which no other page, site or port can make a browser do.
package webguard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
)

// MaxBody is the longest request body, in bytes.
const MaxBody = 16 << 10

// Guard is safe for concurrent use once it is set.
type Guard struct {
	// Hosts are the names by which browsers reach the page, without ports; an IP
	// address is a name too. Other requests are refused.
	Hosts []string
	// One of these says who is there, the first that is set. Without any, nobody is.
	Header  string // in which a proxy names the caller; nothing else that it adds is believed
	Tokens  Tokens
	Anybody string // everybody is this one
	// Proxies are the addresses that Header may come from. Other connections are
	// refused then, also for public paths.
	Proxies []netip.Prefix
	// Public are the paths that are served to callers that are not known.
	Public func(path string) bool
	// Log takes refusals; never a token.
	Log *slog.Logger
}

type whoKey struct{}

// Identity returns the user behind a request that passed; "" is possible on a public
// path.
func Identity(ctx context.Context) string {
	who, _ := ctx.Value(whoKey{}).(string)
	return who
}

// Wrap returns a handler that lets to next what passes.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w.Header(), r)
		status, no := g.check(r)
		who := ""
		if no == "" {
			r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
			who, no = g.identify(r)
			status = http.StatusUnauthorized
		}
		if no != "" && (status != http.StatusUnauthorized || !g.Public(r.URL.Path)) {
			// The path is what a stranger sent: the log's handler quotes it.
			g.Log.WarnContext(r.Context(), "request refused", "status", status, "reason", no, "method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr)
			WriteJSON(w, status, map[string]string{"error": no})
			return
		}
		if k, ok := r.Context().Value(connectionKey{}).(*connection); ok && who != "" {
			k.busy.Add(1)
			defer k.busy.Add(-1)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, who)))
	})
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

// check returns why a request is refused, with a status, whoever sent it; "" if it is
// not.
func (g *Guard) check(r *http.Request) (status int, no string) {
	p, post, origins := r.URL.Path, r.Method == http.MethodPost, r.Header.Values("Origin")
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	host := (&url.URL{Host: r.Host}).Hostname()
	switch {
	// A path that would have to be cleaned or decoded twice: nothing here has one.
	case !strings.HasPrefix(p, "/") || r.URL.RawPath != "" || strings.ContainsAny(p, "\\\x00%") || p != "/" && path.Clean(p) != p:
		return http.StatusBadRequest, "this path is not spelled plainly"
	case !post && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return http.StatusMethodNotAllowed, "only GET, HEAD and POST are served"
	// Another's page whose name was made to point here (DNS rebinding) is of the same
	// origin for the browser. But it cannot change the name that it asks for.
	case !slices.ContainsFunc(g.Hosts, func(h string) bool { return strings.EqualFold(h, host) }):
		return http.StatusMisdirectedRequest, "this page is not known by that host name; --host adds one"
	case g.Header != "" && !g.byProxy(r):
		return http.StatusForbidden, "connect through the proxy that knows who you are"
	// A browser says what another site made it send by Sec-Fetch-Site, older ones by Origin.
	case len(origins) > 1 || len(origins) == 1 && !sameOrigin(origins[0], r) || !sameSite(r):
		return http.StatusForbidden, "another site sent this request"
	case post && len(origins) == 0:
		return http.StatusForbidden, "a change must say which page it comes from (Origin)"
	case !post && r.ContentLength != 0:
		return http.StatusBadRequest, "only POST has a body"
	case r.ContentLength > MaxBody:
		return http.StatusRequestEntityTooLarge, "the request is too large"
	// A form of another site cannot say that it sends JSON without asking first.
	case post && kind != "application/json":
		return http.StatusUnsupportedMediaType, "the body must be application/json"
	}
	return 0, ""
}

// sameSite reports whether no other site made the browser send a request. Another site
// may link to the page, and that is all.
func sameSite(r *http.Request) bool {
	return slices.Contains([]string{"", "same-origin", "none"}, r.Header.Get("Sec-Fetch-Site")) ||
		r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// sameOrigin compares without Sec-Fetch-Site. Behind a proxy that ends TLS the
// scheme cannot be compared.
func sameOrigin(origin string, r *http.Request) bool {
	scheme, host, _ := strings.Cut(origin, "://")
	return (scheme == "https" || scheme == "http" && r.TLS == nil) && strings.EqualFold(host, r.Host)
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

const maxIdentity = 128

// ValidName reports whether a name can stand in a history: printable, without
// blanks at its ends, and not too long.
func ValidName(name string) bool {
	return name != "" && len(name) <= maxIdentity && strings.TrimSpace(name) == name && format.Printable(name)
}

// byProxy reports whether a request comes from a proxy that may say who is there.
func (g *Guard) byProxy(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && slices.ContainsFunc(g.Proxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) })
}

// identify returns who sent a request, or why that is not known.
func (g *Guard) identify(r *http.Request) (who, no string) {
	switch {
	case g.Header != "":
		names := r.Header.Values(g.Header)
		if len(names) == 1 && ValidName(names[0]) {
			return names[0], ""
		}
		return "", "the proxy must say who is there, once, in " + g.Header
	case g.Tokens != nil:
		token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !given {
			return "", "log in with your token"
		}
		if who = g.Tokens.holderOf(token); who == "" {
			return "", "nobody has this token"
		}
		return who, ""
	case g.Anybody != "":
		return g.Anybody, ""
	}
	return "", "nobody may come here"
}

const (
	// MinToken is the shortest token, in bytes: long enough that nobody guesses
	// it, so that no count of attempts is needed, which strangers could use up.
	MinToken = 24
	// maxTokens bounds the holders.
	maxTokens = 1000
)

// Tokens are the holders of the secrets that people log in with. It keeps no
// secret, only digests, by which tokens are looked up: how long that takes tells
// nothing of the token.
type Tokens map[[sha256.Size]byte]string

// ParseTokens reads a line for each holder, "NAME TOKEN"; empty lines and those
// that begin with # are passed over. A line without a name is that of owner. An
// error never contains a token.
func ParseTokens(text, owner string) (Tokens, error) {
	t := Tokens{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		name, token := owner, fields[0]
		if len(fields) == 2 {
			name, token = fields[0], fields[1]
		}
		switch {
		case len(fields) > 2:
			return nil, fmt.Errorf("line %d has %d words: write NAME TOKEN", n, len(fields))
		case !ValidName(name):
			return nil, fmt.Errorf("line %d: the name must be printable and have at most %d bytes", n, maxIdentity)
		case len(token) < MinToken:
			return nil, fmt.Errorf("line %d: a token of %d bytes can be guessed; use at least %d, as from: openssl rand -hex 24", n, len(token), MinToken)
		case len(t) == maxTokens:
			return nil, fmt.Errorf("more than %d tokens", maxTokens)
		}
		t[sha256.Sum256([]byte(token))] = name
	}
	if len(t) == 0 {
		return nil, errors.New("there is no token; write a line NAME TOKEN for each person")
	}
	return t, nil
}

func (t Tokens) holderOf(token string) string { return t[sha256.Sum256([]byte(token))] }

// MaxConnections is how many are open at once. One more closes another: that which
// has been without a known caller for longest, of the address with the most. So
// nobody is locked out by connections that say nothing, nor by those of another
// address.
const MaxConnections = 256

// Server returns a server with bounds on what a slow or talkative client can
// hold. A handler that streams extends the deadlines of its own connection.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	open := &connections{all: map[net.Conn]*connection{}}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       15 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState:         open.changed,
		ConnContext:       open.opened,
	}
}

type connection struct {
	address string
	since   time.Time    // of the last change of its state; guarded by connections
	busy    atomic.Int32 // requests of known callers that are being served
}

type connectionKey struct{}

type connections struct {
	mu  sync.Mutex
	all map[net.Conn]*connection
}

// opened counts a connection, closes another one where there are too many, and tells
// the requests of it.
func (c *connections) opened(ctx context.Context, conn net.Conn) context.Context {
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String()) // "" for all that is no network
	k := &connection{address: host, since: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= MaxConnections {
		c.closeOneLocked()
	}
	c.all[conn] = k
	return context.WithValue(ctx, connectionKey{}, k)
}

func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.all[conn]; state == http.StateClosed || state == http.StateHijacked {
		delete(c.all, conn)
	} else if k != nil {
		k.since = time.Now()
	}
}

func (c *connections) closeOneLocked() {
	of := map[string]int{}
	for _, k := range c.all {
		of[k.address]++
	}
	victim := slices.MinFunc(slices.Collect(maps.Keys(c.all)), func(x, y net.Conn) int {
		a, b := c.all[x], c.all[y]
		return cmp.Or(cmp.Compare(min(a.busy.Load(), 1), min(b.busy.Load(), 1)), cmp.Compare(of[b.address], of[a.address]), a.since.Compare(b.since))
	})
	delete(c.all, victim)
	if secure, ok := victim.(*tls.Conn); ok {
		victim = secure.NetConn() // without a farewell, which could take seconds
	}
	_ = victim.Close()
}

// Loopback reports whether the address, HOST:PORT, is reached from this machine
// only.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}
