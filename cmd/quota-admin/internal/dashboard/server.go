// Package dashboard is the web page of quota-admin: providers, their limits and fleets, live.
//
// A follower reads etcd once a second while somebody looks, and seldom while nobody does, so that
// a page has a past. What it has read becomes a state, which replaces the one before, and points
// of a chart, which are added. The page is embedded, and shows only what it is sent. It changes
// nothing.
package dashboard

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/cmd/internal/webconfig"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/uplot"
	"github.com/quotient-limiter/quotient/quota"
)

//go:embed assets
var files embed.FS

// Options of a Server.
type Options struct {
	Admin *admin.Client
	// Hosts are the names, without ports, by which browsers may ask; nil: by any. Another's
	// page whose name was made to point here (DNS rebinding) cannot change the name that it
	// asks for.
	Hosts []string
	// Explain turns an error of etcd into a status and a sentence.
	Explain func(error) (status int, text string)
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
	return s
}

// Handler returns all that is served.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/events", s.serveEvents)
	mux.HandleFunc("GET /api/history", s.history)
	pages, _ := fs.Sub(files, "assets") // of the program itself, in memory
	mux.Handle("GET /", http.FileServerFS(pages))
	for name, text := range map[string]string{"uplot.js": uplot.JS, "uplot.css": uplot.CSS, "uplot.txt": uplot.Licence} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, name, time.Time{}, strings.NewReader(text))
		})
	}
	return s.guarded(mux)
}

// policy is the content security policy: the page's own files and nothing else, no inline
// script or style, in no frame, and no text is ever taken for HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guarded adds the headers that keep other sites off the page, and refuses names that are not
// its own.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		host := (&url.URL{Host: r.Host}).Hostname()
		if s.o.Hosts != nil && !slices.ContainsFunc(s.o.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
			writeJSON(w, http.StatusMisdirectedRequest, map[string]string{"error": "this page is not known by that host name; --host adds one"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Follow reads etcd for the pages until ctx ends. Serve does that too.
func (s *Server) Follow(ctx context.Context) { s.follower.run(ctx) }

// Serve serves until ctx ends, and then lets requests end for a moment. config is the file of
// package webconfig; without one it speaks plain HTTP.
func (s *Server) Serve(ctx context.Context, l net.Listener, config string) error {
	server := &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
		// A stream extends the deadlines of its own connection.
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: 15 * time.Second,
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.Follow(ctx); return nil })
	g.Go(func() error {
		if err := webconfig.Serve(l, server, config); !errors.Is(err, http.ErrServerClosed) {
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
	writeJSON(w, p.status, map[string]string{"error": p.text})
}

// writeJSON writes an answer. An error in writing it is the reader's.
func writeJSON(w http.ResponseWriter, status int, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
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
	t, ctx, done, err := s.follower.open(r.Context(), name)
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

func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	name, err := providerIn(r)
	var found []admin.Record
	if err == nil {
		found, err = s.o.Admin.History(r.Context(), name)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	records := []record{}
	for _, h := range found {
		old, next := change.At(h.Old, h.Time), change.At(h.New, h.Time)
		records = append(records, record{h.Revision, h.Time, h.Author, h.Reason, change.Limits(old), change.Limits(next), change.Beside(old, next), format.OneLine(h.Problem)})
	}
	writeJSON(w, http.StatusOK, map[string]any{"provider": name, "records": records, "events": eventsOf(found)})
}
