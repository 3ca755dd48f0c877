package trace

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Version is that of the lines.
const Version = 1

// line is one line of a file. Which fields are set depends on its kind.
type line struct {
	Number   int64     `json:"n"` // in its file, from 1
	At       int64     `json:"at"`
	Kind     string    `json:"kind"`
	Version  int       `json:"version,omitempty"`
	Stream   int       `json:"stream,omitempty"`
	Provider string    `json:"provider,omitempty"`
	Self     string    `json:"self,omitempty"` // the incarnation
	Revision int64     `json:"revision,omitempty"`
	Sum      uint64    `json:"sum,omitempty"`
	View     *wireView `json:"view,omitempty"`
	Sent     int64     `json:"sent,omitempty"`
	Off      int64     `json:"off,omitempty"` // of the limiter's clock from At, at least
	Uses     []wireUse `json:"uses,omitempty"`
}

// The kinds of lines.
const (
	kindTrace = "trace"
	kindOpen  = "open"
	kindView  = "view"
	kindReset = "reset"
	kindApply = "apply"
	kindProof = "proof"
	kindPlan  = "plan"
	kindClose = "close"
)

// wireUse is a window.Use: length, index, bound, used and lent.
type wireUse [5]int64

func (u *wireUse) window() quota.Window {
	return quota.Window{Length: time.Duration(u[0]), Index: u[1]}
}

// wireView is a view, as the change from nothing to it, or a change.
type wireView struct {
	Revision       int64           `json:"revision"`
	Policy         json.RawMessage `json:"policy,omitempty"`
	PolicyRevision int64           `json:"policy_revision,omitempty"`
	PolicyDeleted  bool            `json:"policy_deleted,omitempty"`
	Level          json.RawMessage `json:"level,omitempty"`
	LevelDeleted   bool            `json:"level_deleted,omitempty"`
	Pace           json.RawMessage `json:"pace,omitempty"`
	PaceDeleted    bool            `json:"pace_deleted,omitempty"`
	Put            []wireInstance  `json:"put,omitempty"`
	Deleted        []string        `json:"deleted,omitempty"`
}

type wireInstance struct {
	ID    string          `json:"id"`
	Value json.RawMessage `json:"value"`
}

func ofView(v *protocol.View) (*wireView, error) {
	w, err := ofChange(&protocol.Change{Revision: v.Revision, Policy: v.Policy, Level: v.Level, Pace: v.Pace, Put: v.Instances})
	w.PolicyRevision = v.PolicyRevision
	return w, err
}

func ofChange(c *protocol.Change) (*wireView, error) {
	w := &wireView{Revision: c.Revision, PolicyDeleted: c.PolicyDeleted, LevelDeleted: c.LevelDeleted, PaceDeleted: c.PaceDeleted, Deleted: c.Deleted}
	var errs []error
	raw := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		errs = append(errs, err)
		return b
	}
	if c.Policy != nil {
		w.Policy, w.PolicyRevision = raw(c.Policy), c.Revision
	}
	if c.Level != nil {
		w.Level = raw(c.Level)
	}
	if c.Pace != nil {
		w.Pace = raw(c.Pace)
	}
	for i := range c.Put {
		w.Put = append(w.Put, wireInstance{c.Put[i].ID, raw(protocol.Incarnation(c.Put[i]))})
	}
	slices.SortFunc(w.Put, func(a, b wireInstance) int { return strings.Compare(a.ID, b.ID) })
	return w, errors.Join(errs...)
}

// after returns the view that the change makes of v.
func (w *wireView) after(v *protocol.View) (*protocol.View, error) {
	n := *v
	n.Revision = w.Revision
	var errs []error
	if w.Policy != nil || w.PolicyDeleted {
		n.Policy, n.PolicyRevision = readOr(w.Policy, protocol.ReadPolicy, &errs), w.PolicyRevision
	}
	if w.Level != nil || w.LevelDeleted {
		n.Level = readOr(w.Level, protocol.ReadLevel, &errs)
	}
	if w.Pace != nil || w.PaceDeleted {
		n.Pace = readOr(w.Pace, protocol.ReadPace, &errs)
	}
	if len(w.Put)+len(w.Deleted) == 0 {
		return &n, errors.Join(errs...)
	}
	gone := make(map[string]bool, len(w.Put)+len(w.Deleted))
	for _, id := range w.Deleted {
		gone[id] = true
	}
	put := make([]quota.Instance, 0, len(w.Put))
	for _, p := range w.Put {
		i, err := protocol.ReadInstance(p.ID, p.Value)
		errs, put, gone[p.ID] = append(errs, err), append(put, i), true
	}
	n.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i quota.Instance) bool { return gone[i.ID] })
	n.Instances = append(n.Instances, put...)
	slices.SortFunc(n.Instances, func(a, b quota.Instance) int { return strings.Compare(a.ID, b.ID) })
	return &n, errors.Join(errs...)
}

// readOr reads a value; nil where there is none.
func readOr[T any](value json.RawMessage, read func([]byte) (*T, error), errs *[]error) *T {
	if value == nil {
		return nil
	}
	v, err := read(value)
	*errs = append(*errs, err)
	return v
}
