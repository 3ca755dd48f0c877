package ntp

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestKernel(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		timex unix.Timex
		state int
		err   error
		bound time.Duration
		known bool
	}{
		{"in step", unix.Timex{Maxerror: 5000, Offset: -300}, unix.TIME_OK, nil, 5300 * time.Microsecond, true},
		{"in step, in nanoseconds", unix.Timex{Maxerror: 5000, Offset: 300, Status: unix.STA_NANO}, unix.TIME_OK, nil, 5*time.Millisecond + 300, true},
		{"no daemon", unix.Timex{Maxerror: 16000000, Status: unix.STA_UNSYNC}, unix.TIME_ERROR, nil, 0, false},
		{"a daemon that gave up", unix.Timex{Maxerror: 5000, Status: unix.STA_UNSYNC}, unix.TIME_OK, nil, 0, false},
		{"not permitted", unix.Timex{}, 0, errors.New("no"), 0, false},
	} {
		if bound, known := kernelBound(&test.timex, test.state, test.err); bound != test.bound || known != test.known {
			t.Errorf("%s: %v, %v; want %v, %v", test.name, bound, known, test.bound, test.known)
		}
	}
	if bound, known := Kernel(); known && bound < 0 {
		t.Errorf("this kernel says %v", bound)
	}
}
