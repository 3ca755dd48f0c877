package view

import (
	"fmt"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Reader reads the values of keys.
type Reader struct {
	Policy   func(value []byte) (*quota.Policy, error)
	Instance func(id string, value []byte) (quota.Instance, error)
	Level    func(value []byte) (*protocol.Level, error)
	Pace     func(value []byte) (*protocol.Pace, error)
}

// usual reads as every instance does.
var usual = &Reader{protocol.ReadPolicy, protocol.ReadInstance, protocol.ReadLevel, protocol.ReadPace}

// ReadBy makes the tracker read values by r instead of the functions of package
// protocol, which r calls in the end: a simulation of many instances reads
// every value once for all of them. It survives List.
func (t *Tracker) ReadBy(r *Reader) { t.read = r }

// instance reads an instance's key. One that cannot be read takes part with the
// defaults: that enlarges nobody's share.
func (t *Tracker) instance(k Key) quota.Instance {
	t.instances[k.ID] = k.Revision
	i, err := t.read.Instance(k.ID, k.Value)
	delete(t.bad, k.ID)
	if err != nil {
		t.bad[k.ID] = fmt.Errorf("the key of instance %q cannot be read, it takes part all the same: %w", k.ID, err)
		return quota.Instance{ID: k.ID, Weight: 1}
	}
	return i
}

// levelOf reads a level. One that cannot be read is none: everybody reads it so.
func (t *Tracker) levelOf(k Key) *protocol.Level {
	t.level, t.badLevel = k.Revision, nil
	l, err := t.read.Level(k.Value)
	if err != nil {
		t.badLevel = fmt.Errorf("the level (revision %d) cannot be used, the total is divided equally: %w", k.Revision, err)
		return nil
	}
	return l
}

// paceOf reads a pace. One that cannot be read is none: everybody reads it so.
func (t *Tracker) paceOf(k Key) *protocol.Pace {
	t.pace, t.badPace = k.Revision, nil
	p, err := t.read.Pace(k.Value)
	if err != nil {
		t.badPace = fmt.Errorf("the pace (revision %d) cannot be used, the policy's limits count: %w", k.Revision, err)
		return nil
	}
	copied := *p
	copied.Revision = k.Revision
	return &copied
}

// PaceRevision returns the revision of the pace's key, 0 without one.
func (t *Tracker) PaceRevision() int64 { return t.pace }

// LevelRevision returns the revision of the level's key, 0 without one.
func (t *Tracker) LevelRevision() int64 { return t.level }

// Rank returns how many instances wrote their key before this incarnation did:
// 0 for the oldest. Who announces its end writes its key anew, and so comes last.
func (t *Tracker) Rank(id string) (rank int) {
	own := t.instances[id]
	for _, revision := range t.instances {
		if revision < own {
			rank++
		}
	}
	return rank
}
