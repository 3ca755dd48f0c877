package main

import (
	"testing"
	"time"
)

// At 4 calls a second: 4 in the first second of the clock and 5 in the next, of which 7 are within
// one second; then 3 under half the limit.
func TestTheJudgeCountsSecondsOfTheClockAndAnySecond(t *testing.T) {
	begin := time.Unix(99, 500_000_000)
	p := plan{limit: 4, begin: begin, killed: begin.Add(3 * time.Second), lowered: begin.Add(5 * time.Second), end: begin.Add(9 * time.Second), lowers: true}
	var calls []int64
	for _, ms := range []int64{101_000, 101_100, 101_200, 101_300, 101_400, 100_000, 100_600, 100_700, 100_800, 103_200, 106_000, 106_001, 106_002} {
		calls = append(calls, ms*int64(time.Millisecond))
	}
	v := judge(calls, p)
	if v.most != 150 || v.mostAny != 200 || v.over != 2 || v.seconds != 4 || v.calls != 13 {
		t.Errorf("%+v: want 150%% in a second of the clock, 200%% in any, 2 of 4 over", v)
	}
	if v.used != 9*100./8 || v.usedAfter != 25 {
		t.Errorf("used %v and %v, want 112.5 and 25", v.used, v.usedAfter)
	}
	if p.lowers = false; judge(calls, p).over != 1 {
		t.Errorf("over %d, want only the second with 5 calls", judge(calls, p).over)
	}
}

// A call is in the second that begins at another one if it comes less than a second later.
func TestASecondEndsBeforeTheNextOneBegins(t *testing.T) {
	p := plan{limit: 1, begin: time.Unix(0, 0), killed: time.Unix(9, 0), lowered: time.Unix(9, 0)}
	at := int64(500 * time.Millisecond)
	if v := judge([]int64{at, at + int64(time.Second)}, p); v.mostAny != 100 {
		t.Errorf("%v%% in any second, want 100", v.mostAny)
	}
	if v := judge([]int64{at, at + int64(time.Second) - 1}, p); v.mostAny != 200 {
		t.Errorf("%v%% in any second, want 200", v.mostAny)
	}
}

// The old limit counts for a second after the order to lower it.
func TestTheOldLimitCountsForTheGrace(t *testing.T) {
	p := plan{limit: 2, lowered: time.Unix(5, 0), lowers: true}
	for at, want := range map[time.Time]float64{
		time.Unix(4, 0): 2, time.Unix(5, 0): 2, time.Unix(6, -1): 2, time.Unix(6, 0): 1,
	} {
		if got := p.limitAt(at.UnixNano()); got != want {
			t.Errorf("at %v the limit is %v, want %v", at, got, want)
		}
	}
}
