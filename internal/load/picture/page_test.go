package picture

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/golden"
	"github.com/quotient-limiter/quotient/internal/load"
)

// sample is a run of 20 s with a change on the way.
func sample() *load.Report {
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &load.Report{
		WindowNs: int64(time.Second), Began: start.Add(2 * time.Second), Verdict: load.Held,
		Events:  []load.Event{{At: start.Add(6 * time.Second), Text: "24 instances crash"}},
		Within:  &load.Within{BucketNs: 100e6, Mean: make([]float64, 10), Most: make([]int64, 10)},
		Acquire: []load.Quantile{{Part: 0, Ns: 90}, {Part: 0.5, Ns: 110}, {Part: 0.99, Ns: 900}, {Part: 1, Ns: 5e6}},
		Delay:   []load.Quantile{{Part: 0, Ns: 0}, {Part: 0.9, Ns: 20e6}, {Part: 1, Ns: 99e6}},
		Shares:  new(load.Shares),
		Rolling: []load.Moment{{At: start.Add(3 * time.Second).UnixNano(), Permits: 300000}, {At: start.Add(4 * time.Second).UnixNano(), Permits: 500000}, {At: start.Add(9 * time.Second).UnixNano(), Permits: 100000}},
	}
	for i := range 20 {
		at := start.Add(time.Duration(i) * time.Second)
		r.Windows = append(r.Windows, load.Window{Start: at, Limit: 300000, Offered: 450000, Issued: int64(200000 + 5000*i), Instances: 96})
		r.Shares.Record(at.UnixNano(), map[load.Holder]int64{{Slot: 0}: 100000, {Slot: 1}: 200000})
	}
	r.Within.Mean[0], r.Within.Most[0] = 270000, 300000
	return r
}

func page(t *testing.T, p *Page) string {
	t.Helper()
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPage(t *testing.T) {
	got := page(t, &Page{Title: "96 instances share 300000/s", Verdict: "HELD: all of it", Report: sample(),
		Facts: []Fact{{"whole windows", "20"}}, Asked: []Fact{{"limit", "300000/s"}}})
	golden.Check(t, "page.html", got)
	if n := strings.Count(got, "<h2>"); n != 6 {
		t.Errorf("%d charts, want 6", n)
	}
}

// Nothing that a run was given becomes part of the page's own text, nothing is
// loaded, and the policy allows exactly the page's own style.
func TestThePageIsClosed(t *testing.T) {
	const hostile = `"><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>`
	r := sample()
	r.Events[0].Text = hostile
	for i := range r.Windows {
		r.Windows[i].Length = hostile
	}
	got := page(t, &Page{Title: hostile, Verdict: hostile, Report: r, Facts: []Fact{{hostile, hostile}}, Asked: []Fact{{hostile, hostile}}})
	for _, never := range []string{"<script", "<img", "<iframe", " style=", " onerror=alert(1)>", "src="} {
		for line := range strings.SplitSeq(got, "\n") {
			if strings.Contains(line, never) && !strings.Contains(line, "&lt;img src=") {
				t.Errorf("there is %s in the page: %.200s", never, line)
			}
		}
	}
	if n := strings.Count(got, "<script") + strings.Count(got, "<img"); n != 0 {
		t.Errorf("%d tags that are not ours", n)
	}
	_, after, _ := strings.Cut(got, "<style>")
	style, _, _ := strings.Cut(after, "</style>")
	hash := sha256.Sum256([]byte(style))
	if want := "sha256-" + base64.StdEncoding.EncodeToString(hash[:]); !strings.Contains(strings.ReplaceAll(got, "&#43;", "+"), want) {
		t.Errorf("the policy does not name %s", want)
	}
}

// A run of which nothing was seen still has a page.
func TestAnEmptyRun(t *testing.T) {
	got := page(t, &Page{Title: "none", Verdict: "UNKNOWN", Report: &load.Report{WindowNs: 1e9, Shares: new(load.Shares)}})
	if !strings.Contains(got, "UNKNOWN") || strings.Contains(got, "<h2>") || strings.Contains(got, "NaN") {
		t.Error(got)
	}
}

// Of a long run no window over its limit is lost to sight.
func TestALongRunShowsWhatIsOver(t *testing.T) {
	r := sample()
	first := r.Windows[0]
	r.Windows = nil
	for i := range 5000 {
		w := first
		w.Start = first.Start.Add(time.Duration(i) * time.Second)
		if i == 3333 {
			w.Issued = 2 * w.Limit
		}
		r.Windows = append(r.Windows, w)
	}
	c := Rate(r, "")
	last := c.Series[len(c.Series)-1]
	if last.Name != "over the limit" || len(last.Points) > 2*mostSteps+2 {
		t.Fatalf("%q, %d points", last.Name, len(last.Points))
	}
	over := 0
	for _, p := range last.Points {
		if p.Y > p.Base {
			over++
		}
	}
	if over != 2 {
		t.Errorf("%d points over the limit", over)
	}
}

// A demand far beyond the limit does not flatten what was issued.
func TestDemandDoesNotFlattenTheChart(t *testing.T) {
	r := sample()
	for i := range r.Windows {
		r.Windows[i].Offered *= 1000
	}
	if c := Rate(r, ""); c.Y.Max > 4*300000 {
		t.Errorf("the axis goes to %v", c.Y.Max)
	}
}
