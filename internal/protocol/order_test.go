package protocol

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// How a window stands to the one in which an instance counts decides whether it goes on in that one, or in the next, waits
// for its clock, or takes over the count into other windows.
func TestOrder(t *testing.T) {
	t.Parallel()
	now := time.Date(2000, 1, 2, 10, 30, 0, 0, time.UTC).UnixNano()
	window := func(limit, zone string, wall int64, guard time.Duration) Budget {
		limits, err := quota.ParseLimits(limit)
		if err != nil {
			t.Fatal(err)
		}
		z, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		return BudgetOf(limits[0], &quota.Policy{Timing: quota.Timing{Guard: guard}}, z, wall, 3)
	}
	const hour = int64(time.Hour)
	for _, c := range []struct {
		was, limit, zone string
		later            int64 // by how much its window is read later
		want             Order
	}{
		{"9/h", "5/h", "UTC", 0, Same},
		{"9/h", "9/h", "UTC", hour, Later},
		{"9/h", "9/h", "UTC", -hour, Earlier},
		{"9/h", "9/h@17m", "UTC", 0, Other},
		{"9/h", "9/h@40m", "UTC", 0, Other},
		{"9/h", "9/h", "Asia/Tokyo", 0, Same},
		{"9/d", "9/d", "Europe/Berlin", 0, Other},
		{"9/d", "9/d", "America/New_York", 0, Other},
		{"9/d", "9/d", "Europe/London", 0, Same}, // in winter
		{"9/mo", "9/mo", "Asia/Tokyo", 0, Other},
		{"9/mo", "9/mo", "America/New_York", 0, Other},
		{"9/h", "9/h sliding", "UTC", 0, Other},
		{"9/h sliding", "9/h sliding", "Asia/Tokyo", 0, Same},
		{"9/h sliding", "9/h sliding", "UTC", hour / 100, Later},
		{"9/h sliding", "9/h sliding", "UTC", -hour / 100, Earlier},
		{"9/h sliding", "9 inflight hold=1h", "UTC", 0, Other},
		{"9 inflight hold=1h", "9 inflight hold=1h", "UTC", hour / 8, Later},
		{"9 inflight hold=1h", "9 inflight hold=1h", "UTC", -hour / 8, Earlier},
	} {
		was := window(c.was, "UTC", now, 0)
		is := window(c.limit, c.zone, now+c.later, 0)
		if got := is.Order(&was); got != c.want {
			t.Errorf("%s in %s, %v later, is %d to %s, want %d", c.limit, c.zone, time.Duration(c.later), got, c.was, c.want)
		}
	}
	was, is := window("9 inflight hold=1h", "UTC", now, 0), window("9 inflight hold=1h", "UTC", now, time.Minute)
	if is.Start >= was.Start || is.Order(&was) != Same || was.Order(&is) != Same {
		t.Errorf("under another guard a part begins at %d in place of %d, and is another one", is.Start, was.Start)
	}
	was = window("9 inflight hold=1h", "UTC", is.End, time.Minute)
	is = window("9 inflight hold=1h", "UTC", was.Start, 0)
	if is.End <= was.Start || is.Order(&was) != Same {
		t.Errorf("a part that began at %d by a higher guard does not go on until %d", was.Start, is.End)
	}
}
