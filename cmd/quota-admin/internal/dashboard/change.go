package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/webguard"
	"github.com/quotient-limiter/quotient/quota"
)

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
	// Who is stored as the author. It comes from the identity, never from the
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
	c.Who, c.Write = webguard.Who(r.Context()), write
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
	case len(c.Reason) > quota.MaxReasonBytes:
		return c, errors.New("the reason is too long")
	case strings.TrimSpace(c.Reason) == "":
		return c, errors.New("say why: the history keeps the reason")
	}
	return c, nil
}
