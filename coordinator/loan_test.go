package coordinator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/quota"
)

// secondOf is the windows of a limit of a second.
func secondOf(wall int64) []quota.Window { return []quota.Window{quota.WindowAt(time.Second, wall)} }

// loanOf is one of so many permits in the running second.
func loanOf(permits int64) protocol.Note {
	return protocol.Note{Windows: secondOf(time.Now().UnixNano()), Permits: map[string]int64{"": permits}}
}

// needOf is an ask for a key in the running second.
func needOf(name string, n protocol.Need) protocol.Note {
	return protocol.Note{Windows: secondOf(time.Now().UnixNano()), Needs: map[string]protocol.Need{name: n}}
}

// asksOf asks a host, or with "" a sample of all, for so many thousandths.
func asksOf(host string, permits int64) []protocol.Request {
	n := protocol.Need{Permits: permits}
	if host == "" {
		n.Sample = protocol.Sample{Part: 1 << 32}
	}
	return []protocol.Request{{Host: host, Note: needOf("", n)}}
}

// three are a host, a guest, and another instance of a provider.
func three(t *testing.T) (f *fixture, host, guest, other *recorder) {
	t.Helper()
	f = setup(t)
	f.set("p", "10/s")
	var all [3]*recorder
	for i, name := range []string{"host", "guest", "other"} {
		all[i], _ = f.subscribe(f.join(Options{Name: name}), "p")
	}
	for _, r := range all {
		await.Until(t, "all are there, and carry", r.is(func(r *recorder) bool { return proved(r) && members(3)(r) && r.carrier != nil }))
	}
	all[1].carrier.Ask(all[1].told().self, asksOf("nobody", 1)) // who asks hears of loans
	return f, all[0], all[1], all[2]
}

