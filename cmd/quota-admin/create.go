package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quotient-limiter/quotient/coordinator"
)

// mayCreate refuses a new provider whose name is nearly that of another: a typing
// error would leave the one that was meant as it is. On a terminal it asks. A user
// that may not list providers is not refused.
func (a *app) mayCreate(ctx context.Context, admin *coordinator.Admin, provider string) error {
	all, err := admin.List(ctx)
	if errors.Is(err, coordinator.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	near, least := "", 3
	for _, s := range all {
		if d := distance(provider, s.Provider); d < least && len(provider) > 2*d && withoutDigits(provider) != withoutDigits(s.Provider) {
			near, least = s.Provider, d
		}
	}
	if near == "" || isTerminal(a.stdin) && a.confirm(fmt.Sprintf("There is no provider %s, but %s. Create it?", provider, near)) {
		return nil
	}
	return refused(fmt.Errorf("there is no provider %s; did you mean %s? To set a new one give --create", provider, near))
}

// withoutDigits makes names that are numbered alike: none is a typing error of
// another.
func withoutDigits(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, name)
}

// distance is how many characters must be inserted, deleted or replaced to make one
// text the other (Levenshtein).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0]++
		for j := range y {
			replaced := diagonal
			if x[i] != y[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}
