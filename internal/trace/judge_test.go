package trace

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	epoch  = 1_700_000_000 * second // a window's start
)

// tape is the trace of one process with one limiter, in the making. Instants are since
// epoch.
type tape struct {
	t     *testing.T
	self  string
	lines []line
	// killed says that the process was killed.
	killed bool
}

func (p *tape) add(at int64, l line) {
	l.At, l.Number, l.Stream = epoch+at, int64(len(p.lines)+1), 1
	p.lines = append(p.lines, l)
}

func record(t *testing.T, self string, at int64) *tape {
	p := &tape{t: t, self: self}
	p.add(at, line{Kind: kindTrace, Version: Version})
	p.add(at, line{Kind: kindOpen, Provider: "p"})
	return p
}

func (p *tape) content(at int64, w *content) uint64 {
	text, _ := json.Marshal(w)
	sum := uint64(len(text))
	for _, c := range text {
		sum = sum*31 + uint64(c)
	}
	p.add(at, line{Kind: kindView, Sum: sum, View: w})
	return sum
}

func (p *tape) reset(at int64, v protocol.View) {
	sum := p.content(at, ofView(&v))
	p.add(at, line{Kind: kindReset, Self: p.self, Sum: sum, Revision: v.Revision})
}

func (p *tape) apply(at int64, c protocol.Change) {
	sum := p.content(at, ofChange(&c))
	p.add(at, line{Kind: kindApply, Sum: sum, Revision: c.Revision})
}

func (p *tape) prove(at, sent int64) { p.add(at, line{Kind: kindProof, Sent: epoch + sent}) }

// plan says what is booked of the window of a second that runs at the instant at.
func (p *tape) plan(at, bound, used int64) {
	p.add(at, line{Kind: kindPlan, Uses: []wireUse{{second, (epoch + at) / second, bound, used, 0}}})
}

func (p *tape) close(at int64) { p.add(at, line{Kind: kindClose}) }

