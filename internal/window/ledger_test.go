package window

import "testing"

// The check on what is booked sees what a wrong count would let through.
func TestBeyondSeesWhatABoundDidNotAllow(t *testing.T) {
	for _, c := range []struct {
		name         string
		bound, used  int64
		book, beyond int64
	}{
		{"within", 10, 4, 6, 0},
		{"one too many", 10, 4, 7, 1},
		{"after the bound shrank", 3, 8, 2, 2},
		{"given back", 3, 8, -2, 0},
	} {
		l := ledger{accounts: []account{{bound: c.bound, used: c.used, binds: true}}}
		if c.book < 0 {
			l.refund(-c.book, Grant{}, 0)
		} else {
			l.charge(c.book, 0)
		}
		if l.beyond != c.beyond || l.accounts[0].used != c.used+c.book {
			t.Errorf("%s: beyond is %d, used %d", c.name, l.beyond, l.accounts[0].used)
		}
	}
}
