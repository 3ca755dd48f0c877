package config

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// The window of the longest limit ends when it was asked to.
func TestTheClocksAreSetAhead(t *testing.T) {
	c, err := ParseFlags(strings.Fields("--limit 5/s,100/2m,100/h --window-offset 90m"), noEnv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	c.SetAhead()
	took := time.Since(before)
	ends := before.Add(c.Ahead + 90*time.Minute)
	if early := ends.Truncate(time.Hour).Add(time.Hour).Sub(ends); early > took || c.Ahead < 0 || c.Ahead > time.Hour {
		t.Errorf("%v ahead: the hour ends %v early", c.Ahead, early)
	}
}

// A page has ten bands at most, and each instance is in the one that names it.
func TestBands(t *testing.T) {
	for n := 1; n <= 300; n++ {
		c := &Config{Instances: n}
		names, next := c.Bands(), 0
		for i, name := range names {
			first, last := next, next
			if k, err := fmt.Sscanf(name, "instances %d to %d", &first, &last); err != nil && k == 0 {
				if _, err := fmt.Sscanf(name, "instance %d", &first); err != nil {
					t.Fatal(err)
				}
				last = first
			}
			if first != next {
				t.Fatalf("%q of %d does not follow %d", name, n, next-1)
			}
			for ; next <= last; next++ {
				if c.Band(next) != i {
					t.Errorf("instance %d of %d is in band %d, not in %q", next, n, c.Band(next), name)
				}
			}
		}
		if next != n || len(names) > mostBands {
			t.Errorf("%d bands of %d instances: %q", len(names), n, names)
		}
	}
}
