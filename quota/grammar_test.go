package quota

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestParseLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"300000/s", "300000/s"},
		{"300_000/s", "300000/s"},
		{"0/s", "0/s"},
		{"007/s", "7/s"},
		{"1_000_000_000_000/s", "1000000000000/s"},
		{"500/2s", "500/2s"},
		{"500/2000ms", "500/2s"},
		{"5/1_500ms", "5/1500ms"},
		{"10000/m", "10000/1m"},
		{"10000/60s", "10000/1m"},
		{"5/100ms", "5/100ms"},
		{"5000/h@17m", "5000/h@17m"},
		{"5000/60m@1020s , 80/s", "80/s,5000/h@17m"},
		{"10000/d@12:00", "10000/d@12:00"},
		{"10000/d@12h", "10000/d@12:00"},
		{"10000/1d @ 7:05:09", "10000/d@07:05:09"},
		{"5/12h@6:30", "5/12h@390m"},
		{"5/h@0m,6/d@00:00", "5/h,6/d"},
		{"80/s,5000/h sliding", "80/s,5000/h sliding"},
		{" 7/d  sliding\n, 5/61s sliding", "5/61s sliding,7/d sliding"},
		{"200 inflight hold=10m", "200 inflight hold=10m"},
		{" 1_000 in flight\thold = 3600s ", "1000 inflight hold=1h"},
		{"20 in-flight hold=4s", "20 inflight hold=4s"},
		{" \t7 / 2s , 5/s\r\n", "5/s,7/2s"},
		{"10000/1m,2000/10s,500/2s", "500/2s,2000/10s,10000/1m"},
		{"1/100ms,1/200ms,1/300ms,1/400ms,1/500ms,1/600ms,1/700ms,1/800ms", "1/100ms,1/200ms,1/300ms,1/400ms,1/500ms,1/600ms,1/700ms,1/800ms"},
	} {
		got, err := ParseLimits(test.text)
		if err != nil {
			t.Errorf("ParseLimits(%q): %v", test.text, err)
			continue
		}
		if FormatLimits(got) != test.want {
			t.Errorf("ParseLimits(%q) = %s, want %s", test.text, FormatLimits(got), test.want)
		}
	}
}

