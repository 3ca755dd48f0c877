package pushback

import (
	"testing"
	"time"
)

type drained struct{ until time.Time }

func (d *drained) Drain(until time.Time) { d.until = until }

func TestPausesOnlyGrow(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	var p Pauses[*drained]
	a, b := &drained{}, &drained{}
	for _, step := range []struct {
		what      string
		l         *drained
		at        time.Duration
		ask, most time.Duration
		want      time.Duration // end of the limiter's pause, from begin; 0 for none
	}{
		{"nothing", a, 0, 0, 0, 0},
		{"the past", a, 0, -time.Second, 0, 0},
		{"not granted", a, 0, time.Second, -1, 0},
		{"a pause", a, 0, 10 * time.Second, 0, 10 * time.Second},
		{"a shorter one", a, time.Second, 2 * time.Second, 0, 10 * time.Second},
		{"a longer one", a, 5 * time.Second, 6 * time.Second, 0, 11 * time.Second},
		{"of another limiter", b, 5 * time.Second, time.Second, 0, 6 * time.Second},
		{"more than the default", a, 12 * time.Second, time.Hour, 0, 12*time.Second + DefaultMost},
		{"more than is granted", b, 12 * time.Second, time.Hour, time.Minute, 72 * time.Second},
	} {
		p.Ask(step.l, begin.Add(step.at), step.ask, step.most)
		want := begin.Add(step.want)
		if step.want == 0 {
			want = time.Time{}
		}
		if !step.l.until.Equal(want) {
			t.Errorf("%s: pauses until %v, want %v", step.what, step.l.until, want)
		}
	}
	p.Ask(a, begin.Add(time.Hour), time.Second, 0)
	if len(p.until) != 1 {
		t.Errorf("%d pauses are remembered, want 1: those that ended are forgotten", len(p.until))
	}
}
