package protocol

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

func TestALoanIsItsHostsAlone(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	host := NewID("host", key.Public().(ed25519.PublicKey))
	loan := Loan{Windows: []quota.Window{{Length: time.Second, Index: 7}, {Length: time.Minute, Index: 0}}, Permits: 12}
	loan.SealBy(key, host, "guest")
	text, err := json.Marshal(loan)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := ReadLoan(text, host, "guest"); err != nil || l.Permits != 12 || len(l.Windows) != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	more := strings.Replace(string(text), "12", "13", 1)
	in := func(windows ...quota.Window) string {
		l := Loan{Windows: windows, Permits: 12}
		l.SealBy(key, host, "guest")
		text, _ := json.Marshal(l)
		return string(text)
	}
	for name, test := range map[string]struct{ text, host, guest string }{
		"more permits":   {more, host, "guest"},
		"another window": {strings.Replace(string(text), ":7", ":8", 1), host, "guest"},
		"another host":   {string(text), "other.1", "guest"},
		"another guest":  {string(text), host, "gues"},
		"no window":      {in(), host, "guest"},
		"a long window":  {in(quota.Window{Length: time.Hour}), host, "guest"},
		"an empty one":   {in(quota.Window{Length: time.Second}, quota.Window{}), host, "guest"},
		"no JSON":        {"{", host, "guest"},
		"too long":       {strings.Repeat(" ", maxLoanBytes) + string(text), host, "guest"},
	} {
		if l, err := ReadLoan([]byte(test.text), test.host, test.guest); err == nil {
			t.Errorf("%s: read %+v", name, l)
		}
	}
}

func FuzzLoan(f *testing.F) {
	f.Add([]byte(`{"windows":[{"Length":1000000000,"Index":7}],"permits":12,"seal":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if l, err := ReadLoan(text, "host", "guest"); err == nil {
			t.Errorf("%+v was read, and nobody has signed it", l)
		}
	})
}
