package view

import (
	"fmt"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// read reads a document. It returns nil for one that is deleted, and for one that cannot be
// used; instead says what counts then.
func read[T any](d *document, k Key, value func([]byte) (*T, error), name, instead string) *T {
	if *d = (document{}); k.Deleted {
		return nil
	}
	v, err := value(k.Value)
	if d.revision = k.Revision; err != nil {
		d.bad = fmt.Errorf("the %s (revision %d) cannot be used, %s: %w", name, k.Revision, instead, err)
		return nil
	}
	return v
}

// addInstance adds an event of an instance's key. One that cannot be read takes part with
// the defaults: that enlarges nobody's share.
func (t *Tracker) addInstance(c *protocol.Change, k Key) {
	delete(t.bad, k.ID)
	if k.Deleted {
		delete(t.instances, k.ID)
		c.Deleted = append(c.Deleted, k.ID)
		return
	}
	t.instances[k.ID] = k.Revision
	i, err := protocol.ReadInstance(k.ID, k.Value)
	if err != nil {
		t.bad[k.ID] = fmt.Errorf("the key of instance %q cannot be read, it takes part all the same: %w", k.ID, err)
		i = protocol.Instance{ID: k.ID}
	}
	c.Put = append(c.Put, i)
}

// Revision returns the revision of the key of a policy or a throttle, 0 without one.
func (t *Tracker) Revision(k Kind) int64 { return t.documents[k].revision }

// Rank returns how many instances wrote their key before this incarnation did: 0 for
// the oldest. One that announces its end writes its key anew, and so comes last.
func (t *Tracker) Rank(id string) (rank int) {
	own := t.instances[id]
	for _, revision := range t.instances {
		if revision < own {
			rank++
		}
	}
	return rank
}
