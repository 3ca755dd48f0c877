package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Every duration of a policy is a number, whichever fields a later version adds.
func TestDurationsAreNumbersOfSeconds(t *testing.T) {
	t.Parallel()
	limits := []quota.Limit{{Permits: 5, Window: 250 * time.Millisecond}}
	p := quota.Policy{Limits: limits, Keys: quota.Keys{Limits: limits}, Next: []quota.LimitChange{{From: fixed, Limits: limits}}}
	durations := len(limits) * 3
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch {
		case v.Type() == reflect.TypeFor[time.Duration]():
			v.SetInt(int64(250 * time.Millisecond))
			durations++
		case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
			for _, field := range v.Fields() {
				fill(field)
			}
		}
	}
	fill(reflect.ValueOf(&p).Elem())
	text, err := json.Marshal((*shown)(&p))
	if n := strings.Count(string(text), `_seconds":0.25`); err != nil || n != durations || strings.Contains(string(text), "250ms") {
		t.Errorf("%d durations of %d: %s, %v", n, durations, text, err)
	}
	if err := new(quota.Policy).UnmarshalJSON(text); err == nil {
		t.Errorf("it is read as if it were a policy in etcd, without its durations: %s", text)
	}
}