func (p *tape) text() []byte {
	var b bytes.Buffer
	for _, l := range p.lines {
		text, err := json.Marshal(l)
		if err != nil {
			p.t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	return b.Bytes()
}

func judged(t *testing.T, tapes ...*tape) *Report {
	t.Helper()
	r := &Run{}
	for _, p := range tapes {
		if err := r.Add(bytes.NewReader(p.text()), p.killed); err != nil {
			t.Fatal(err)
		}
	}
	return r.Judge()
}

// policy limits to so many a second.
func policy(permits int64) *quota.Policy {
	p := quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Outage: quota.OutageStop}.WithDefaults()
	return &p
}

func instances(names ...string) (all []protocol.Instance) {
	for _, n := range names {
		all = append(all, protocol.Instance{ID: n, Name: n})
	}
	return all
}

// two are the tapes of two instances that have held view 5 of 100 permits since the epoch,
// and prove it ten times a second until the second number end.
func two(t *testing.T, end int64, applied func(i int, p *tape, at int64)) []*tape {
	var tapes []*tape
	for i, name := range []string{"a", "b"} {
		p := record(t, name, 0)
		p.reset(0, protocol.View{Revision: 5, Policy: policy(100), PolicyRevision: 5, Instances: instances("a", "b")})
		for at := 100 * ms; at < end*second; at += 100 * ms {
			applied(i, p, at)
			p.prove(at+2*ms, at+ms)
		}
		tapes = append(tapes, p)
	}
	return tapes
}

func TestTheJudge(t *testing.T) {
	t.Parallel()
	cut := protocol.Change{Revision: 9, Policy: policy(40)}
	for _, c := range []struct {
		name string
		// what each of two instances does, at every tenth of a second
		play   func(i int, p *tape, at int64)
		open   bool // the traces do not end
		killed bool // because their processes were killed
		report string
	}{
		{name: "within the total", play: func(_ int, p *tape, at int64) {
			if at == 10*second {
				p.plan(at, 50, 50)
			}
		}, report: "TRACE HELD: 1 windows held by 1 views of 2 limiters"},
		{name: "beyond its own plan", play: func(i int, p *tape, at int64) {
			if at == 10*second {
				p.plan(at, 50, 50+int64(i))
			}
		}, report: "window of 1s from 22:13:30.000: 101 permits, at most 100 by view 5; b issued 51 of 50, and its own plan allowed 50"},
		{name: "by an old view", play: func(i int, p *tape, at int64) {
			if at == 5*second {
				p.apply(at, cut)
			}
			if at == 10*second {
				p.plan(at, 50-30*int64(i), 50-30*int64(i))
			}
		}, report: "window of 1s from 22:13:30.000: 70 permits, at most 40 by view 9; a issued 50 of 20 and went by view 5; b issued 20 of 20 and went by view 9"},
		{name: "a cut within the window does not bind it", play: func(_ int, p *tape, at int64) {
			if at == 10*second {
				p.plan(at, 50, 50)
			}
			if at == 10*second+200*ms {
				p.apply(at, cut)
			}
		}, report: "TRACE HELD: 1 windows held by 2 views of 2 limiters"},
		{name: "a raise within the window counts at once", play: func(_ int, p *tape, at int64) {
			if at == 10*second+200*ms {
				p.apply(at, protocol.Change{Revision: 9, Policy: policy(300)})
				p.plan(at, 150, 150)
			}
		}, report: "TRACE HELD: 1 windows held by 2 views of 2 limiters"},
		{name: "but no more than it", play: func(_ int, p *tape, at int64) {
			if at == 10*second+200*ms {
				p.apply(at, protocol.Change{Revision: 9, Policy: policy(300)})
				p.plan(at, 151, 151)
			}
		}, report: "window of 1s from 22:13:30.000: 302 permits, at most 300 by view 9; "},
		{name: "a killed instance may have issued more", open: true, killed: true, play: func(i int, p *tape, at int64) {
			if at == 10*second {
				p.plan(at, 50+10*int64(i), 40)
			}
		}, report: "UNKNOWN: no window could be judged; 0 windows held by 1 views of 2 limiters; undecided: 1 (an instance was killed); an undecided one may be over its bound by 10 permits"},
		{name: "a killed instance had issued all that it could", open: true, killed: true, play: func(_ int, p *tape, at int64) {
			if at == 10*second {
				p.plan(at, 50, 50)
			}
		}, report: "TRACE HELD: 1 windows held by 1 views of 2 limiters"},
		{name: "nobody says that an instance was killed", open: true, play: func(_ int, p *tape, at int64) {
			if at == 10*second || at == 13*second {
				p.plan(at, 50, 50)
			}
		}, report: "TRACE UNKNOWN: 1 of 2 windows could not be judged; 1 windows held by 1 views of 2 limiters; undecided: 1 (a trace ends before its limiter was closed)"},
		{name: "a window that is over is over", open: true, play: func(_ int, p *tape, at int64) {
			if at == 13*second {
				p.plan(at, 51, 51)
			}
		}, report: "102 permits, at most 100 by view 5"},
		{name: "a revision that one lacks", play: func(i int, p *tape, at int64) {
			if at == 5*second && i == 0 {
				p.apply(at, cut)
			}
			if at == 6*second {
				p.apply(at, protocol.Change{Revision: 11, Put: instances("a")})
			}
			if at == 10*second {
				p.plan(at, 20+30*int64(i), 20+30*int64(i))
			}
		}, report: "at most 40 by view 11; b issued 50 of 20 and went by view 5 (it never applied view 9); a issued 20 of 20 and went by view 11"},
		{name: "an instance without a trace", play: func(_ int, p *tape, at int64) {
			if at == second {
				p.apply(at, protocol.Change{Revision: 9, Put: instances("c")})
			}
			if at == 10*second {
				p.plan(at, 33, 33)
			}
		}, report: "undecided: 1 (an instance left no trace)"},
		{name: "a clock beyond its bound", play: func(_ int, p *tape, at int64) {
			if at == 10*second {
				p.plan(at, 60, 60)
				p.lines[len(p.lines)-1].Off = second
			}
		}, report: "nothing promised: 1 (a clock was further off than the clock error)"},
		{name: "permits that a host has lent count at the host", play: func(i int, p *tape, at int64) {
			if at == 10*second {
				p.plan(at, 50+20*int64(i), 50+20*int64(i))
				p.lines[len(p.lines)-1].Uses[0][4] = 20 * int64(i)
			}
		}, report: "TRACE HELD: 1 windows held"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tapes := two(t, 14, c.play)
			for _, p := range tapes {
				if p.killed = c.killed; !c.open {
					p.close(14 * second)
				}
			}
			if got := judged(t, tapes...).String(); !strings.Contains(got, c.report) {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.report)
			}
		})
	}
}

