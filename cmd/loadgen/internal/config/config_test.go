package config

import (
	"fmt"
	"testing"
)

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
