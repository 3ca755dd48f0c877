// Package dashboard is the web page of quota-admin: providers, their limits and
// fleets, live, and where it is allowed a change of a limit.
//
// A follower reads etcd once a second while somebody looks, and not at all while
// nobody does. What it reads becomes a state, which replaces the one before, and
// points of a chart, which are added. The page is embedded, and shows only what it
// is sent. Package webguard decides before who may ask.
package dashboard

import (
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/webguard"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/uplot"
	"github.com/quotient-limiter/quotient/quota"
)

//go:embed assets
var embedded embed.FS

// Options of a Server; all but Log are needed.
type Options struct {
	Admin *coordinator.Admin
	// Guard decides who may ask; Public of its options is for this package.
	Guard webguard.Options
	// Writes allows changes.
	Writes bool
	Change ChangeFunc
	// Explain turns an error of etcd or of a change into a status and a sentence.
	Explain func(error) (status int, text string)
	Version string
	Log     *slog.Logger
}

// Server serves the page.
type Server struct {
	o        Options
	guard    *webguard.Guard
	follower *follower
	streams  streams
	assets   map[string]asset // by path
	ends     chan struct{}
}

type asset struct {
	kind string
	text []byte
}

// New returns a server, or says what is wrong with the options.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, follower: newFollower(o.Admin), ends: make(chan struct{})}
	var err error
	if s.assets, err = readAssets(); err != nil {
		return nil, err
	}
	o.Guard.Log = o.Log
	o.Guard.Public = func(path string) bool {
		return s.assets[path].text != nil || path == "/api/session"
	}
	s.guard, err = webguard.New(o.Guard)
	return s, err
}

// kinds are the files that the page consists of.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// readAssets reads every file into memory: a request looks its path up in a map
// and never reaches a file system.
func readAssets() (map[string]asset, error) {
	all := map[string]asset{
		"/uplot.js":  {kinds[".js"], []byte(uplot.JS)},
		"/uplot.css": {kinds[".css"], []byte(uplot.CSS)},
		"/uplot.txt": {"text/plain; charset=utf-8", []byte(uplot.Licence)},
	}
	err := fs.WalkDir(embedded, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(name)
		all["/"+path.Base(name)] = asset{kinds[path.Ext(name)], text}
		return err
	})
	all["/"] = all["/index.html"]
	delete(all, "/index.html")
	return all, err
}

// Handler returns all that is served, behind the guard.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/session", s.serveSession)
	mux.HandleFunc("GET /api/events", s.serveEvents)
	mux.HandleFunc("GET /api/history", s.serveHistory)
	mux.HandleFunc("POST /api/preview", s.serveChange(false))
	mux.HandleFunc("POST /api/change", s.serveChange(true))
	mux.HandleFunc("GET /", s.serveAsset)
	return s.guard.Wrap(mux)
}

// Follow reads etcd for the pages until ctx ends. Serve does that too.
func (s *Server) Follow(ctx context.Context) { s.follower.run(ctx) }

// Serve serves until ctx ends, and then lets requests end for a moment. Without
// secure it speaks no TLS.
func (s *Server) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	var follower sync.WaitGroup
	follow, stop := context.WithCancel(ctx)
	follower.Go(func() { s.Follow(follow) })
	defer func() { stop(); follower.Wait() }()
	server := webguard.Server(s.Handler(), s.o.Log)
	served := make(chan error, 1)
	go func() {
		if server.TLSConfig = secure; secure != nil {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	close(s.ends)
	c, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if server.Shutdown(c) != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *Server) serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := s.assets[r.URL.Path]
	if !ok {
		webguard.WriteJSON(w, http.StatusNotFound, problemOf("there is no such page"))
		return
	}
	w.Header().Set("Content-Type", a.kind)
	_, _ = w.Write(a.text)
}

// serveSession says who asks; to who is not known it says how to become that.
func (s *Server) serveSession(w http.ResponseWriter, r *http.Request) {
	who, login := webguard.Who(r.Context()), s.o.Guard.Tokens != nil
	answer := map[string]any{"who": who, "login": login}
	if who != "" {
		answer["writes"], answer["version"] = s.o.Writes, s.o.Version
	}
	webguard.WriteJSON(w, http.StatusOK, answer)
}

// providerIn returns the provider that a request is about.
func providerIn(w http.ResponseWriter, r *http.Request) (string, bool) {
	name := r.URL.Query().Get("provider")
	if err := quota.ValidateProvider(name); err != nil {
		webguard.WriteJSON(w, http.StatusBadRequest, problemOf(err.Error()))
		return "", false
	}
	return name, true
}

// serveEvents streams the overview, or a provider with it.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	name := overview
	if r.URL.Query().Has("provider") {
		var ok bool
		if name, ok = providerIn(w, r); !ok {
			return
		}
	}
	t, done, err := s.follower.open(name)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		webguard.WriteJSON(w, http.StatusServiceUnavailable, problemOf(err.Error()))
		return
	}
	defer done()
	ctx, end := s.streams.open(r.Context(), webguard.Who(r.Context()))
	defer end()
	t.serve(ctx, w, s.ends)
}

// record is a change of a policy, for the page.
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

func (s *Server) serveHistory(w http.ResponseWriter, r *http.Request) {
	name, ok := providerIn(w, r)
	if !ok {
		return
	}
	found, err := s.o.Admin.History(r.Context(), name)
	if err != nil {
		status, text := s.o.Explain(err)
		webguard.WriteJSON(w, status, problemOf(text))
		return
	}
	records := []record{}
	for _, h := range found {
		e := record{Revision: h.Revision, Time: h.Time, Author: h.Author, Reason: h.Reason, Also: change.Beside(h.Old, h.New)}
		if h.Old != nil {
			e.Old = quota.FormatLimits(h.Old.Limits)
		}
		if h.New != nil {
			e.New = quota.FormatLimits(h.New.Limits)
		}
		if h.Problem != nil {
			e.Problem = h.Problem.Error()
		}
		records = append(records, e)
	}
	webguard.WriteJSON(w, http.StatusOK, map[string]any{"provider": name, "records": records})
}