// A store that forgets a commit is no reason to call a window over. What is listed before
// the last sign of the old line belongs to that.
func TestARestoreIsTold(t *testing.T) {
	t.Parallel()
	view := func(revision, total int64) protocol.View {
		return protocol.View{Revision: revision, Policy: policy(total), PolicyRevision: 5, Instances: instances("a", "b")}
	}
	tapes := two(t, 14, func(i int, p *tape, at int64) {
		switch at {
		case 4 * second:
			p.reset(at, view(8, 100))
		case 5 * second:
			p.apply(at, protocol.Change{Revision: 9, Policy: policy(40)})
		case 6*second - 500*ms*int64(i): // the one that is first has not seen it go back
			p.reset(at, view(7+2*int64(i), 100))
		case 7 * second:
			if i == 0 {
				p.apply(at, protocol.Change{Revision: 8, Policy: policy(100), Put: instances("c")})
			}
			p.apply(at, protocol.Change{Revision: 10, Policy: policy(100)})
		case 8 * second:
			p.plan(at, 50, 50)
		}
	})
	first := tapes[0]
	first.lines = slices.DeleteFunc(first.lines, func(l line) bool {
		return l.Kind == kindProof && l.Sent > epoch+5*second && l.Sent < epoch+6*second
	})
	for n := range first.lines {
		first.lines[n].Number = int64(n + 1)
	}
	if got := judged(t, tapes...); got.Over > 0 || got.Held > 0 || got.Problem != "" {
		t.Error(got)
	}
}

// A restored store may come to the revision that all have known before they look at it.
func TestARestoreToTheSameRevision(t *testing.T) {
	t.Parallel()
	tapes := two(t, 14, func(_ int, p *tape, at int64) {
		if at == 5*second {
			p.apply(at, protocol.Change{Revision: 9, Put: instances("c")})
		}
		if at == 6*second {
			p.self += "2"
			p.reset(at, protocol.View{Revision: 9, Policy: policy(100), PolicyRevision: 2, Instances: instances("a2", "b2")})
		}
		if at == 10*second {
			p.plan(at, 50, 50)
		}
	})
	if got := judged(t, tapes...); got.Over > 0 || got.Held != 1 || got.Problem != "" {
		t.Error(got)
	}
}

// An outage under hold promises the total where all have held one view, and nothing else.
func TestHold(t *testing.T) {
	t.Parallel()
	hold := *policy(100)
	hold.Outage = quota.OutageHold
	play := func(changed bool) *Report {
		var tapes []*tape
		for i, name := range []string{"a", "b"} {
			p := record(t, name, 0)
			p.reset(0, protocol.View{Revision: 5, Policy: &hold, PolicyRevision: 5, Instances: instances("a", "b")})
			for at := 100 * ms; at < 5*second; at += 100 * ms {
				p.prove(at+2*ms, at+ms)
			}
			if changed && i == 0 {
				p.apply(6*second, protocol.Change{Revision: 9, Deleted: []string{"b"}})
			}
			p.plan(10*second, 70, 70)
			p.close(14 * second)
			tapes = append(tapes, p)
		}
		return judged(t, tapes...)
	}
	if r := play(false); r.Over != 1 {
		t.Error("all held one view:", r)
	}
	if r := play(true); r.Over != 0 || r.Unpromised["an instance held its share without etcd"] != 1 {
		t.Error("one went on:", r)
	}
}