// A refusal says what is wrong in words that name the bound, and where: at is
// the part of the text at which it points.
func TestParseLimitsRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text, at, says string
	}{
		{"", "", "is empty"},
		{" \n", " \n", "is empty"},
		{"-1/s", "-1/s", "no sign"},
		{"+1/s", "+1/s", "no sign"},
		{"5/s,-1/2s", "-1/2s", "no sign"},
		{"5/0s", "0s", "shorter than the shortest, 100ms"},
		{"10/99ms", "99ms", "shorter than the shortest, 100ms"},
		{"5/60001ms", "60001ms", "has a part of a second"},
		{"5/30h", "30h", "longer than a day, and no month"},
		{"5/2d", "2d", "longer than a day, and no month"},
		{"5/30d", "30d", "longer than a day, and no month"},
		{"5/31d", "31d", "longer than a day, and no month"},
		{"5/2mo", "2mo", "longer than a day, and no month"},
		{"5/9223372036854775807d", "9223372036854775807d", "longer than a day"},
		{"5/99999999999999999999s", "99999999999999999999s", "longer than a day"},
		{"10^13/s", "^13/s", "neither a digit"},
		{"1000000000001/s", "1000000000001/s", "more than the most, 1000000000000"},
		{"10000000000001/s", "10000000000001/s", "more than the most, 1000000000000"},
		{"99999999999999999999999/s", "99999999999999999999999/s", "more than the most"},
		{"1e6/s", "e6/s", "neither a digit"},
		{"1.5/s", ".5/s", "permits are a whole number"},
		{"1__0/s", "__0/s", "neither a digit"},
		{"1_/s", "_/s", "neither a digit"},
		{"_1/s", "_1/s", "no number of permits"},
		{"5/s,6/1000ms", "6/1000ms", "two limits with a window of 1s"},
		{"5", "", "the window is missing"},
		{"5/h@", "@", `"" is no phase`},
		{"5/h@noon", "@noon", `"noon" is no phase`},
		{"5/d@24:00", "@24:00", `"24:00" is no phase`},
		{"5/d@-1h", "@-1h", `"-1h" is no phase`},
		{"5/h@60m", "@60m", "the phase 1h0m0s is not within a window of 1h"},
		{"80/s,5/h@12:00", "@12:00", "the phase 12h0m0s is not within a window of 1h"},
		{"5/s@1s", "@1s", "a window of 1s has no phase"},
		{"5/mo@12:00", "@12:00", "a month has no phase"},
		{"5/h@17m x", "x", "does not belong here"},
		{"5/h slide", "slide", `"slide" does not belong here`},
		{"5/h sliding x", "sliding x", `"s" does not belong here`},
		{"5/s sliding", "sliding", "a window of 1s does not slide by itself"},
		{"5/mo sliding", "sliding", "a month does not slide"},
		{"5/h@17m sliding", "sliding", "what slides has no phase"},
		{"5 inflight", "", "the longest time of a call is missing"},
		{"5 inflight 10m", "10m", `"10m" does not belong here`},
		{"5 inflight hold=", "", `"" is no hold`},
		{"5 inflight hold=1.5m", "1.5m", `"1.5m" is no hold`},
		{"5 inflight hold=4500ms", "4500ms", `"4500ms" is no hold`},
		{"5 inflight hold=3s", "3s", "the hold 3s is not from 4s to 1d"},
		{"5 inflight hold=2d", "2d", "the hold 48h0m0s is not from 4s to 1d"},
		{"5 inflight hold=999999999d", "999999999d", "is not from 4s to 1d"},
		{"5 inflight hold=10m sliding", "sliding", `"sliding" does not belong here`},
		{"0 inflight hold=10m", "0 inflight hold=10m", "needs at least one permit"},
		{"1000000000001 inflight hold=10m", "1000000000001 inflight hold=10m", "more than the most, 1000000000000"},
		{"5/s,5 inflight hold=10m", "5 inflight hold=10m", "has no other beside it"},
		{"5 inflight hold=10m,5/s", "5/s", "has no other beside it"},
		{"5 inflight hold=10m,6 inflight hold=5m", "6 inflight hold=5m", "has no other beside it"},
		{"5/", "", "no unit"},
		{"5/7", "", "no unit"},
		{"/s", "/s", "no number of permits"},
		{"5/y", "y", "no unit of a window"},
		{"5/S", "S", "no unit of a window"},
		{"5//s", "/s", "no unit of a window"},
		{"5/-1s", "-1s", "a window has no sign"},
		{"5/1.5s", ".5s", "whole number of its unit"},
		{"5/s,", "", "a limit is missing"},
		{"5/s,,6/2s", ",6/2s", "a limit is missing"},
		{"5/s;6/2s", "s;6/2s", "no unit of a window"},
		{"5/s 6/2s", "6/2s", "does not belong here"},
		{"５/s", "５/s", "no number of permits"},
		{"5/µs", "µs", "no unit of a window"},
		{"5\u00a0/s", "\u00a0/s", "neither a digit"},
		{"\xff/s", "\xff/s", "no number of permits"},
		{"1/100ms,1/200ms,1/300ms,1/400ms,1/500ms,1/600ms,1/700ms,1/800ms,1/s", "1/s", "more than 8 limits"},
	} {
		_, err := ParseLimits(test.text)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("ParseLimits(%q) = %v, want a *SyntaxError", test.text, err)
			continue
		}
		if got := test.text[syntax.Offset:]; got != test.at {
			t.Errorf("ParseLimits(%q) points at %q, want %q", test.text, got, test.at)
		}
		if !strings.Contains(syntax.Problem, test.says) || syntax.Hint == "" {
			t.Errorf("ParseLimits(%q): %v, want %q and a hint", test.text, err, test.says)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("ParseLimits(%q): %q has more than one line", test.text, err)
		}
	}
}

