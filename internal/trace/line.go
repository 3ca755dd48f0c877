package trace

import (
	"errors"
	"fmt"
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
	View     *content  `json:"view,omitempty"`
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

// content is a view, as the change from nothing to it, or a change.
type content struct {
	protocol.Change
	IDs            []string `json:",omitempty"` // of Put, whose JSON lacks them
	PolicyRevision int64
}

func ofView(v *protocol.View) *content {
	c := ofChange(&protocol.Change{Revision: v.Revision, Policy: v.Policy, Put: v.Instances})
	c.PolicyRevision = v.PolicyRevision
	return c
}

func ofChange(change *protocol.Change) *content {
	c := &content{Change: *change, PolicyRevision: change.Revision}
	c.Put = slices.Clone(c.Put)
	sortInstances(c.Put)
	for i := range c.Put {
		c.IDs = append(c.IDs, c.Put[i].ID)
	}
	return c
}

func sortInstances(all []protocol.Instance) {
	slices.SortFunc(all, func(a, b protocol.Instance) int { return strings.Compare(a.ID, b.ID) })
}

// complete fills in what was left out in JSON, and validates what limiters apply.
func (c *content) complete() (err error) {
	if len(c.IDs) != len(c.Put) {
		return fmt.Errorf("%d IDs of %d instances", len(c.IDs), len(c.Put))
	}
	for i := range c.Put {
		c.Put[i].ID = c.IDs[i]
		err = errors.Join(err, c.Put[i].Validate())
	}
	if c.Policy != nil {
		*c.Policy = c.Policy.WithDefaults()
		err = errors.Join(err, c.Policy.Validate())
	}
	return err
}

// after returns the view that the change makes of v.
func (c *content) after(v *protocol.View) *protocol.View {
	n := *v
	n.Revision = c.Revision
	if c.Policy != nil || c.PolicyDeleted {
		n.Policy, n.PolicyRevision = c.Policy, c.PolicyRevision
	}
	if len(c.Put)+len(c.Deleted) > 0 {
		n.Instances = slices.DeleteFunc(slices.Clone(v.Instances), func(i protocol.Instance) bool {
			return slices.Contains(c.IDs, i.ID) || slices.Contains(c.Deleted, i.ID)
		})
		n.Instances = append(n.Instances, c.Put...)
		sortInstances(n.Instances)
	}
	return &n
}