func TestALoanReachesItsGuestAlone(t *testing.T) {
	t.Parallel()
	f, host, guest, other := three(t)
	from, to := host.told().self, guest.told().self
	// A message takes its time, and one that is late for its window is not sent at all.
	arrives := func(permits int64) func() bool {
		return func() bool {
			host.carrier.Tell(from, to, loanOf(permits))
			return guest.is(func(r *recorder) bool { return slices.Contains(r.borrowed, loaned{from, permits}) })()
		}
	}
	await.Until(t, "a loan arrives", arrives(1))
	// Garbage is not borrowed, nor a key that names no host, nor one of a stranger. A loan of
	// another incarnation is not written.
	folder := f.keys.Loans("p", to)
	put := func(key, value string) {
		if err := f.write(clientv3.OpPut(folder+key, value)); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := json.Marshal([]protocol.Note{loanOf(5)})
	put("%zz", string(text))
	put("stranger", string(text))
	put(from, "{")
	old, _ := json.Marshal(map[string]any{"windows": secondOf(time.Now().UnixNano()), "permits": 7}) // of the version before
	put(from, string(old))
	put(from+"/keys", strings.Replace(string(old), "7}", `{"a":7}}`, 1))
	put(from+"/keys", string(text))
	host.carrier.Tell("it before", to, loanOf(9))
	await.Until(t, "another arrives", arrives(6))
	lent := func(r *recorder) (all []loaned) {
		r.is(func(r *recorder) bool { all = slices.Clone(r.borrowed); return true })()
		return all
	}
	for _, l := range lent(guest) {
		if l != (loaned{from, 1}) && l != (loaned{from, 6}) {
			t.Errorf("borrowed %+v", l)
		}
	}
	if !guest.is(func(r *recorder) bool { return r.keyBorrowed == nil })() {
		t.Errorf("borrowed %+v of keys", guest.keyBorrowed)
	}
	if all := lent(other); all != nil {
		t.Errorf("another was lent %+v", all)
	}
	r, err := f.client.Get(t.Context(), folder, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		switch key := strings.TrimPrefix(string(kv.Key), folder); {
		case key == "it before":
			t.Error("a loan was written in the name of another incarnation")
		case key == from && kv.Lease == 0:
			t.Error("what is lent stays for ever")
		}
	}
}

func TestAnAskReachesWhomItNames(t *testing.T) {
	t.Parallel()
	_, host, guest, other := three(t)
	to, from := host.told().self, guest.told().self
	hears := func(r *recorder, permits int64) bool {
		return r.is(func(r *recorder) bool { return slices.Contains(r.asked, wanted{from, permits}) })()
	}
	await.Until(t, "an ask arrives", func() bool {
		guest.carrier.Ask(from, asksOf(to, 1000))
		return hears(host, 1000)
	})
	await.Until(t, "an ask reaches all others", func() bool {
		guest.carrier.Ask(from, asksOf("", 2000))
		return hears(host, 2000) && hears(other, 2000)
	})
	if hears(other, 1000) || guest.is(func(r *recorder) bool { return r.asked != nil })() {
		t.Errorf("another was asked %v, and the guest itself %v", other.asked, guest.asked)
	}
}

// Letters of a round are one transaction, and of several of one key the newest is written.
func TestARoundIsOneTransaction(t *testing.T) {
	t.Parallel()
	f, host, guest, other := three(t)
	s := f.only(host).s
	from := host.told().self
	revision := func() int64 {
		r, err := f.client.Get(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Revision
	}
	await.Until(t, "three letters in one revision", func() bool {
		before := revision()
		all := []letter{}
		for n := range int64(9) {
			for _, r := range []*recorder{guest, other} {
				all = append(all, letter{f.only(host), from, f.keys.Loans("p", r.told().self) + from, []protocol.Note{loanOf(1000 + n)}})
			}
		}
		var t post
		t.news = make(chan struct{}, 1)
		for _, l := range all {
			t.put(l)
		}
		s.send(t.take())
		return revision() == before+1 && guest.is(func(r *recorder) bool { return slices.Contains(r.borrowed, loaned{from, 1008}) })()
	})
	if guest.is(func(r *recorder) bool { return slices.Contains(r.borrowed, loaned{from, 1003}) })() {
		t.Error("a number was written that a newer one had replaced")
	}
}

// Beyond mostApart providers a session hears all asks by one watch. Each loan reaches its
// guest.
func TestAllProvidersOfASessionLend(t *testing.T) {
	t.Parallel()
	const providers = 2 * mostApart
	f := setup(t)
	var hosts, guests []*recorder
	host, guest := f.join(Options{Name: "host"}), f.join(Options{Name: "guest"})
	for i := range providers {
		name := fmt.Sprintf("p%d", i)
		f.set(name, "10/s")
		h, _ := f.subscribe(host, name)
		g, _ := f.subscribe(guest, name)
		hosts, guests = append(hosts, h), append(guests, g)
	}
	for i := range providers {
		for _, r := range []*recorder{hosts[i], guests[i]} {
			await.Until(t, "all carry", r.is(func(r *recorder) bool { return proved(r) && members(2)(r) && r.carrier != nil }))
		}
	}
	for i, h := range hosts {
		to, from, permits := h.told().self, guests[i].told().self, int64(i)+1
		await.Until(t, "an ask arrives", func() bool {
			guests[i].carrier.Ask(from, asksOf(to, permits))
			return h.is(func(r *recorder) bool { return slices.Contains(r.asked, wanted{from, permits}) })()
		})
		await.Until(t, "a loan arrives", func() bool {
			h.carrier.Tell(to, from, loanOf(permits))
			return guests[i].is(func(r *recorder) bool { return slices.Contains(r.borrowed, loaned{to, permits}) })()
		})
	}
	for i, g := range guests {
		g.is(func(r *recorder) bool {
			if len(r.asked) > 0 || slices.ContainsFunc(r.borrowed, func(l loaned) bool { return l.permits != int64(i)+1 }) {
				t.Errorf("guest %d was asked %v and lent %v", i, r.asked, r.borrowed)
			}
			return true
		})()
	}
}