func TestParseLimitsBoundsWhatItQuotes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		strings.Repeat("9", 1<<20),
		"5/" + strings.Repeat("é", 1<<19),
		strings.Repeat(" ", 1<<20) + "5/s",
	} {
		_, err := ParseLimits(text)
		if err == nil || len(err.Error()) > 400 || !utf8.ValidString(err.Error()) {
			t.Errorf("%d bytes that begin with %q: %.500v", len(text), text[:4], err)
		}
	}
}

func TestPoint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"5/2y", "\"5/2y\"\n    ^"},
		{"5", "\"5\"\n  ^"},
		{"5/s,\t7/y", "\"5/s,\\t7/y\"\n         ^"},
	} {
		_, err := ParseLimits(test.text)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Point() != test.want {
			t.Errorf("ParseLimits(%q) points:\n%s\nwant:\n%s", test.text, syntax.Point(), test.want)
		}
	}
}

func TestLimitString(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit Limit
		want  string
	}{
		{Limit{Permits: 300_000, Window: time.Second}, "300000/s"},
		{Limit{Permits: 10_000, Window: time.Minute}, "10000/1m"},
		{Limit{Permits: 7, Window: 1500 * time.Millisecond}, "7/1500ms"},
		{Limit{Permits: 7, Window: 59 * time.Second}, "7/59s"},
		{Limit{Permits: 5000, Window: time.Hour}, "5000/h"},
		{Limit{Permits: 900, Window: 15 * time.Minute}, "900/15m"},
		{Limit{Permits: 900, Window: 90 * time.Minute}, "900/90m"},
		{Limit{Permits: 10_000, Window: day}, "10000/d"},
		{Limit{Permits: 1_000_000, Window: month}, "1000000/mo"},
		{Limit{}, "0/0s"}, // not valid, and told apart from "0/s"
		{Limit{Permits: 1, Window: 1500 * time.Microsecond}, "1/1.5ms"},
	} {
		if got := test.limit.String(); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

// anyLimits draws valid limits, sorted.
func anyLimits(t *rapid.T) []Limit {
	windows := rapid.SliceOfNDistinct(rapid.OneOf(rapid.Int64Range(100, 60_000), rapid.Map(rapid.Int64Range(61, 86_400), func(s int64) int64 { return s * 1000 })), 1, maxLimits, rapid.ID[int64]).Draw(t, "windows")
	slices.Sort(windows)
	var limits []Limit
	for _, w := range windows {
		l := Limit{Permits: rapid.Int64Range(0, MaxPermits).Draw(t, "permits"), Window: time.Duration(w) * time.Millisecond}
		if l.Window > MaxWindow {
			l.Permits = max(1, l.Permits)
			l.Phase = rapid.SampledFrom([]time.Duration{0, time.Second, time.Duration(rapid.Int64Range(0, w/1000-1).Draw(t, "phase")) * time.Second}).Draw(t, "phase or none")
		}
		limits = append(limits, l)
	}
	return limits
}

// What is written is read back the same, whatever the order of writing.
func TestLimitsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limits := anyLimits(t)
		if rapid.IntRange(0, 3).Draw(t, "in flight") == 0 {
			limits = []Limit{{Permits: max(1, limits[0].Permits), Window: max(minHold, limits[0].Window.Truncate(time.Second)), InFlight: true}}
		}
		text := FormatLimits(limits)
		shuffled := slices.Clone(limits)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for _, text := range []string{text, FormatLimits(shuffled)} {
			got, err := ParseLimits(text)
			if err != nil || !slices.Equal(got, limits) {
				t.Fatalf("%s: got %v, %v", text, got, err)
			}
		}
	})
}

