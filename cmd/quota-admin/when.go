package main

import (
	"fmt"
	"strings"
	"time"
)

// parseWhen reads an instant as operators give it: with date and zone, with the
// date in the local zone, as the next time of day in the local zone, or as a
// time from now. now is in the local zone.
func parseWhen(text string, now time.Time) (time.Time, error) {
	if d, ok := strings.CutPrefix(text, "+"); ok {
		if ahead, err := time.ParseDuration(d); err == nil && ahead >= 0 {
			at := now.Add(ahead)
			if short := at.Truncate(time.Second); !short.Equal(at) {
				at = short.Add(time.Second) // full seconds are easier on the eye
			}
			return at.UTC(), nil
		}
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at.UTC(), nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		for days := range 2 {
			at := time.Date(now.Year(), now.Month(), now.Day()+days, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if at.After(now) {
				return at.UTC(), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 2027-01-01T00:00:00Z, 2027-01-01 00:00 or 00:00 (local time), or +90s", text)
}

// clockTime shows an instant in UTC to the millisecond, without the date where
// that is today's.
func clockTime(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	text := at.Format("15:04:05.999") + " UTC"
	if at.YearDay() != now.YearDay() || at.Year() != now.Year() {
		text = at.Format("2006-01-02 ") + text
	}
	return text
}
