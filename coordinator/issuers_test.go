package coordinator

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// TestTheFirstIsFirst: an instance that registers alone is the first, and no other is: not
// beside it, not beside a key that somebody else has left, and not with a later listing.
func TestTheFirstIsFirst(t *testing.T) {
	f := setup(t)
	f.set("p", "10/s")
	begins := func() (r *recorder, leave func() error) {
		r, leave = f.subscribe(f.join(Options{}), "p")
		await.Until(t, "a proof", r.is(proved))
		return r, leave
	}
	is := func(r *recorder, what string, first bool) {
		t.Helper()
		r.mu.Lock()
		told := r.view.First
		r.mu.Unlock()
		p := f.only(r)
		p.s.mu.Lock()
		own := p.Own().Value
		p.s.mu.Unlock()
		if told != first || own.First != first || own.From.IsZero() != first {
			t.Errorf("%s: is told that it is first: %v; its key says %+v", what, told, own)
		}
	}
	a, leaveA := begins()
	is(a, "one alone", true)
	b, leaveB := begins()
	is(b, "one beside it", false)
	p := f.only(a)
	p.s.mu.Lock()
	p.s.stepLocked(session.WatchAnswer{Line: p.s.onlyWatch().line, Cluster: p.Standing(0).Cluster + 1})
	p.s.mu.Unlock()
	await.Until(t, "another listing", a.is(func(r *recorder) bool { return !r.view.First && r.proofs > 0 }))
	for _, leave := range []func() error{leaveB, leaveA} {
		if err := leave(); err != nil {
			t.Error(err)
		}
	}
	f.hasNoInstances("p")
	c, leaveC := begins()
	is(c, "one after all have left", true)
	if err := leaveC(); err != nil {
		t.Error(err)
	}
	if _, err := f.client.Put(t.Context(), f.keys.Issuer("p", "another"), ""); err != nil {
		t.Fatal(err)
	}
	d, leaveD := begins()
	is(d, "one beside an issuer key", false)
	if err := leaveD(); err != nil {
		t.Error(err)
	}
}

// TestWhatIsLeftGoes: an issuer key that nobody uses goes S after its instance, also beside one
// that has to stay.
func TestWhatIsLeftGoes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	stays, goes := f.keys.Issuers("p")+"%zz", f.keys.Issuer("p", "gone")
	for key, value := range map[string]string{stays: "", goes: "", f.keys.Instances("p") + "%zz": "written by hand"} {
		if err := f.write(clientv3.OpPut(key, value)); err != nil {
			t.Fatal(err)
		}
	}
	r, _ := f.subscribe(f.join(Options{}), "p")
	await.Until(t, "a proof", r.is(proved))
	there := func(key string) bool {
		t.Helper()
		r, err := f.client.Get(t.Context(), key, clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return r.Count > 0
	}
	await.Until(t, "what is left goes", func() bool { return !there(goes) })
	if own := f.only(r).current().ID; !there(stays) || !there(f.keys.Issuer("p", own)) {
		t.Error("the key of an instance that is there goes too")
	}
}
