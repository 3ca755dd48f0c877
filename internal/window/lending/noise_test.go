package lending

import "testing"

// Two hundred instances ask fifty samples a second, by what each hears, and one alone as many as it likes.
func TestSamplesAreBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what   string
		n      int
		every  float64 // milliseconds between two wishes to ask a sample, of all instances together
		most   int     // that are asked in ten seconds
		fewest int
	}{
		{"all of 200 in each window", 200, 5, 600, 450},
		{"one of 200, twelve times a second", 200, 1000. / 12, 120, 120},
		{"one of 1000, twelve times a second", 1000, 1000. / 12, 120, 120},
		{"all of 1000 in each window", 1000, 1, 400, 300},
		{"all of 24, ten times a second", 24, 1000. / 240, 2401, 2350},
	} {
		var noise Noise
		asked := 0
		for at := 0.; at < 10_000; at += test.every {
			if !noise.TooMuch(at, RulesOf(test.n, test.n)) {
				noise.Heard(at)
				asked++
			}
		}
		if asked > test.most || asked < test.fewest {
			t.Errorf("%s: %d samples in ten seconds, not %d to %d", test.what, asked, test.fewest, test.most)
		}
	}
}

// What is heard late counts as of the latest one, and after a silence nothing counts.
func TestNoiseFades(t *testing.T) {
	t.Parallel()
	var noise Noise
	rules := Rules{Samples: 3}
	for _, at := range []float64{100, 90, 100} {
		noise.Heard(at)
	}
	if !noise.TooMuch(100, rules) {
		t.Error("three at once are not too many")
	}
	if noise.TooMuch(600, rules) || noise.TooMuch(1e9, rules) {
		t.Error("they count after they have faded")
	}
}
