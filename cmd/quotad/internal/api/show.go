package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/ratefields"
)

// overview is the answer to GET /v1/providers.
type overview struct {
	Version string `json:"version"`
	// Problem is the reason why quotad is not ready; empty if it is.
	Problem   string          `json:"problem,omitempty"`
	Providers []providerState `json:"providers"`
}

// providerState is the state of an open provider on this host.
type providerState struct {
	Provider string `json:"provider"`
	State    string `json:"state"`
	Problem  string `json:"problem,omitempty"`
	// OpenFor is how long it has been open, in seconds.
	OpenFor   float64 `json:"open_for"`
	Instances int     `json:"instances"`
	Waiting   int     `json:"waiting"`
	// Issued and Refused count permits since the provider was opened.
	Issued  int64        `json:"issued"`
	Refused int64        `json:"refused"`
	Limits  []limitState `json:"limits"`
	// KeysInUse is how many keys this host keeps count of, and BusiestKeys are those whose
	// calls wanted most permits lately.
	KeysInUse   int64     `json:"keys_in_use,omitempty"`
	BusiestKeys []traffic `json:"busiest_keys,omitempty"`
	// BusiestLabels are the labels whose calls wanted most, "" for calls without one, and
	// "other" for all other labels.
	BusiestLabels []traffic `json:"busiest_labels,omitempty"`
}

// traffic is what calls for a key, or of a label, got and did not get, in permits per second.
type traffic struct {
	Name    string  `json:"name"`
	Issued  float64 `json:"issued"`
	Refused float64 `json:"refused"`
}

// limitState is one limit of a provider, and this host's part of it.
type limitState struct {
	Limit string `json:"limit"` // of all instances, as in 1000/s
	// Share is this host's part of it, or what it has taken of a long limit: quota.Limit.Long. Of a
	// limit in flight Used are under way. Left is what this host may hand out now.
	Share int64 `json:"share"`
	Used  int64 `json:"used"`
	Left  int64 `json:"left"`
	// Remaining, of a long limit, is Left and what no instance has taken; left out if it is not known.
	Remaining *int64 `json:"remaining,omitempty"`
	// ResetsIn is the rest of the window in seconds; left out for a long limit that slides, and for
	// one in flight, which have no window that ends.
	ResetsIn *float64 `json:"resets_in,omitempty"`
}

func limitOf(u *consumer.LimitUse, now time.Time) limitState {
	l := limitState{Limit: u.Limit.String(), Share: u.Share, Used: u.Used, Left: u.Left}
	if u.Limit.Long() && u.Remaining >= 0 {
		l.Remaining = &u.Remaining
	}
	if !u.Limit.ByParts() {
		l.ResetsIn = new(max(0, u.End.Sub(now).Seconds()))
	}
	return l
}

func (s *Server) showAll(w http.ResponseWriter, _ *http.Request) {
	o := overview{Version: buildinfo.Version(), Providers: []providerState{}}
	if err := s.host.Ready(); err != nil {
		o.Problem = err.Error()
	}
	for _, status := range s.host.Statuses() {
		o.Providers = append(o.Providers, s.shown(&status))
	}
	writeJSON(w, o)
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("provider")
	status, ok := s.host.Status(name)
	if !ok {
		fail(w, http.StatusNotFound, fmt.Errorf("provider %.200q is not open on this host: its first call opens it", name))
		return
	}
	writeJSON(w, s.shown(&status))
}

func (s *Server) shown(of *consumer.Status) providerState {
	p := providerState{of.Provider, string(of.State), of.Problem, s.host.Open(of.Provider).Seconds(), of.Instances, of.Waiting, of.Issued, of.Refused, []limitState{}, of.KeysInUse, nil, nil}
	for _, u := range of.Limits {
		p.Limits = append(p.Limits, limitOf(&u, s.now()))
	}
	for _, r := range of.BusiestKeys {
		p.BusiestKeys = append(p.BusiestKeys, traffic(r))
	}
	for _, r := range of.BusiestLabels {
		p.BusiestLabels = append(p.BusiestLabels, traffic(r))
	}
	return p
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if err := s.host.Ready(); err != nil {
		p := ratefields.Later(w.Header(), http.StatusServiceUnavailable, again)
		p.Title, p.Detail = "Not ready", err.Error() // calls may be served all the same, by loans
		ratefields.Write(w, p)
		return
	}
	writeJSON(w, struct{}{})
}
