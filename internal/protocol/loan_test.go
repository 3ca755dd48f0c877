package protocol

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

func TestReadLoan(t *testing.T) {
	t.Parallel()
	loan := Loan{Windows: []quota.Window{{Length: time.Second, Index: 7}, {Length: time.Minute, Index: 0}}, Permits: 12}
	text, err := json.Marshal(loan)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := ReadLoan(text); err != nil || l.Permits != 12 || len(l.Windows) != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	in := func(windows ...quota.Window) string {
		text, _ := json.Marshal(Loan{Windows: windows, Permits: 12})
		return string(text)
	}
	for name, text := range map[string]string{
		"no window":     in(),
		"a long window": in(quota.Window{Length: time.Hour}),
		"an empty one":  in(quota.Window{Length: time.Second}, quota.Window{}),
		"no JSON":       "{",
		"too long":      strings.Repeat(" ", maxLoanBytes) + string(text),
	} {
		if l, err := ReadLoan([]byte(text)); err == nil {
			t.Errorf("%s: read %+v", name, l)
		}
	}
}

// The poor and the critical permits of an ask are among those asked for.
func TestAnAskIsOfItsPermits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`"permits":7,"poor":7,"critical":7`: true,
		`"permits":7`:                       true,
		`"permits":7,"critical":8`:          false,
		`"permits":7,"critical":-1`:         false,
		`"permits":7,"poor":8`:              false,
		`"permits":0`:                       false,
	} {
		if _, err := ReadNeed([]byte(`{"windows":[{"Length":1000000000,"Index":7}],` + text + "}")); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzLoan(f *testing.F) {
	f.Add([]byte(`{"windows":[{"Length":1000000000,"Index":7}],"permits":12}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := ReadLoan(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := ReadLoan(again); err != nil || o.Permits != l.Permits || !slices.Equal(o.Windows, l.Windows) {
			t.Errorf("%+v was written and read as %+v, %v", l, o, err)
		}
	})
}
