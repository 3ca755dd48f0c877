package httplimit

import (
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/quotient-limiter/quotient/consumer"
)

// rest is what a response says is left of a limit.
type rest struct {
	limit int64 // 0 if it does not say
	left  int64
	ends  time.Duration // until the provider counts anew
}

// heed tells a limiter or its key of the rests that a response's header states.
func heed(from consumer.Taker, h http.Header, now time.Time) {
	of, ok := from.(interface {
		Stated(limit, left int64, until time.Time)
	})
	if !ok {
		return
	}
	for _, r := range append(ofDraft(h), ofXFields(h, now)...) {
		of.Stated(r.limit, r.left, now.Add(r.ends))
	}
}

// ofXFields reads X-RateLimit-Limit, -Remaining, -Used and -Reset, which are of one limit.
func ofXFields(h http.Header, now time.Time) []rest {
	number := func(field string) (n int64, ok bool) {
		n, err := strconv.ParseInt(h.Get("X-RateLimit-"+field), 10, 64)
		return n, err == nil && n >= 0
	}
	limit, limited := number("Limit")
	left, ok := number("Remaining")
	if used, known := number("Used"); !ok && known && limited {
		left, ok = max(0, limit-used), true
	}
	ends := untilReset(h, now)
	if !ok || ends <= 0 {
		return nil
	}
	return []rest{{limit, left, ends}}
}

// ofDraft reads RateLimit, such as "hour";r=50;t=30 for each limit, whose size RateLimit-Policy may say, such
// as "hour";q=100;w=3600.
func ofDraft(h http.Header) (all []rest) {
	limits := map[string]int64{}
	for name, p := range named(h, "RateLimit-Policy") {
		limits[name], _ = parameter(p, "q")
	}
	for name, l := range named(h, "RateLimit") {
		left, known := parameter(l, "r")
		seconds, ends := parameter(l, "t")
		if known && ends && seconds > 0 && seconds < 1e9 {
			all = append(all, rest{limits[name], left, time.Duration(seconds) * time.Second})
		}
	}
	return all
}

// named goes over the items of a field that is a list by RFC 9651; there are none if it is not. Each is a limit's
// name with parameters. The draft has names that are strings; earlier ones had tokens, which are taken too. An item of
// another type, such as a number or bytes, names no limit, and is passed over.
func named(h http.Header, field string) iter.Seq2[string, httpsfv.Item] {
	return func(yield func(string, httpsfv.Item) bool) {
		list, err := httpsfv.UnmarshalList(h.Values(field))
		if err != nil {
			return
		}
		for _, m := range list {
			item, _ := m.(httpsfv.Item)
			name, ok := item.Value.(string)
			if token, is := item.Value.(httpsfv.Token); is {
				name, ok = string(token), true
			}
			if ok && !yield(name, item) {
				return
			}
		}
	}
}

// parameter returns a parameter that is a number, 0 at least.
func parameter(of httpsfv.Item, name string) (n int64, ok bool) {
	v, _ := of.Params.Get(name)
	n, ok = v.(int64)
	return n, ok && n >= 0
}
