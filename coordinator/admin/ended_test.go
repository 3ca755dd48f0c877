package admin

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

var epoch = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// instance writes an instance's key, with an end if that is not zero.
func (f *fixture) instance(id string, until time.Time, o ...clientv3.OpOption) {
	f.t.Helper()
	text := `{"schema":1,"name":"` + id + `"}`
	if !until.IsZero() {
		text = fmt.Sprintf(`{"schema":1,"name":%q,"until":%q}`, id, until.Format(time.RFC3339Nano))
	}
	f.put(f.admin.keys.Instance("p", id), text, o...)
}

func (f *fixture) put(key, text string, o ...clientv3.OpOption) {
	f.t.Helper()
	if _, err := f.client.Put(f.t.Context(), key, text, o...); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) remove(key string) {
	f.t.Helper()
	if _, err := f.client.Delete(f.t.Context(), key); err != nil {
		f.t.Fatal(err)
	}
}

// look returns the revision of a look, and the instances.
func (f *fixture) look() (revision int64, all []string) {
	f.t.Helper()
	fleet, err := f.admin.Fleet(f.t.Context(), "p")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, i := range fleet.Instances {
		all = append(all, i.ID)
	}
	return fleet.Revision, all
}

// ended returns what is told of the ends of instances: until when each, in seconds after epoch; 0 if it
// had announced no end.
func (f *fixture) ended(there, gone int64, ids ...string) map[string]int {
	f.t.Helper()
	told, err := feed.Inside(f.admin).Ended(f.t.Context(), "p", there, gone, ids)
	if err != nil {
		f.t.Fatal(err)
	}
	seconds := map[string]int{}
	for id, i := range told {
		if i.ID != id || i.Name != id {
			f.t.Errorf("%s is told as %+v", id, i)
		}
		if seconds[id] = 0; !i.Until.IsZero() {
			seconds[id] = int(i.Until.Sub(epoch).Seconds())
		}
	}
	return seconds
}

// Of each instance etcd tells what its key said last, however short that stood, whatever else was written between two looks,
// and also if its lease removed it.
func TestWhatEndedInstancesHadAnnounced(t *testing.T) {
	f := setup(t)
	after := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	others := func(n int) {
		for i := range n {
			f.put(f.prefix+"other", fmt.Sprint(i))
		}
	}
	want := map[string]int{}
	lease, err := f.client.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	f.instance("crashed", time.Time{}, clientv3.WithLease(lease.ID))
	want["crashed"] = 0
	for _, id := range []string{"first", "short", "twice", "long", "deleted/ü", "last", "stays"} {
		f.instance(id, time.Time{})
	}
	for i := range 200 { // more than a transaction has operations
		f.instance(fmt.Sprint("many-", i), time.Time{})
	}
	there, before := f.look()
	f.remove(f.admin.keys.Instance("p", "first")) // the very next revision
	want["first"] = 0
	others(130)
	f.instance("short", after(1))
	f.remove(f.admin.keys.Instance("p", "short"))
	want["short"] = 1
	f.instance("twice", after(60))
	f.instance("long", after(3))
	others(70)
	f.instance("twice", after(2))
	for i := range 200 {
		id := fmt.Sprint("many-", i)
		if want[id] = 0; i%3 == 0 {
			want[id] = 10 + i
			f.instance(id, after(10+i))
		}
		f.remove(f.admin.keys.Instance("p", id))
	}
	f.remove(f.admin.keys.Instance("p", "deleted/ü"))
	want["deleted/ü"] = 0
	f.remove(f.admin.keys.Instance("p", "twice"))
	want["twice"] = 2
	if _, err := f.client.Revoke(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	others(3)
	f.remove(f.admin.keys.Instance("p", "long"))
	want["long"] = 3
	f.instance("last", after(4))
	f.remove(f.admin.keys.Instance("p", "last")) // the revision of the second look
	want["last"] = 4
	gone, left := f.look()
	if !slices.Equal(left, []string{"stays"}) || len(before) != len(want)+1 {
		t.Fatalf("%d instances, then %q", len(before), left)
	}
	if got := f.ended(there, gone, slices.Sorted(maps.Keys(want))...); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := f.ended(there, gone, "long"); !maps.Equal(got, map[string]int{"long": 3}) {
		t.Errorf("asked for by itself: %v", got)
	}
	if got := f.ended(gone+100_000, gone, "long"); len(got) != 0 {
		t.Errorf("of a store that went back: %v", got)
	}
	if got := f.ended(there, gone, "never there"); len(got) != 0 {
		t.Errorf("of an instance that was never there: %v", got)
	}
}

// What etcd has compacted is not told, and is no error.
func TestACompactedEndIsNotTold(t *testing.T) {
	t.Parallel()
	_, client := etcdtest.New(t, embedded.Options{})
	a, err := New(client, Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, client: client, admin: a, prefix: a.keys.Prefix()}
	f.instance("a", time.Time{})
	f.instance("b", time.Time{})
	there, _ := f.look()
	f.instance("a", epoch)
	f.remove(f.admin.keys.Instance("p", "a"))
	f.put("/other", "")
	f.remove(f.admin.keys.Instance("p", "b"))
	f.put("/other", "")
	gone, _ := f.look()
	if got, want := f.ended(there, gone, "a", "b"), (map[string]int{"a": 0, "b": 0}); !maps.Equal(got, want) {
		t.Fatalf("before: %v, want %v", got, want)
	}
	if _, err := client.Compact(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if got := f.ended(there, gone, "a", "b"); len(got) != 0 {
		t.Errorf("after: %v", got)
	}
}

// However far apart two revisions are, and however many are asked for, each question is for one strictly between them.
func TestRevisionsBetween(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		there, gone, n int64
		want           []int64
	}{
		{5, 6, 128, nil},
		{5, 7, 128, []int64{6}},
		{5, 10, 128, []int64{6, 7, 8, 9}},
		{5, 10, 1, []int64{7}},
		{0, 100, 3, []int64{25, 50, 75}},
		{1, 1 << 50, 1, []int64{1 + (1<<50-1)/2}},
	} {
		l := life{there: test.there, gone: test.gone}
		if got := l.between(test.n); !slices.Equal(got, test.want) {
			t.Errorf("%d of %d to %d: %v, want %v", test.n, test.there, test.gone, got, test.want)
		}
	}
	l := life{there: 1, gone: 1 << 50}
	if all := l.between(128); len(all) != 128 || all[0] <= l.there || all[127] >= l.gone || !slices.IsSorted(all) {
		t.Errorf("of many: %v", all)
	}
}