func FuzzParseLimits(f *testing.F) {
	for _, text := range []string{"", "5/s", "500/2s,2000/10s,10000/1m", "1_000/1_500ms", " 5 / s ,", "5//s", "-1/s", "10^13/s", "５/s", "5/1.5s", "0/100s", "5/30d,1/mo", "1/36h", "5/h@17m,6/d@12:00", "5/2h@90m", "5/d@", "5/s@1s", "5/d@1:2", "5/h sliding,6/s sliding", "1/61s sliding", "5 inflight hold=4s", "5 in flight hold=1d,6/s", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := ParseLimits(text)
		if err != nil {
			checkSyntaxError(t, text, err)
			return
		}
		if err := (Policy{Limits: limits}).Validate(); err != nil {
			t.Fatalf("%q: parsed, but not valid: %v", text, err)
		}
		again, err := ParseLimits(FormatLimits(limits))
		if err != nil || !slices.Equal(again, limits) {
			t.Fatalf("%q: %v is written %s and read back as %v, %v", text, limits, FormatLimits(limits), again, err)
		}
	})
}

func checkSyntaxError(t *testing.T, text string, err error) {
	t.Helper()
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || syntax.Problem == "" || syntax.Hint == "" {
		t.Fatalf("%q: %#v is no complete *SyntaxError", text, err)
	}
	if syntax.Offset < 0 || syntax.Offset > len(syntax.Text) {
		t.Fatalf("%q: offset %d is outside", text, syntax.Offset)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Fatalf("%q: %q has more than one line", text, err)
	}
	shown, caret, ok := strings.Cut(syntax.Point(), "\n")
	if !ok || utf8.RuneCountInString(caret) > utf8.RuneCountInString(shown) {
		t.Fatalf("%q: the caret is beside the text:\n%s", text, syntax.Point())
	}
}

func ExampleParseLimits() {
	limits, err := ParseLimits("10_000/1m, 500/2s")
	fmt.Println(FormatLimits(limits), err)

	_, err = ParseLimits("500/2s,7/y")
	fmt.Println(err)
	if syntax, ok := errors.AsType[*SyntaxError](err); ok {
		fmt.Println(syntax.Point())
	}
	// Output:
	// 500/2s,10000/1m <nil>
	// limits "500/2s,7/y": "y" is no unit of a window; use ms, s, m (minute), h, d or mo (month), as in 5/s, 5/250ms or 5/15m
	// "500/2s,7/y"
	//           ^
}

// Numbers as people write them elsewhere get a hint of their own.
func TestParseLimitsHints(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1,000/s":      "write 1000/s; a comma separates two limits",
		"5/s,1,000/m":  "write 1000/1m; a comma separates two limits",
		"12,345,678/s": "write 12345678/s; a comma separates two limits",
		"1,000/y":      "write the number without commas; a comma separates two limits",
		"1e6/s":        "write the number out: 1000000/s", "5E+3 / 2s": "write the number out: 5000/2s",
		"1k/s": "write the number out: 1000/s", "3K/m": "write the number out: 3000/1m",
		"1M/s": "write the number out: 1000000/s", "2G/h": "write the number out: 2000000000/h",
		"7/2s,1k/s": "write the number out: 1000/s", "1e13/s": hintForm, "1e99/s": hintForm, "1k/y": hintForm, "1m/s": hintForm,
		"100ps": `put "/" between permits and window: 100/s`, "100 per second": `put "/" between permits and window: 100/s`,
		"100 s": `put "/" between permits and window: 100/s`, "100rps": `put "/" between permits and window: 100/s`,
		"100rpm": `put "/" between permits and window: 100/1m`, "100 per 2 seconds": `put "/" between permits and window: 100/2s`,
		"5 per month": `put "/" between permits and window: 5/mo`, "100 ms": hintForm, "3x/s": hintForm, "100 per cent": hintForm,
		"0.5/s": "as in 30/m for 0.5/s", "1,00/s": "", "0/h": "write 0/s to admit nothing",
	} {
		_, err := ParseLimits(text)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || want != "" && !strings.Contains(syntax.Hint, want) || want == "" && strings.Contains(syntax.Hint, "commas") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
