package view

import (
	"fmt"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// levelOf reads a level. One that cannot be read is none: everybody reads it so.
func (t *Tracker) levelOf(k Key) *protocol.Level {
	t.level, t.badLevel = k.Revision, nil
	read := protocol.ReadLevel
	if t.read != nil {
		read = t.read.Level
	}
	l, err := read(k.Value)
	if err != nil {
		t.badLevel = fmt.Errorf("the level (revision %d) cannot be used, the total is divided equally: %w", k.Revision, err)
		return nil
	}
	return l
}

// LevelRevision returns the revision of the level's key, 0 without one.
func (t *Tracker) LevelRevision() int64 { return t.level }

// Rank returns how many instances wrote their key before this incarnation did:
// 0 for the oldest. Who announces its end writes its key anew, and so comes last.
// It counts them once after each change.
func (t *Tracker) Rank(id string) int {
	if t.ranked.id == id && t.ranked.revision == t.revision {
		return t.ranked.rank
	}
	own, rank := t.instances[id], 0
	for _, revision := range t.instances {
		if revision < own {
			rank++
		}
	}
	t.ranked = ranked{id, t.revision, rank}
	return rank
}

// ranked is the answer that Rank gave last, and at which of the view's revisions.
type ranked struct {
	id       string
	revision int64
	rank     int
}
