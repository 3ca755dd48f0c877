package ntp

import (
	"context"
	"testing"
	"time"

	"github.com/beevik/ntp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/testkit/ntptest"
)

// fromRoot is the distance of ntptest's server from its root: half of a delay of
// 10 ms, and 3 ms, both rounded down to units of 2^-16 s.
const fromRoot = (10<<16/1000)*time.Second>>17 + (3<<16/1000)*time.Second>>16

func TestQuery(t *testing.T) {
	t.Parallel()
	same := func(p []byte) []byte { return p }
	for _, test := range []struct {
		name    string
		reply   func(p []byte) []byte
		problem string
	}{
		{"good", same, ""},
		{"kiss of death", func(p []byte) []byte { p[1] = 0; copy(p[12:], "RATE"); return p }, "kiss of death RATE: it is asked too often"},
		{"not in step itself", func(p []byte) []byte { p[0] |= 3 << 6; return p }, ntp.ErrInvalidLeapSecond.Error()},
		{"far from its root", func(p []byte) []byte { p[4], p[8] = 0x7f, 0x7f; return p }, ntp.ErrInvalidDispersion.Error()},
		{"no NTP", func([]byte) []byte { return []byte("hello") }, ntp.ErrInvalidTime.Error()},
		{"an answer to something else", func(p []byte) []byte { p[24]++; return p }, ntp.ErrServerResponseMismatch.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			const lead = 300 * time.Millisecond
			c := clock.NewSkewed(func(int64) time.Duration { return -time.Hour })
			a := query(t.Context(), c, ntptest.Serve(t, lead, test.reply))
			if a.problem != test.problem {
				t.Fatalf("%+v", a)
			}
			if test.problem != "" {
				return
			}
			before := time.Now().UnixNano()
			mono := c.Mono()
			after := time.Now().UnixNano()
			told := a.sample.offset + mono - int64(lead)
			away := max(before-told, told-after) // at least
			if d := a.sample.distance; d < fromRoot || away > int64(d) {
				t.Errorf("off by %v, with a bound of %v", time.Duration(away), d)
			}
		})
	}
}

func TestAQuestionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	address := ntptest.Serve(t, 0, func([]byte) []byte {
		arrived <- struct{}{}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan answer)
	go func() { answers <- query(ctx, clock.New(), address) }()
	<-arrived
	cancel()
	if a := <-answers; a.problem == "" || a.problem == "no answer in 3s" {
		t.Errorf("%+v", a)
	}
}

// Whatever a server writes, what comes of it is within bounds.
func FuzzRead(f *testing.F) {
	f.Add(uint8(2), uint32(0x7f000001), int64(time.Second), int64(time.Millisecond), int64(0), uint8(0))
	f.Add(uint8(0), uint32(0x52415445), int64(-1<<63), int64(1<<62), int64(-1), uint8(3))
	f.Fuzz(func(t *testing.T, stratum uint8, id uint32, offset, distance, precision int64, leap uint8) {
		const base = int64(1_800_000_000_000_000_000)
		a := read(&ntp.Response{
			Version: 4, Stratum: stratum, ReferenceID: id, ClockOffset: time.Duration(offset), Leap: ntp.LeapIndicator(leap % 4),
			RootDistance: time.Duration(distance), Precision: time.Duration(precision), Time: time.Unix(0, base), ReferenceTime: time.Unix(0, base),
		}, 5, base)
		if (a.problem == "") == (a.sample == sample{}) {
			t.Fatalf("%+v", a)
		}
		if d := a.sample.distance; d < 0 || d > maxDistance {
			t.Fatalf("a distance of %v", d)
		}
		i := a.sample.spread(1<<62, maxGrowth)
		if i.lo > i.hi {
			t.Fatalf("%+v holds nothing: %+v", a.sample, i)
		}
	})
}
