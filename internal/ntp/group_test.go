package ntp

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	const every = 16 * time.Second
	dead := answer{problem: "no answer"}
	for _, test := range []struct {
		name          string
		answers       []answer
		ok            bool
		offset        int64
		err           time.Duration
		answer, agree int
		problem       string
	}{
		{name: "nobody was asked"},
		{"one", []answer{good(0, 7*ms, time.Millisecond)}, true, 7 * ms, time.Millisecond, 1, 1, ""},
		{"good, lying, dead, slow", []answer{good(0, ms, time.Millisecond), good(0, 300*ms, time.Millisecond), dead, good(0, 80*ms, 150*time.Millisecond)},
			true, ms, time.Millisecond, 3, 2, ""},
		{"all dead", []answer{dead, kissed("DENY", 0)}, false, 0, 0, 0, 0, "no NTP server of 2 answers (s1: kiss of death DENY: it refuses service)"},
		{"two that contradict", []answer{good(0, 0, time.Millisecond), good(0, 300*ms, time.Millisecond)}, false, 0, 0, 2, 0,
			"no majority of the 2 NTP servers that have answered agree on the time, 2 answer now"},
	} {
		g := newGroup(nil, every)
		for i := range test.answers {
			g.servers = append(g.servers, &server{address: "s" + string(rune('0'+i))})
			g.servers[i].take(0, test.answers[i], every)
		}
		v := g.judge(0, 0)
		h := clock.Health{Servers: len(test.answers), Answering: test.answer, Agreeing: test.agree, Problem: test.problem}
		if v.ok != test.ok || v.health != h {
			t.Errorf("%s: %v, %+v; want %v, %+v", test.name, v.ok, v.health, test.ok, h)
		}
		if e := v.estimate; test.ok && (e.Offset != test.offset || e.Error != test.err || e.Growth != maxGrowth) {
			t.Errorf("%s: %+v, want offset %v, error %v", test.name, e, time.Duration(test.offset), test.err)
		}
	}
}

// Servers that stop answering keep their votes: a liar that is left alone does
// not become the majority.
func TestALonelyLiarIsNoMajority(t *testing.T) {
	t.Parallel()
	const every = 16 * time.Second
	g := newGroup([]string{"a", "b", "liar"}, every)
	for i, offset := range []int64{0, ms, 300 * ms} {
		g.servers[i].take(0, good(0, offset, 5*time.Millisecond), every)
	}
	if v := g.judge(0, 0); !v.ok || v.servers[2].Agrees || v.servers[2].Offset != 300*time.Millisecond {
		t.Fatalf("at first: %+v", v)
	}
	now := 10 * reach * int64(every)
	g.servers[0].take(now, answer{problem: "gone"}, every)
	g.servers[2].take(now, good(now, 300*ms, time.Millisecond), every)
	if v := g.judge(now, 0); v.ok || v.health.Problem != "no majority of the 3 NTP servers that have answered agree on the time, 1 answer now (a: gone)" {
		t.Errorf("the liar is believed: %+v", v)
	}
	g.servers[1].take(now, good(now, 302*ms, time.Millisecond), every)
	if v := g.judge(now, 0); !v.ok {
		t.Errorf("two of three are not believed: %+v", v)
	}
}

func TestTheRateIsMeasured(t *testing.T) {
	t.Parallel()
	const every = 16 * time.Second
	g := newGroup([]string{"a"}, every)
	for _, step := range []struct {
		at, offset int64
		growth     int64
	}{
		{0, 0, maxGrowth},
		{2 * sec, 200 * 1000, maxGrowth}, // too soon to tell
		{16 * sec, 16 * 40 * 1000, 95},   // 40 ppm
		{32 * sec, 16 * 40 * 1000, 15},   // none
		{48 * sec, -sec, maxGrowth},      // beyond all
		{64 * sec, -sec, 15},
	} {
		g.servers[0].take(step.at, good(step.at, step.offset, time.Microsecond), every)
		g.servers[0].samples = g.servers[0].samples[len(g.servers[0].samples)-1:]
		if v := g.judge(step.at, 0); v.estimate.Growth != step.growth {
			t.Errorf("at %v: growth %d ppm, want %d", time.Duration(step.at), v.estimate.Growth, step.growth)
		}
	}
	g.forget(65 * sec)
	if v := g.judge(65*sec, 0); v.ok || g.growth != maxGrowth || g.servers[0].next > 67*sec {
		t.Errorf("after the clock stopped: %+v, growth %d, next %v", v, g.growth, time.Duration(g.servers[0].next))
	}
}