func TestBrokenTraces(t *testing.T) {
	t.Parallel()
	whole := two(t, 2, func(int, *tape, int64) {})[0]
	text := whole.text()
	lines := strings.SplitAfter(string(text), "\n")
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "it has no whole line"},
		{"torn in its first line", lines[0][:20], "it has no whole line"},
		{"a line is missing", lines[0] + strings.Join(lines[2:], ""), "line 2 has the number 3: lines are missing"},
		{"another version", strings.Replace(string(text), `"version":1`, `"version":2`, 1), "line 1: version 2 is not the one this version knows, 1"},
		{"no version", `{"n":1,"kind":"open"}` + "\n", `line 1: the kind "open" is not expected here`},
		{"not JSON", string(text) + "}\n", "is no line of a trace"},
		{"an unknown kind", lines[0] + lines[1] + `{"n":3,"kind":"sing","stream":1}` + "\n", `line 3: the kind "sing" is unknown`},
		{"an unknown stream", lines[0] + `{"n":2,"kind":"proof","stream":7}` + "\n", "line 2: stream 7 is not open"},
		{"no content", lines[0] + lines[1] + `{"n":3,"kind":"reset","stream":1,"revision":4,"sum":3}` + "\n", "line 3: the content of view 4 is missing"},
		{"a change of nothing", lines[0] + lines[1] + lines[2] + strings.NewReplacer(`"reset"`, `"apply"`).Replace(lines[3]), "line 4: a change comes before the first view"},
		{"a proof of nothing", lines[0] + lines[1] + `{"n":3,"kind":"proof","stream":1}` + "\n", "line 3: a proof comes before the first view"},
		{"a window of no length", lines[0] + lines[1] + `{"n":3,"kind":"plan","stream":1,"uses":[[0,1,2,3,0]]}` + "\n", "line 3: a window of 0s"},
		{"an endless line", lines[0] + strings.Repeat(" ", maxLine+1), "line 2 is longer than 33554432 bytes"},
	} {
		r := &Run{}
		if err := r.Add(strings.NewReader(c.text), false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	// What a killed process was writing is left out.
	r := &Run{}
	if err := r.Add(strings.NewReader(string(text)+`{"n":99,"ki`), true); err != nil || len(r.streams) != 1 {
		t.Errorf("a torn last line: %v", err)
	}
	if got := JudgeDir(t.TempDir()); got.OK() || !strings.Contains(got.String(), "TRACE UNKNOWN") {
		t.Errorf("no files: %v", got)
	}
	other := two(t, 2, func(_ int, p *tape, at int64) {
		if at == second {
			p.apply(at, protocol.Change{Revision: 9, Policy: policy(int64(len(p.self)) + at)})
		}
	})
	other[1].lines = slices.Clone(other[0].lines)
	for i := range other[1].lines {
		if l := &other[1].lines[i]; l.Revision == 9 || l.View != nil && l.View.Revision == 9 {
			l.Sum++
		}
	}
	if got := judged(t, other...).Problem; !strings.Contains(got, "applied different changes of revision 9") {
		t.Errorf("two changes of one revision: %q", got)
	}
}

var seedFlag = flag.Uint64("seed", 0, "the history that TestTheJudgeAgainstTheDefinition plays; 0: 400 others")

// commit is a change of the limit, and when it was made.
type commit struct{ at, permits int64 }

// star is T* by the letter: over every instant of [B-, B+] at which another view may be the
// newest.
func star(commits []commit, k int64) int64 {
	p, start := policy(1), k*second
	e, s, f, r := float64(p.ClockError), float64(p.Settle), float64(p.Freshness), 1.0/protocol.DriftBound
	from := int64(float64(start) + e - (s-float64(second)*r)/(1+r))
	to := int64(float64(start) - e - f/(1-r))
	instants := []int64{from, to}
	for _, c := range commits {
		if from < c.at && c.at <= to {
			instants = append(instants, c.at)
		}
	}
	least := Unlimited
	for _, b := range instants {
		u := 0
		for u+1 < len(commits) && commits[u+1].at <= b {
			u++
		}
		for u+1 < len(commits) && commits[u+1].at <= start+second+int64(p.ClockError) && commits[u+1].permits >= commits[u].permits {
			u++
		}
		least = min(least, commits[u].permits)
	}
	return least
}

// A run ends on each line of commits: here one restore took back a raise, and another one
// the next raise.
func TestRunsOfLines(t *testing.T) {
	t.Parallel()
	var v Views
	for i, permits := range []int64{4, 40, 4, 20, 4, 6, 5} {
		lost := map[int]int{1: 2, 3: 4}[i]
		v = append(v, View{View: protocol.View{Revision: int64(i), Policy: policy(permits), Instances: instances("a", "b")}, By: int64(i), Lost: lost})
	}
	for _, c := range []struct {
		from, last int
		ends       []int
	}{{0, 6, []int{5, 1, 3}}, {0, 3, []int{2, 1, 3}}, {0, 2, []int{2, 1}}, {2, 6, []int{5, 3}}, {4, 6, []int{5}}, {5, 6, []int{5}}} {
		if got := v.Runs(c.from, quota.WindowAt(time.Second, 0), func(n int) bool { return n <= c.last }); !slices.Equal(got, c.ends) {
			t.Errorf("from %d, up to %d: %v, want %v", c.from, c.last, got, c.ends)
		}
	}
}

// What a view takes is told by the shares of the key that is judged, not by the provider's: here the one permit of a key
// goes to another instance, and that of the provider stays.
func TestARunEndsByTheSharesOfTheKey(t *testing.T) {
	t.Parallel()
	w := quota.WindowAt(time.Second, 0)
	of := func(owner string) func(quota.Window) map[string]int64 {
		return func(quota.Window) map[string]int64 { return map[string]int64{owner: 1} }
	}
	var v Views
	for i, owner := range []string{"a", "a", "b", "b"} {
		v = append(v, View{View: protocol.View{Revision: int64(i), Policy: policy(1), Instances: instances("a", "b")}, By: int64(i), Shares: of(owner)})
	}
	if got := v.Runs(0, w, func(int) bool { return true }); !slices.Equal(got, []int{1}) {
		t.Errorf("%v, want 1: the next view takes the permit of a", got)
	}
}

// The judge, which does not know when views were committed, never contradicts the
// definition, which does.
func TestTheJudgeAgainstTheDefinition(t *testing.T) {
	if testing.Short() {
		t.Skip("compares for seconds")
	}
	t.Parallel()
	first, last := uint64(1), uint64(400)
	if *seedFlag > 0 {
		first, last = *seedFlag, *seedFlag
	}
	held, over, undecided := 0, 0, 0
	for seed := first; seed <= last; seed++ {
		r := rand.New(rand.NewPCG(seed, 22))
		commits := []commit{{-20 * second, 20 + 2*r.Int64N(40)}}
		for at := second; at < 14*second && r.IntN(5) > 0; {
			at += 1 + r.Int64N(3*second)
			commits = append(commits, commit{at, 20 + 2*r.Int64N(40)})
		}
		k := 6 + r.Int64N(8)
		bound := star(commits, k)
		sum := max(0, bound-3+r.Int64N(7))
		var tapes []*tape
		parts := []int64{r.Int64N(sum + 1), 0}
		parts[1] = sum - parts[0]
		slow := r.Int64N(300) * ms
		for i, name := range []string{"a", "b"} {
			p := record(t, name, -5*second)
			p.reset(-5*second, protocol.View{Revision: 10, Policy: policy(commits[0].permits), PolicyRevision: 10, Instances: instances("a", "b")})
			next := 1
			for at := -4 * second; at < 20*second; at += 1 + r.Int64N(200*ms) {
				late := at - r.Int64N(slow+1)
				for ; next < len(commits) && commits[next].at <= late; next++ {
					p.apply(at, protocol.Change{Revision: int64(10 + next), Policy: policy(commits[next].permits)})
				}
				// All that was committed before late has been applied.
				p.prove(at, late)
				if at/second == k && at >= 0 && len(p.lines) > 0 {
					p.plan(at, Unlimited, parts[i])
				}
			}
			p.close(20 * second)
			tapes = append(tapes, p)
		}
		got := judged(t, tapes...)
		see := fmt.Sprintf("go test ./internal/trace -run Definition -seed %d", seed)
		switch {
		case sum == 0:
		case got.Problem != "":
			t.Fatalf("%v; %s", got, see)
		case got.Over > 0 && sum <= bound, got.Held > 0 && sum > bound:
			t.Fatalf("window %d: %d permits, at most %d: %v\ncommits: %v\n%s", k, sum, bound, got, commits, see)
		default:
			held, over, undecided = held+got.Held, over+got.Over, undecided+1-got.Held-got.Over
		}
	}
	t.Logf("%d held, %d over, %d undecided", held, over, undecided)
	if *seedFlag == 0 && min(held, over) < 100 {
		t.Errorf("the judge decides too seldom")
	}
}
