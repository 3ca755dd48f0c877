// Package dashboard is the web page of quota-admin: providers, their limits and
// fleets, live, and where it is allowed a change of a limit.
//
// A follower reads etcd once a second while somebody looks, and seldom while nobody
// does, so that a page has a past. It makes a state of them, which replaces the one before, and points of a chart,
// which are added. The page is embedded, and shows only what it is sent. Package
// webguard decides before who may ask.
package dashboard

import (
	"cmp"
	"context"
	"crypto/tls"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/webguard"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/uplot"
	"github.com/quotient-limiter/quotient/quota"
)

//go:embed assets
var files embed.FS

// Options of a Server; all are needed.
type Options struct {
	Admin *coordinator.Admin
	// Guard decides who may ask; this package sets its Public and Log.
	Guard webguard.Guard
	// Writes allows changes.
	Writes bool
	Change ChangeFunc
	// Explain turns an error of etcd or of a change into a status and a sentence.
	Explain func(error) (status int, text string)
	Version string
	Log     *slog.Logger
	// Grace is how long etcd is read every second after the last stream ended, since the
	// browser may be about to come back; default 15 s.
	Grace time.Duration
}

// Server serves the page.
type Server struct {
	o        Options
	follower *follower
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{o: o, follower: newFollower(o.Admin, o.Log)}
	s.follower.grace = cmp.Or(o.Grace, defaultGrace)
	s.o.Guard.Log = o.Log
	s.o.Guard.Public = func(path string) bool { return !strings.HasPrefix(path, "/api/") || path == "/api/session" }
	return s
}

// Handler returns all that is served, behind the guard.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/session", s.answer(s.session))
	mux.HandleFunc("GET /api/events", s.serveEvents)
	mux.HandleFunc("GET /api/history", s.answer(s.history))
	mux.HandleFunc("GET "+ForeseePath, s.answer(s.foresee))
	mux.HandleFunc("POST /api/preview", s.answer(func(r *http.Request) (any, error) { return s.change(r, false) }))
	mux.HandleFunc("POST /api/change", s.answer(func(r *http.Request) (any, error) { return s.change(r, true) }))
	pages, _ := fs.Sub(files, "assets") // of the program itself, in memory
	mux.Handle("GET /", http.FileServerFS(pages))
	for name, text := range map[string]string{"uplot.js": uplot.JS, "uplot.css": uplot.CSS, "uplot.txt": uplot.Licence} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, name, time.Time{}, strings.NewReader(text))
		})
	}
	return s.o.Guard.Wrap(mux)
}

// Follow reads etcd for the pages until ctx ends. Serve does that too.
func (s *Server) Follow(ctx context.Context) { s.follower.run(ctx) }

// Serve serves until ctx ends, and then lets requests end for a moment. Without
// secure it speaks no TLS.
func (s *Server) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	server := webguard.Server(s.Handler(), s.o.Log)
	server.TLSConfig = secure
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.Follow(ctx); return nil })
	g.Go(func() error {
		serve := server.Serve
		if secure != nil {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		c, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(c) != nil {
			_ = server.Close()
		}
		return nil
	})
	return g.Wait()
}

type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func (s *Server) fail(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p = &problem{}
		p.status, p.text = s.o.Explain(err)
	}
	webguard.WriteJSON(w, p.status, map[string]string{"error": p.text})
}

func (s *Server) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		data, err := f(r)
		if err != nil {
			s.fail(w, err)
			return
		}
		webguard.WriteJSON(w, http.StatusOK, data)
	}
}

// session names the caller; an unknown one is told how to log in.
func (s *Server) session(r *http.Request) (any, error) {
	who, login := webguard.Identity(r.Context()), s.o.Guard.Tokens != nil
	answer := map[string]any{"who": who, "login": login}
	if who != "" {
		answer["writes"], answer["version"] = s.o.Writes, s.o.Version
	}
	return answer, nil
}

func providerIn(r *http.Request) (string, error) {
	name := r.URL.Query().Get("provider")
	if err := quota.ValidateProvider(name); err != nil {
		return "", &problem{http.StatusBadRequest, err.Error()}
	}
	return name, nil
}

func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	name := overview
	if r.URL.Query().Has("provider") {
		var err error
		if name, err = providerIn(r); err != nil {
			s.fail(w, err)
			return
		}
	}
	t, ctx, done, err := s.follower.open(r.Context(), name, webguard.Identity(r.Context()))
	if err != nil {
		w.Header().Set("Retry-After", "5")
		s.fail(w, &problem{http.StatusServiceUnavailable, err.Error()})
		return
	}
	defer done()
	t.serve(ctx, w)
}

