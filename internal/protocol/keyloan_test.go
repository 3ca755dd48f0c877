package protocol

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

func TestReadKeyPermits(t *testing.T) {
	t.Parallel()
	second := []quota.Window{{Length: time.Second, Index: 7}}
	text := func(windows []quota.Window, permits map[string]int64) string {
		b, _ := json.Marshal(KeyPermits{windows, permits})
		return string(b)
	}
	good := text(second, map[string]int64{"a": 1, "b": quota.MaxPermits})
	if n, err := ReadKeyPermits([]byte(good)); err != nil || n.Permits["a"] != 1 || len(n.Windows) != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	for name, text := range map[string]string{
		"no window":      text(nil, map[string]int64{"a": 1}),
		"no permits":     text(second, map[string]int64{"a": 0}),
		"less than none": text(second, map[string]int64{"a": -1}),
		"too many":       text(second, map[string]int64{"a": quota.MaxPermits + 1}),
		"no name":        text(second, map[string]int64{"": 1}),
		"a long name":    text(second, map[string]int64{strings.Repeat("a", MaxKeyBytes+1): 1}),
		"no JSON":        "{",
		"too long":       strings.Repeat(" ", readKeyPermits) + good,
	} {
		if n, err := ReadKeyPermits([]byte(text)); err == nil {
			t.Errorf("%s: read %+v", name, n)
		}
	}
}

// Messages that are written as one have the newer number of each key, and a bounded size.
func TestKeyPermitsJoin(t *testing.T) {
	t.Parallel()
	second := []quota.Window{{Length: time.Second, Index: 7}}
	next := []quota.Window{{Length: time.Second, Index: 8}}
	before := KeyPermits{second, map[string]int64{"a": 1, "b": 2}}
	if n := (KeyPermits{second, map[string]int64{"b": 3, "c": 4}}).Join(before); fmt.Sprint(n.Permits) != "map[a:1 b:3 c:4]" || len(before.Permits) != 2 {
		t.Errorf("%v, before %v", n.Permits, before.Permits)
	}
	if n := (KeyPermits{next, map[string]int64{"c": 4}}).Join(before); fmt.Sprint(n.Permits) != "map[c:4]" {
		t.Errorf("of another window: %v", n.Permits)
	}
	all := KeyPermits{second, map[string]int64{}}
	for i := range 2000 {
		all = KeyPermits{second, map[string]int64{strings.Repeat("<", 200) + fmt.Sprint(i): quota.MaxPermits}}.Join(all)
	}
	if b, _ := json.Marshal(all); len(b) > readKeyPermits {
		t.Errorf("%d bytes cannot be read", len(b))
	}
}
