package peers

import (
	"testing"
	"time"
)

func TestLineKeepsItsLimit(t *testing.T) {
	l := NewLine(3, time.Hour)
	for i := range 5 {
		if got, want := l.Try(), i < 3; got != want {
			t.Errorf("call %d: granted %v, want %v", i, got, want)
		}
	}
	l.limit.Store(4)
	if !l.Try() || l.Try() {
		t.Error("a raised limit counts at once, and only as far as it goes")
	}
}

// Every case can be called; that it measures what it says is up to its limits.
func TestCases(t *testing.T) {
	granted, err := Granted()
	if err != nil {
		t.Fatal(err)
	}
	refused, err := Refused()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(granted, refused...) {
		c.Call()
	}
}
