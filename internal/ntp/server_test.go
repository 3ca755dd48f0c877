package ntp

import (
	"strings"
	"testing"
	"time"
)

const (
	sec = int64(time.Second)
	ms  = int64(time.Millisecond)
)

func good(mono, offset int64, distance time.Duration) answer {
	return answer{sample: sample{mono, offset, distance}}
}

// When a server is asked again, after each answer.
func TestWhenToAskAgain(t *testing.T) {
	t.Parallel()
	const every = 16 * time.Second
	ok, dead := good(0, 0, time.Millisecond), answer{problem: "no answer"}
	rate, deny := kissed("RATE", 64*time.Second), kissed("DENY", 0)
	for _, test := range []struct {
		name    string
		answers []answer
		waits   []time.Duration
	}{
		{"a burst, then at leisure", []answer{ok, ok, ok, ok, ok}, []time.Duration{burstGap, burstGap, burstGap, every, every}},
		{"a dead one is asked less and less", []answer{dead, dead, dead, dead, dead, dead, dead, dead},
			[]time.Duration{every, 2 * every, 4 * every, 8 * every, 16 * every, 32 * every, 32 * every, 32 * every}},
		{"it lives again", []answer{dead, dead, dead, ok, ok}, []time.Duration{every, 2 * every, 4 * every, burstGap, burstGap}},
		{"a kiss of death counts for good", []answer{rate, ok, ok, rate, ok}, []time.Duration{64 * time.Second, 2 * every, 2 * every, 64 * time.Second, 4 * every}},
		{"a server that refuses is left alone", []answer{deny, ok}, []time.Duration{refusedFor, burstGap}},
	} {
		s, now := &server{address: "a"}, int64(0)
		for i, a := range test.answers {
			s.take(now, a, every)
			if wait := time.Duration(s.next - now); wait != test.waits[i] {
				t.Errorf("%s: after answer %d it waits %v, want %v", test.name, i, wait, test.waits[i])
			}
			now = s.next
		}
	}
}

func TestThePauseIsBounded(t *testing.T) {
	t.Parallel()
	s := &server{}
	for range 100 {
		s.take(0, kissed("RATE", 1000*time.Hour), 100*time.Second)
	}
	if got := time.Duration(s.next); got != maxPoll {
		t.Errorf("after many kisses it waits %v, want %v", got, maxPoll)
	}
}

func TestTheBestSample(t *testing.T) {
	t.Parallel()
	const every = 16 * time.Second
	s := &server{}
	if _, ok := s.best(0, maxGrowth, every); ok {
		t.Error("a best sample of none")
	}
	s.take(0, answer{sample: sample{0, 1000, 5 * time.Millisecond}}, every)
	s.take(1*sec, answer{sample: sample{1 * sec, 2000, 20 * time.Millisecond}}, every)
	for _, step := range []struct {
		at     time.Duration
		growth int64
		want   interval
		ok     bool
	}{
		{time.Second, 0, interval{1000 - 5*ms, 1000 + 5*ms}, true},
		{11 * time.Second, 100, interval{1000 - 6100000, 1000 + 6100000}, true},                      // 1.1 ms for 11 s
		{reach*every + time.Millisecond, 0, interval{2000 - 20*ms, 2000 + 20*ms}, true},              // the first is too old
		{reach*every + time.Second, 500, interval{2000 - 20*ms - 32*ms, 2000 + 20*ms + 32*ms}, true}, // and the other as old
		{reach*every + time.Second + time.Millisecond, 500, interval{}, false},
	} {
		if got, ok := s.best(int64(step.at), step.growth, every); ok != step.ok || ok && got != step.want {
			t.Errorf("at %v: %v, %v; want %v, %v", step.at, got, ok, step.want, step.ok)
		}
	}
	for i := range int64(100) {
		s.take(i, answer{sample: sample{i, 0, 0}}, every)
	}
	if len(s.samples) != register || s.samples[register-1].mono != 99 {
		t.Errorf("%d samples are kept, the last of %d", len(s.samples), s.samples[len(s.samples)-1].mono)
	}
}

func TestServers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		list    string
		problem string
	}{
		{"time.example.org", ""},
		{"a,b:123,10.0.0.1:11123", ""},
		{"::1,[::1]:123,[fe80::1%eth0]:5", ""},
		{"", "no host"},
		{"a, b", "no host name"},
		{"a,,b", "no host"},
		{"a,b,a", "two votes"},
		{"a:0", "port"},
		{"a:65536", "port"},
		{"a:ntp", "port"},
		{"[::1", "no address"},
		{"1:2:3", "no IPv6"},
		{"a b", "no host name"},
		{"http://a", "port"},
		{"a/b", "no host name"},
		{strings.Repeat("a", 300), "too long"},
		{strings.Repeat("a,", 10000), "more than 16"},
		{"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "more than 16"},
	} {
		err := CheckServers(strings.Split(test.list, ","))
		if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%.40q: %v; want %q", test.list, err, test.problem)
		}
	}
	if err := CheckServers(nil); err != nil {
		t.Errorf("no servers: %v", err)
	}
}

// Whatever is accepted is short, prints, and is accepted once only.
func FuzzCheckServers(f *testing.F) {
	for _, s := range []string{"", "b:1", "[::1]:123", "fe80::1%lo", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckServers([]string{s}) != nil {
			return
		}
		if len(s) > maxAddress || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) || CheckServers([]string{s, s}) == nil {
			t.Fatalf("%q is accepted", s)
		}
	})
}
