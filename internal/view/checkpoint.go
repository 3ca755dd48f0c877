package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// Checkpoint is what a process writes on its host's disk about one incarnation, so
// that the next process there continues it after a crash. docs/protocol.md section 12
// has the rule and its proof.
type Checkpoint struct {
	ID      string    `json:"id"`
	Cluster uint64    `json:"cluster"`
	Created int64     `json:"created"` // revision of the key's first write
	Key     int64     `json:"key"`     // revision of the key's newest write
	From    time.Time `json:"from,omitzero"`
	// Reach is how far the bound of a window that starts now looks back, and a margin.
	Reach int64 `json:"reach"`
	// Positions are instants, oldest first, and revisions that the watch had delivered.
	Positions []Position `json:"positions"`
}

// Position says that the watch had delivered a revision at an instant of the host's
// monotonic clock.
type Position struct {
	At       int64 `json:"at"`
	Revision int64 `json:"revision"`
}

// maxPositions bounds the positions: one a second, for the longest settle time, the
// longest window, and some slack.
const maxPositions = 128

// MaxCheckpointBytes bounds an encoded checkpoint.
const MaxCheckpointBytes = 16 << 10

// Note adds a position, and drops those that Begin can no longer return.
func (c *Checkpoint) Note(p Position) {
	all := c.Positions
	if n := len(all); n > 0 && (p.Revision <= all[n-1].Revision || p.At <= all[n-1].At) {
		return // the older position says as much
	}
	all = append(all, p)
	drop := max(0, len(all)-maxPositions)
	for drop+1 < len(all) && c.usable(all[drop+1], p.At) {
		drop++
	}
	c.Positions = all[drop:]
}

// usable reports whether a history that begins at the position bounds windows that
// start at the instant now.
func (c *Checkpoint) usable(p Position, now int64) bool {
	return p.At <= now-c.Reach
}

// Begin returns the position at which the history of the next process begins: the
// newest one from which its first windows have a share, or else the oldest.
func (c *Checkpoint) Begin(now int64) (begin Position, ok bool) {
	for _, p := range c.Positions {
		if !ok || c.usable(p, now) {
			begin, ok = p, true
		}
	}
	return begin, ok
}

// Of reports whether a store that answers at a revision may be the one that the
// process has followed: of the same cluster, and not put back.
func (c *Checkpoint) Of(cluster uint64, revision int64) bool {
	n := len(c.Positions)
	return cluster == c.Cluster && (n == 0 || revision >= c.Positions[n-1].Revision)
}

// wireCheckpoint is a checkpoint as it is written. Origin is where it counts: another
// boot, or another file, makes it void.
type wireCheckpoint struct {
	Schema int    `json:"schema"`
	Origin string `json:"origin"`
	Checkpoint
}

const checkpointSchema = 1

// Encode returns the checkpoint as text: a checksum and JSON, on one line.
func (c *Checkpoint) Encode(origin string) ([]byte, error) {
	b, err := json.Marshal(wireCheckpoint{checkpointSchema, origin, *c})
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(b), b), nil
}

// ReadCheckpoint reads what Encode returned; text after its line is ignored. The
// instant now is the host's monotonic clock. Anything missing or odd is an error.
func ReadCheckpoint(text []byte, origin string, now int64) (*Checkpoint, error) {
	line, _, whole := bytes.Cut(text, []byte("\n"))
	sum, b, _ := bytes.Cut(line, []byte(" "))
	if !whole || fmt.Sprintf("%08x", crc32.ChecksumIEEE(b)) != string(sum) {
		return nil, errors.New("checkpoint: the text is empty, torn or damaged")
	}
	var w wireCheckpoint
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	switch {
	case w.Schema != checkpointSchema:
		return nil, fmt.Errorf("checkpoint: schema %d is not the one this version knows, %d", w.Schema, checkpointSchema)
	case w.Origin != origin:
		return nil, errors.New("checkpoint: it is of another boot, another host or another file")
	case w.ID == "" || w.Created <= 0 || w.Key < w.Created || w.Reach < 0:
		return nil, fmt.Errorf("checkpoint: incarnation %q, created %d, key %d, reach %d do not go together", w.ID, w.Created, w.Key, w.Reach)
	}
	last := Position{At: -1, Revision: w.Created - 1}
	for _, p := range w.Positions {
		if p.At <= last.At || p.At > now || p.Revision <= last.Revision {
			return nil, fmt.Errorf("checkpoint: position %v after %v, at %d", p, last, now)
		}
		last = p
	}
	return &w.Checkpoint, nil
}
