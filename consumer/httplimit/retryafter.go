package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// retryAfter returns how long a response asks its client to wait, by its field
// Retry-After: whole seconds, or a date (RFC 9110, section 10.2.3). A date is
// taken relative to the response's own Date where it has one, since the server
// wrote both by the same clock. It returns 0 where nothing is asked for, or
// nothing that can be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	if isDigits(text) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n > math.MaxInt64/int64(time.Second) {
			return math.MaxInt64 // out of range: longer than any cap
		}
		return time.Duration(n) * time.Second
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(0, until.Sub(now))
}

func isDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// seconds returns d in whole seconds, rounded up, and at least 1: a client told
// 0 would come back at once, and one told too little in vain.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(1, s)
}
