package view

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func fullCheckpoint() Checkpoint {
	return Checkpoint{
		ID: "worker.1a2b.1", Cluster: 1 << 63, Created: 10, Key: 12, From: time.Date(2027, 1, 1, 0, 0, 3, 0, time.UTC), Reach: 500,
		Positions: []Position{{At: 100, Revision: 12}, {At: 200, Revision: 39}, {At: 300, Revision: 41}},
	}
}

func TestACheckpointIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	want := fullCheckpoint()
	text, err := want.Encode("here")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadCheckpoint(append(text, "what was longer before"...), "here", 300)
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for n := range text {
		if c, err := ReadCheckpoint(text[:n], "here", 300); err == nil {
			t.Errorf("torn after %d bytes, it is %+v", n, c)
		}
		odd := bytes.Clone(text)
		odd[n] ^= 1
		if c, err := ReadCheckpoint(odd, "here", 300); err == nil {
			t.Errorf("with another byte %d, it is %+v", n, c)
		}
	}
}

func TestAnOddCheckpointIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(c *Checkpoint)
		place  string
		now    int64
		says   string
	}{
		{"as it is", func(*Checkpoint) {}, "here", 300, ""},
		{"another boot", func(*Checkpoint) {}, "there", 300, "another boot"},
		{"a clock that went back", func(*Checkpoint) {}, "here", 299, "position"},
		{"no incarnation", func(c *Checkpoint) { c.ID = "" }, "here", 300, "incarnation"},
		{"never created", func(c *Checkpoint) { c.Created = 0 }, "here", 300, "created 0"},
		{"a key older than itself", func(c *Checkpoint) { c.Key = 9 }, "here", 300, "key 9"},
		{"a negative reach", func(c *Checkpoint) { c.Reach = -1 }, "here", 300, "reach -1"},
		{"a position before the key", func(c *Checkpoint) { c.Positions[0].Revision = 9 }, "here", 300, "position"},
		{"positions out of order", func(c *Checkpoint) { c.Positions[1].At = 100 }, "here", 300, "position"},
		{"revisions out of order", func(c *Checkpoint) { c.Positions[2].Revision = 39 }, "here", 300, "position"},
		{"no positions", func(c *Checkpoint) { c.Positions = nil }, "here", 300, ""},
	} {
		c := fullCheckpoint()
		test.change(&c)
		text, err := c.Encode("here")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = ReadCheckpoint(text, test.place, test.now); (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.name, err, test.says)
		}
	}
}

// TestWhereTheNextProcessBegins: at the newest position from which its first windows
// have a share.
func TestWhereTheNextProcessBegins(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		now, want int64 // want is the revision
	}{
		{600, 12}, {699, 12}, {700, 39}, {799, 39}, {800, 41},
		{599, 12}, // too young: it has to wait
	} {
		c := fullCheckpoint()
		if p, ok := c.Begin(test.now); !ok || p.Revision != test.want {
			t.Errorf("at %d: %+v, %v, want revision %d", test.now, p, ok, test.want)
		}
	}
	if p, ok := new(Checkpoint).Begin(600); ok {
		t.Errorf("without a position it begins at %+v", p)
	}
}

// TestARestoredStoreIsNotContinued: it has another cluster ID, or is at a revision before
// the newest that the process had followed.
func TestARestoredStoreIsNotContinued(t *testing.T) {
	t.Parallel()
	c := fullCheckpoint()
	for _, test := range []struct {
		cluster  uint64
		revision int64
		want     bool
	}{{c.Cluster, 41, true}, {c.Cluster, 40, false}, {c.Cluster + 1, 41, false}} {
		if got := c.Of(test.cluster, test.revision); got != test.want {
			t.Errorf("cluster %d at revision %d: %v", test.cluster, test.revision, got)
		}
	}
}

// TestACheckpointForgetsWhatNobodyNeeds: the positions stay few, and the one at which
// the next process begins is the same as if all had been kept.
func TestACheckpointForgetsWhatNobodyNeeds(t *testing.T) {
	t.Parallel()
	c, all := Checkpoint{ID: "a", Created: 1, Key: 1, Reach: 4000}, Checkpoint{Created: 1, Reach: 4000}
	for now := int64(1000); now < 500_000; now += 1000 {
		p := Position{At: now, Revision: now / 500}
		c.Note(p)
		c.Note(Position{At: now + 1, Revision: p.Revision}) // says less
		all.Positions = append(all.Positions, p)
		got, _ := c.Begin(now)
		if want, _ := all.Begin(now); got != want {
			t.Fatalf("at %d: %+v, want %+v", now, got, want)
		}
	}
	if n := len(c.Positions); n > 40 {
		t.Errorf("%d positions", n)
	}
	for c.Reach = 1_000_000; c.Positions[len(c.Positions)-1].At < 1_000_000; {
		last := c.Positions[len(c.Positions)-1]
		c.Note(Position{At: last.At + 1000, Revision: last.Revision + 1})
	}
	text, err := c.Encode(strings.Repeat("x", 100))
	if n := len(c.Positions); n != maxPositions || err != nil || len(text) > MaxCheckpointBytes {
		t.Errorf("%d positions, want %d, in %d bytes, at most %d: %v", n, maxPositions, len(text), MaxCheckpointBytes, err)
	}
}

func FuzzReadCheckpoint(f *testing.F) {
	c := fullCheckpoint()
	text, err := c.Encode("here")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, int64(300))
	f.Add([]byte("00000000 \n"), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, now int64) {
		c, err := ReadCheckpoint(text, "here", now)
		if err != nil {
			return
		}
		again, err := c.Encode("here")
		if err != nil {
			t.Fatal(err)
		}
		if d, err := ReadCheckpoint(again, "here", now); err != nil || fmt.Sprint(*d) != fmt.Sprint(*c) {
			t.Fatalf("%+v became %+v, %v", c, d, err)
		}
		if p, ok := c.Begin(now); ok && p.At > now {
			t.Fatalf("%+v begins at %+v, at %d", c, p, now)
		}
		c.Note(Position{At: now, Revision: 1 << 62})
	})
}
