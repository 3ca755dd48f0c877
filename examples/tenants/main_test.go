package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A tenant of many callers has its own limits, and another one is served beside it.
func TestNoTenantHasMoreThanItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 4*time.Minute)
		defer stop()
		var said strings.Builder
		got, err := run(ctx, time.Minute, &said)
		if err != nil {
			t.Fatal(err)
		}
		if n := got["eager"]; n > hourly || n < hourly-most {
			t.Errorf("the eager tenant has %d tokens of %d", n, hourly)
		}
		if n := got["modest"]; n < 30*answer-most || n > hourly {
			t.Errorf("the modest tenant has %d tokens", n)
		}
		if !strings.Contains(said.String(), "at most 4 requests of 4 were under way") {
			t.Errorf("too many, or too few: %s", said.String())
		}
		if !strings.Contains(said.String(), "the limit of 6000/h is used up; next at 01:00:00") {
			t.Errorf("nobody learns of the hour: %s", said.String())
		}
	})
}
