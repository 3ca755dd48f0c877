package load

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// However long a run is, the samples stay few; and however many instances there
// are, the bands stay few and add up to what was held.
func TestSharesStaySmall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Shares
		sums := map[int64]int64{}
		now, step := int64(0), rapid.Int64Range(int64(10*time.Millisecond), int64(time.Second)).Draw(t, "step")
		n := rapid.IntRange(1, 30).Draw(t, "instances")
		leaves := rapid.IntRange(1, 3000).Draw(t, "leaves")
		for i := range rapid.IntRange(0, 3000).Draw(t, "looks") {
			held := map[Holder]int64{}
			for slot := range n {
				h := Holder{Slot: slot}
				if i > leaves {
					h.Since = int64(slot % 2) // every other one was replaced
				}
				held[h] = int64(i%7 + slot)
				sums[now] += held[h]
			}
			s.Record(now, held)
			now += step
		}
		most := rapid.IntRange(1, 12).Draw(t, "most")
		at, bands := s.Bands(most)
		if len(at) > mostSamples || len(bands) > most {
			t.Fatalf("%d samples, %d bands", len(at), len(bands))
		}
		for i := range at {
			var sum int64
			for _, b := range bands {
				sum += b.Sums[i]
			}
			if sum != sums[at[i]] {
				t.Fatalf("at %d: %d, want %d", at[i], sum, sums[at[i]])
			}
			if i > 0 && at[i] <= at[i-1] {
				t.Fatalf("%d after %d", at[i], at[i-1])
			}
		}
	})
}

// First come, lowest; and of those, who left first.
func TestBandsAreInOrderOfComing(t *testing.T) {
	var s Shares
	stays, leaves, comes := Holder{Slot: 1}, Holder{Slot: 2}, Holder{Slot: 0, Since: 5}
	s.Record(0, map[Holder]int64{stays: 10, leaves: 20})
	s.Record(int64(time.Second), map[Holder]int64{stays: 10, comes: 30})
	_, bands := s.Bands(10)
	if len(bands) != 3 || bands[0].Sums[0] != 20 || bands[1].Sums[0] != 10 || bands[2].Sums[1] != 30 {
		t.Errorf("%+v", bands)
	}
	if _, folded := s.Bands(2); len(folded) != 2 || folded[0].Holders != 2 || folded[0].Sums[0] != 30 {
		t.Errorf("%+v", folded)
	}
}
