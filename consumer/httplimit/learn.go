package httplimit

import (
	"net/http"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/quotient-limiter/quotient/internal/ratefields"
	"github.com/quotient-limiter/quotient/quota"
)

// Bounds of what is read of a response.
const (
	maxFieldBytes = 2048           // of the values of one field
	maxStated     = 16             // limits
	maxSeconds    = 24 * 3600      // a longer window tells no more
	fromUnix      = 1e8            // resets from here on are instants, not durations of more than three years
	fromMillis    = fromUnix * 100 // and from here on in milliseconds
)

// stated returns the limits that a response states of its provider. Fields that cannot be
// read state nothing.
//
// The draft's RateLimit-Policy names quota and window ("name";q=100;w=60, or 100;w=60 as
// in earlier versions). X-RateLimit-Limit, and the earlier RateLimit (limit=100, reset=30),
// name no window: it is at least as long as what is left of it, which their reset says, as
// seconds or as Unix time.
func stated(h http.Header) (limits []quota.Limit) {
	left := map[string]time.Duration{} // of the window of a policy, by name
	add := func(permits any, window time.Duration) {
		if n, ok := permits.(int64); ok && n > 0 && window > 0 && len(limits) < maxStated {
			limits = append(limits, quota.Limit{Permits: min(n, quota.MaxPermits), Window: window})
		}
	}
	for _, i := range items(h, ratefields.LimitField) {
		if name, ok := i.Value.(string); ok {
			left[name] = atLeast(param(i, "t"), h)
		}
	}
	for _, i := range items(h, ratefields.PolicyField) {
		unit, counted := param(i, "qu").(string)
		name, named := i.Value.(string)
		switch window := length(param(i, "w")); {
		case counted && unit != "requests": // bytes, or calls at once
		case named && window == 0:
			add(param(i, "q"), left[name])
		case named:
			add(param(i, "q"), window)
		default:
			add(i.Value, window)
		}
	}
	if d, err := httpsfv.UnmarshalDictionary(values(h, ratefields.LimitField)); err == nil && len(limits) == 0 {
		add(member(d, "limit"), atLeast(member(d, "reset"), h))
	}
	for _, prefix := range []string{"RateLimit-", "X-RateLimit-", "X-Rate-Limit-"} {
		var reset any
		if i, err := httpsfv.UnmarshalItem(values(h, prefix+"Reset")); err == nil {
			reset = i.Value
		}
		for _, i := range items(h, prefix+"Limit") {
			window := length(param(i, "w"))
			if window == 0 {
				window = atLeast(reset, h)
			}
			add(i.Value, window)
		}
	}
	return limits
}

// values returns a field's values; none if they are too long.
func values(h http.Header, field string) []string {
	all, size := h.Values(field), 0
	for _, v := range all {
		size += len(v)
	}
	if size > maxFieldBytes {
		return nil
	}
	return all
}

// items returns the items of a field that is a list.
func items(h http.Header, field string) (all []httpsfv.Item) {
	list, _ := httpsfv.UnmarshalList(values(h, field))
	for _, m := range list {
		if i, ok := m.(httpsfv.Item); ok {
			all = append(all, i)
		}
	}
	return all
}

func param(i httpsfv.Item, name string) any {
	v, _ := i.Params.Get(name)
	return v
}

func member(d *httpsfv.Dictionary, name string) any {
	m, _ := d.Get(name)
	i, _ := m.(httpsfv.Item)
	return i.Value
}

// length returns a window of whole seconds; 0 if it is none.
func length(seconds any) time.Duration {
	n, _ := seconds.(int64)
	return time.Duration(min(max(0, n), maxSeconds)) * time.Second
}

// atLeast returns how long a window of whole seconds is at least, by its reset; 0 if that
// is not known. Less than 2 seconds may be a shorter window, rounded up. An instant is
// taken relative to the response's Date, by the same clock, which may be a second old.
func atLeast(reset any, h http.Header) time.Duration {
	n, ok := reset.(float64)
	if whole, is := reset.(int64); is {
		n, ok = float64(whole), true
	}
	if !ok {
		return 0
	}
	if n >= fromMillis {
		n /= 1000
	}
	if n >= fromUnix {
		date, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			return 0
		}
		n -= float64(date.Unix()) + 1
	}
	if n < 2 {
		return 0
	}
	return time.Duration(min(n, maxSeconds) * float64(time.Second))
}
