package show

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

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
		Shares:  &load.Shares{Names: []string{"instance 0", "instance 1"}},
		Rolling: []load.Moment{{At: start.Add(3 * time.Second).UnixNano(), Permits: 300000}, {At: start.Add(4 * time.Second).UnixNano(), Permits: 500000}, {At: start.Add(9 * time.Second).UnixNano(), Permits: 100000}},
	}
	for i := range 20 {
		at := start.Add(time.Duration(i) * time.Second)
		r.Windows = append(r.Windows, load.Window{Start: at, Limit: 300000, Offered: 450000, Issued: int64(200000 + 5000*i), Instances: 96})
		r.Shares.At, r.Shares.Sums = append(r.Shares.At, at.UnixNano()), append(r.Shares.Sums, []int64{100000, 200000})
	}
	r.Within.Mean[0], r.Within.Most[0] = 270000, 300000
	return r
}

func page(t *testing.T, title string, r *load.Report) string {
	t.Helper()
	var b strings.Builder
	if err := Page(&b, title, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// between returns what is in a text from one mark to another.
func between(text, from, to string) string {
	_, after, _ := strings.Cut(text, from)
	before, _, _ := strings.Cut(after, to)
	return before
}

// drawn is a chart as the page's script reads it.
type drawn struct {
	Title string
	At    []float64
	Lines []struct {
		Name   string
		Values []*float64
		Stack  bool
	}
	Marks []struct{ Text string }
}

// charts returns what the page gives its script to draw.
func charts(t *testing.T, page string) (list []drawn) {
	t.Helper()
	if err := json.Unmarshal([]byte(between(page, `<script type="application/json" id="figures">`, "</script>")), &list); err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		for i := range c.At {
			if i > 0 && c.At[i] <= c.At[i-1] {
				t.Errorf("%s: x does not rise: %v", c.Title, c.At)
			}
		}
		for _, l := range c.Lines {
			if len(l.Values) != len(c.At) {
				t.Errorf("%s, %s: %d values at %d places", c.Title, l.Name, len(l.Values), len(c.At))
			}
		}
	}
	return list
}

func TestPage(t *testing.T) {
	got := page(t, "96 instances share 300000/s", sample())
	want := []struct{ title, lines string }{
		{"Issued and limit, per second", "issued offered limit"},
		{"Permits in a sliding window of 1s", "issued in the last 1s limit"},
		{"Permits within a window", "maximum mean"},
		{"Acquire latency", "nanoseconds"},
		{"Wait time", "milliseconds"},
		{"Shares, stacked by instance", "instance 0 instance 1 limit"},
	}
	list := charts(t, got)
	if len(list) != len(want) || strings.Count(got, "<h2>") != len(want) {
		t.Fatalf("%d charts", len(list))
	}
	for i, c := range list {
		var names []string
		for _, l := range c.Lines {
			names = append(names, l.Name)
		}
		if c.Title != want[i].title || strings.Join(names, " ") != want[i].lines {
			t.Errorf("chart %d: %q with %q", i, c.Title, names)
		}
	}
	if c := list[0]; len(c.At) != 21 || *c.Lines[0].Values[3] != 215000 || len(c.Marks) != 1 || c.Marks[0].Text != "24 instances crash" {
		t.Errorf("%+v", list[0])
	}
	for _, is := range []string{"<h1>96 instances share 300000/s</h1>", `class="verdict held">HELD: `, "<td>295,000</td>"} {
		if !strings.Contains(got, is) {
			t.Errorf("no %s on the page", is)
		}
	}
}

// Nothing that a run was given becomes part of the page's own text or script, the
// page loads nothing, and its policy allows exactly its own style and script.
func TestThePageIsClosed(t *testing.T) {
	const hostile = `"></script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>`
	r := sample()
	r.Events[0].Text = hostile
	r.Config = map[string]string{"limit": hostile}
	for i := range r.Windows {
		r.Windows[i].Length = hostile
	}
	got := page(t, hostile, r)
	if n := strings.Count(got, "<script"); n != 2 {
		t.Errorf("%d scripts, want the data and ours", n)
	}
	ours, style := between(got, "</script>\n<script>", "</script>"), between(got, "<style>", "</style>")
	for _, never := range []string{"<img", "<iframe", "<link", " style="} {
		if strings.Contains(strings.ReplaceAll(got, ours, ""), never) {
			t.Errorf("there is %s in the page", never)
		}
	}
	policy := strings.ReplaceAll(between(got, `http-equiv="Content-Security-Policy" content="`, `"`), "&#43;", "+")
	want := "default-src &#39;none&#39;; style-src &#39;" + sum(style) + "&#39;; script-src &#39;" + sum(ours) + "&#39;"
	if policy != want {
		t.Errorf("the policy is %s, want %s", policy, want)
	}
	if list := charts(t, got); list[0].Marks[0].Text != hostile {
		t.Errorf("%+v", list[0].Marks)
	}
}

// A run of which nothing was seen still has a page.
func TestAnEmptyRun(t *testing.T) {
	got := page(t, "none", &load.Report{WindowNs: 1e9, Shares: new(load.Shares), Summary: load.Summary{Unjudged: []string{"no whole window was seen"}}})
	if !strings.Contains(got, "UNKNOWN: no whole window") || strings.Contains(got, "<h2>") || len(charts(t, got)) != 0 {
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
	c := charts(t, page(t, "long", r))[0]
	last := c.Lines[len(c.Lines)-1]
	over := 0
	for _, v := range last.Values {
		if v != nil {
			over++
		}
	}
	if last.Name != "over the limit" || len(c.At) > mostSteps+1 || over != 1 {
		t.Errorf("%q, %d places, %d over", last.Name, len(c.At), over)
	}
}

// A demand far beyond the limit does not flatten what was issued.
func TestDemandDoesNotFlattenTheChart(t *testing.T) {
	r := sample()
	for i := range r.Windows {
		r.Windows[i].Offered *= 1000
	}
	if f := figures(r)[0]; f.Most > 4*300000 {
		t.Errorf("the axis goes to %v", f.Most)
	}
}
