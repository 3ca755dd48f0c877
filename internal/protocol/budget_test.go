package protocol

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

// budget is the window of a limit that runs at a local time of a zone.
func budget(t *testing.T, limit, zone, at string) Budget {
	t.Helper()
	l, err := quota.ParseLimits(limit)
	if err != nil {
		t.Fatal(err)
	}
	z, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	w, err := time.ParseInLocation(time.DateTime, at, z)
	if err != nil {
		t.Fatal(err)
	}
	return BudgetAt(l[0], z, w.UnixNano())
}

func TestWindowsOfTheCalendar(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit, zone, at string
		start           string // local time
		hours           float64
	}{
		{"900/15m", "Asia/Kolkata", "2027-05-05 10:20:00", "2027-05-05 10:15:00", 0.25},
		{"5/h", "Asia/Kolkata", "2027-05-05 10:20:00", "2027-05-05 09:30:00", 1}, // hours are UTC's
		{"5/d", "", "2027-05-05 23:59:59", "2027-05-05 00:00:00", 24},
		{"5/d", "Europe/Berlin", "2027-03-28 12:00:00", "2027-03-28 00:00:00", 23},
		{"5/d", "Europe/Berlin", "2027-10-31 02:30:00", "2027-10-31 00:00:00", 25},
		{"5/d", "Asia/Beirut", "2027-03-28 12:00:00", "2027-03-28 01:00:00", 23}, // no midnight
		{"5/d", "Asia/Beirut", "2027-03-27 12:00:00", "2027-03-27 00:00:00", 24},
		{"5/d", "America/St_Johns", "2010-11-07 12:00:00", "2010-11-07 00:00:00", 25}, // at 00:01 to 23:01
		{"5/mo", "", "2028-02-29 12:00:00", "2028-02-01 00:00:00", 29 * 24},
		{"5/mo", "America/New_York", "2027-11-30 23:00:00", "2027-11-01 00:00:00", 30*24 + 1},
		{"5/d", "", "1969-12-31 12:00:00", "1969-12-31 00:00:00", 24},
		{"5/h@17m", "", "2027-05-05 10:16:59", "2027-05-05 09:17:00", 1},
		{"5/h@17m", "", "2027-05-05 10:17:00", "2027-05-05 10:17:00", 1},
		{"5/12h@6h", "", "2027-05-05 05:00:00", "2027-05-04 18:00:00", 12},
		{"5/d@12:00", "Europe/Berlin", "2027-03-28 11:59:59", "2027-03-27 12:00:00", 23},
		{"5/d@12:00", "Europe/Berlin", "2027-03-28 12:00:00", "2027-03-28 12:00:00", 24},
		{"5/d@23:59:59", "Europe/Berlin", "2027-10-31 12:00:00", "2027-10-30 23:59:59", 25},
		{"5/d@00:30", "Asia/Beirut", "2027-03-28 12:00:00", "2027-03-28 01:30:00", 23}, // no half past midnight
	} {
		b := budget(t, test.limit, test.zone, test.at)
		z, _ := time.LoadLocation(test.zone)
		if got := time.Unix(0, b.Start).In(z).Format(time.DateTime); got != test.start && test.zone != "America/St_Johns" {
			t.Errorf("%s at %s %s: starts at %s, want %s", test.limit, test.at, test.zone, got, test.start)
		}
		if got := time.Duration(b.End - b.Start).Hours(); got != test.hours && test.zone != "America/St_Johns" {
			t.Errorf("%s at %s %s: lasts %v h, want %v", test.limit, test.at, test.zone, got, test.hours)
		}
	}
}

// Windows follow on each other without a gap, and each instant is in one of them, in
// every zone, whatever is done to its clocks.
func TestWindowsOfTheCalendarAreAPartition(t *testing.T) {
	t.Parallel()
	zones := strings.Fields("UTC Europe/Berlin America/St_Johns Asia/Beirut America/Sao_Paulo Australia/Lord_Howe Pacific/Apia Africa/Casablanca Asia/Kolkata")
	limits, err := quota.ParseLimits("1/2m,1/15m,1/5h,1/d,1/mo,1/7m@119s,1/h@17m,1/23h@22h")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		l := rapid.SampledFrom(limits).Draw(t, "limit")
		if l.Window == day && rapid.Bool().Draw(t, "phased") {
			l.Phase = time.Duration(rapid.Int64Range(0, 86_399).Draw(t, "phase")) * time.Second
		}
		wall := rapid.Int64Range(0, time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC).Unix()).Draw(t, "wall") * int64(time.Second)
		b := BudgetAt(l, zone, wall)
		if wall < b.Start || wall >= b.End {
			t.Fatalf("%v is not in %v to %v", time.Unix(0, wall).In(zone), time.Unix(0, b.Start).In(zone), time.Unix(0, b.End).In(zone))
		}
		next := BudgetAt(l, zone, b.End)
		before := BudgetAt(l, zone, b.Start-1)
		if next.Start != b.End || before.End != b.Start || BudgetAt(l, zone, b.Start) != b || BudgetAt(l, zone, b.End-1) != b {
			t.Fatalf("%v: %+v before, %+v, then %+v", l, before, b, next)
		}
		if d := time.Duration(b.End - b.Start); l.Window >= day && (d > l.Window+time.Hour || l.Window < month && d < l.Window-25*time.Hour) {
			t.Fatalf("%v lasts %v", l, d) // Apia left a day out
		}
	})
}
