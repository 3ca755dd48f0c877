package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `
BenchmarkParked/by=quotient_Acquire-2 1 300 B/waiter
BenchmarkParked/by=quotient_Acquire-2 1 100 B/waiter
BenchmarkParked/by=quotient_Acquire-2 1 1200 B/waiter
BenchmarkParked/by=x-time-rate-2 1 7 B/waiter
BenchmarkOvershoot/peer=x-time-rate/n=8 1 55.0 used-% 50.0 used-after-kill-% 55.1 most-% 57.3 most-any-% 0 over 24 seconds
BenchmarkOvershoot/peer=x-time-rate/n=4 1 54.0 used-% 49.0 used-after-kill-% 54.1 most-% 56.3 most-any-% 0 over 24 seconds
BenchmarkOvershoot/peer=redis_INCR/n=4 1 100.0 used-% 99.6 used-after-kill-% 100.7 most-% 131.0 most-any-% 1 over 24 seconds
BenchmarkOvershoot/peer=quotient/n=4 1 97.4 used-% 65.8 used-after-kill-% 98.4 most-% 102.5 most-any-% 0 over 24 seconds
`

func tableNamed(t *testing.T, name string) *table {
	t.Helper()
	for i := range tables {
		if tables[i].name == name {
			return &tables[i]
		}
	}
	t.Fatalf("there is no table %q", name)
	return nil
}

func TestATableHasMediansAndItsCommand(t *testing.T) {
	r, err := read([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	got, err := tableNamed(t, "parked").render(r)
	if err != nil {
		t.Fatal(err)
	}
	want := "| a goroutine that waits | bytes |\n| --- | ---: |\n| **Quotient** Acquire | 300 |\n| x/time/rate | 7 |\n" +
		"\n<sub>`GODEBUG=adaptivestackstart=0 go test -run '^$' -bench Parked -benchtime 1x -count 3`</sub>\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBlackBoxesStandByWhatTheyShare(t *testing.T) {
	r, err := read([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	got, err := tableNamed(t, "overshoot").render(r)
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(got, "\n")[2:5]
	for i, want := range []string{
		"| **Quotient** | 97 | 66 | 98.4 | 102.5 | 0 |",
		"| redis INCR | 100 | 100 | 100.7 | 131.0 | 1 |",
		"| x/time/rate | 54 / 55 | 49 / 50 | 54.1 / 55.1 | 56.3 / 57.3 | 0 / 0 |",
	} {
		if rows[i] != want {
			t.Errorf("row %d is %q, want %q", i, rows[i], want)
		}
	}
}

func TestATableThatIsNotWholeFails(t *testing.T) {
	r, err := read([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"uneven load", "central", "calls", "key counts"} {
		if text, err := tableNamed(t, name).render(r); err == nil {
			t.Errorf("the table %s has no values, and is\n%s", name, text)
		}
	}
}

// The pages have a place for each table, once.
func TestThePagesHaveAPlaceForEachTable(t *testing.T) {
	var page []byte
	for _, path := range pages {
		one, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		page = append(page, one...)
	}
	for _, name := range append([]string{"run"}, names()...) {
		if n := strings.Count(string(page), "<!-- results: "+name+" -->"); n != 1 {
			t.Errorf("%d places for the table %q, want 1", n, name)
		}
	}
	if n, want := strings.Count(string(page), "<!-- results: "), len(tables)+1; n != want {
		t.Errorf("the pages have %d places, want %d", n, want)
	}
}

func names() (all []string) {
	for _, t := range tables {
		all = append(all, t.name)
	}
	return all
}

func TestNumbersHaveCommas(t *testing.T) {
	for want, got := range map[string]string{
		"1,234,567": number(1234567, 1, 0), "123": number(123, 1, 0), "1,000": number(1, 1000, 0), "1234.5": number(1234.5, 1, 1),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