type record struct {
	Revision int64               `json:"revision"`
	Time     time.Time           `json:"time"`
	Author   string              `json:"author"`
	Reason   string              `json:"reason"`
	Old      string              `json:"old"` // limits; "" is none
	New      string              `json:"new"`
	Also     []change.Difference `json:"also"`
	Problem  string              `json:"problem,omitempty"`
}

func (s *Server) history(r *http.Request) (any, error) {
	name, err := providerIn(r)
	if err != nil {
		return nil, err
	}
	found, err := s.o.Admin.History(r.Context(), name)
	if err != nil {
		return nil, err
	}
	records := []record{}
	for _, h := range found {
		old, next := change.At(h.Old, h.Time), change.At(h.New, h.Time)
		records = append(records, record{h.Revision, h.Time, h.Author, h.Reason, change.Limits(old), change.Limits(next), change.Beside(old, next), format.OneLine(h.Problem)})
	}
	return map[string]any{"provider": name, "records": records, "events": eventsOf(found)}, nil
}

// ForeseePath is asked, as ?provider=P&limits=L, for a Foreseen.
const ForeseePath = "/api/foresee"

// Foreseen says what limits would have refused of what was asked for lately, by the
// dashboard's own memory.
type Foreseen struct {
	// Revision is that of the provider's policy as the dashboard read it last; 0: it did not.
	Revision int64 `json:"policy_revision"`
	live.Foresight
	Text string `json:"text"` // in one sentence; "" if nothing was compared
}

func (s *Server) foresee(r *http.Request) (any, error) {
	name, err := providerIn(r)
	if err != nil {
		return nil, err
	}
	limits, err := quota.ParseLimits(r.URL.Query().Get("limits"))
	if err != nil {
		return nil, &problem{http.StatusBadRequest, "limits: " + err.Error()}
	}
	f := Foreseen{}
	f.Revision, f.Foresight = s.follower.foresee(name, limits)
	f.Text = f.String()
	return f, nil
}

// Change is what somebody asks for on the page.
type Change struct {
	Provider string `json:"provider"`
	// Kind is "set", "pause" or "resume".
	Kind string `json:"kind"`
	// Limits are for set, as quota.ParseLimits takes them.
	Limits string `json:"limits"`
	Reason string `json:"reason"`
	// Force goes further than the policy's greatest step.
	Force bool `json:"force"`
	// IfRevision is the policy's revision that the page showed, or that the
	// preview was of; the change is refused at any other.
	IfRevision int64 `json:"if_revision"`
	// Write is false for a preview.
	Write bool `json:"-"`
	// The field Who is stored as the author. It comes from the identity, never from the
	// request.
	Who string `json:"-"`
}

// Changed is what a change does, or a preview would do.
type Changed struct {
	Revision int64    `json:"revision"` // of the new policy; 0: not written
	Old      string   `json:"old"`      // limits and mode in words
	New      string   `json:"new"`
	Effects  []string `json:"effects"` // from when on instances obey
	// Shares is what each share becomes; for a preview.
	Shares any `json:"shares,omitempty"`
	// Refused is why the change will be refused without Force; for a preview.
	Refused string `json:"refused,omitempty"`
}

// ChangeFunc makes a change, or previews it.
type ChangeFunc func(ctx context.Context, c Change) (Changed, error)

func (s *Server) change(r *http.Request, write bool) (any, error) {
	if !s.o.Writes {
		return nil, &problem{http.StatusForbidden, "this dashboard is read-only; start it with --allow-writes"}
	}
	c, err := decodeChange(r)
	if err != nil {
		return nil, &problem{http.StatusBadRequest, err.Error()}
	}
	c.Who, c.Write = webguard.Identity(r.Context()), write
	done, err := s.o.Change(r.Context(), c)
	if err == nil && write {
		s.o.Log.InfoContext(r.Context(), "changed", "provider", c.Provider, "kind", c.Kind, "new", done.New, "revision", done.Revision, "author", c.Who)
	}
	return done, err
}

// decodeChange reads and checks a request, whose length the guard bounds. It is for
// what strangers send.
func decodeChange(r *http.Request) (c Change, err error) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, errors.New("the change cannot be read: " + err.Error())
	}
	if d.More() {
		return c, errors.New("the change cannot be read: something follows it")
	}
	if err := quota.ValidateProvider(c.Provider); err != nil {
		return c, err
	}
	switch {
	case !slices.Contains([]string{"set", "pause", "resume"}, c.Kind):
		return c, errors.New("kind must be set, pause or resume")
	case c.IfRevision < 1:
		return c, errors.New("if_revision must be the policy's revision that the page shows")
	case strings.TrimSpace(c.Reason) == "":
		return c, errors.New("say why: the history keeps the reason")
	}
	return c, nil
}
