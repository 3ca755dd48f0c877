package protocol_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// TestOverridesAreRead: a document is read as a whole, or refused with the name of what is
// wrong.
func TestOverridesAreRead(t *testing.T) {
	const name = "installation-4711"
	bucket := protocol.OverrideBucket(name)
	for _, c := range []struct{ value, want string }{
		{`{"schema":1,"keys":{"installation-4711":"100/s,1000/m"}}`, ""},
		{`{"schema":1,"keys":{}}`, ""},
		{`{"schema":1,"keys":{"installation-4711":"100/s,1000/m owners=3"}}`, ""},
		{`{"schema":1,"keys":{"installation-4711":"100/s owners=0"}}`, ""},
		{`{"schema":1,"keys":{"installation-4711":"100/s owners=17"}}`, "keys.owners 17"},
		{`{"schema":1,"keys":{"installation-4711":"100/s owners=-1"}}`, "keys.owners -1"},
		{`{"schema":1,"keys":{"installation-4711":"100/s owners="}}`, "want a number"},
		{`{"schema":1,"keys":{"installation-4711":"100/s owners=2 owners=3"}}`, "want a number"},
		{`{"schema":1,"keys":{"installation-4711":"0/s"},"later":"a field that this version does not know"}`, ""},
		{`{"schema":2,"keys":{}}`, "schema 2 is not the one this version knows"},
		{`{"keys":{}}`, "schema 0"},
		{`{"schema":1,"keys":{"installation-4712":"1/s"}}`, `key "installation-4712" belongs to document`},
		{`{"schema":1,"keys":{"installation-4711":""}}`, `key "installation-4711"`},
		{`{"schema":1,"keys":{"installation-4711":"many"}}`, "many"},
		{`{"schema":1,"keys":{"installation-4711":"5000/h"}}`, ""},
		{`{"schema":1,"keys":{"installation-4711":"5000/25h"}}`, "longer than a day"},
		{`{"schema":1,"keys":{"installation-4711":"1/200ms"}}`, "must be at least 250ms"},
		{`{"schema":1,"keys":["installation-4711"]}`, "cannot unmarshal"},
		{`{"schema":1,"keys":{"installation-4711":"1/s"`, "unexpected end"},
		{`{"schema":1}` + strings.Repeat(" ", protocol.MaxOverridesBytes), "more than the most, 65536"},
		{"", "unexpected end"},
	} {
		o, err := protocol.ReadOverrides(bucket, []byte(c.value))
		if c.want == "" && (err != nil || o.Broken) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.80s: %v, want %q", c.value, err, c.want)
		}
	}
	if err := protocol.ValidateOverride(name, nil); err == nil {
		t.Error("an override without limits is valid")
	}
	if err := protocol.ValidateOverride("a\nb", &protocol.Override{Limits: []quota.Limit{{Permits: 1, Window: time.Second}}}); err == nil {
		t.Error("a name with a control character is valid")
	}
}

// TestOverridesSurviveAWrite: what is written of any names and limits is read again, and names
// are found in their own buckets only.
func TestOverridesSurviveAWrite(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	windows := []time.Duration{250 * time.Millisecond, time.Second, 1500 * time.Millisecond, 10 * time.Second, time.Minute}
	view, want := protocol.View{Overrides: map[int]*protocol.Overrides{}}, map[string]*protocol.Override{}
	for range 2000 {
		name := []rune{}
		for range 1 + r.IntN(20) {
			name = append(name, []rune("ab/<>&\"\\é世 0=,")[r.IntN(16-2)])
		}
		limits := []quota.Limit{}
		for _, i := range r.Perm(len(windows))[:1+r.IntN(3)] {
			limits = append(limits, quota.Limit{Permits: r.Int64N(10), Window: windows[i]})
		}
		own := &protocol.Override{}
		own.Limits, _ = quota.ParseLimits(quota.FormatLimits(limits))
		if n := r.Int64N(20); n <= 16 {
			own.Owners = &n
		}
		want[string(name)] = own
	}
	for bucket := range protocol.OverrideBuckets {
		own := maps.Clone(want)
		maps.DeleteFunc(own, func(name string, _ *protocol.Override) bool { return protocol.OverrideBucket(name) != bucket })
		text, err := protocol.EncodeOverrides(own)
		if err != nil {
			t.Fatal(err)
		}
		if view.Overrides[bucket], err = protocol.ReadOverrides(bucket, text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if _, err := protocol.ReadOverrides((bucket+1)%protocol.OverrideBuckets, text); err == nil && len(own) > 0 {
			t.Errorf("document %d is read as another", bucket)
		}
	}
	for name, own := range want {
		if got, broken := view.Override(name); broken || !reflect.DeepEqual(got, own) {
			t.Errorf("%q has %v, want %v", name, got, own)
		}
	}
	if got, broken := view.Override("no such key"); got != nil || broken {
		t.Errorf("a key without an override has %v", got)
	}
}

// TestOverrideBucketsGoldenValue: other builds look in the same documents.
func TestOverrideBucketsGoldenValue(t *testing.T) {
	got := ""
	for k := range 6 {
		got += fmt.Sprint(protocol.OverrideBucket(fmt.Sprint("installation-", k)), " ")
	}
	if want := "48 35 22 9 60 47 "; got != want {
		t.Errorf("buckets %q, want %q", got, want)
	}
}

// FuzzOverrides: any text is refused, or has limits that are valid and is written again as
// what it says.
func FuzzOverrides(f *testing.F) {
	f.Add([]byte(`{"schema":1,"keys":{"installation-4711":"100/s,1000/m"}}`))
	f.Add([]byte(`{"schema":1,"keys":{"installation-4711":"100/s,1000/m owners=3"}}`))
	f.Add([]byte(`{"schema":2}`))
	f.Add([]byte(`{"schema":1,"keys":{"a":"1/s","a":"2/s","":"1/s"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for bucket := range protocol.OverrideBuckets {
			o, err := protocol.ReadOverrides(bucket, text)
			if err != nil {
				continue
			}
			for name, limits := range o.Keys {
				if err := protocol.ValidateOverride(name, limits); err != nil {
					t.Errorf("%q is read: %v", text, err)
				}
			}
			again, err := protocol.EncodeOverrides(o.Keys)
			if err != nil || !json.Valid(again) {
				t.Fatalf("%q is written as %q: %v", text, again, err)
			}
			if len(again) > protocol.MaxOverridesBytes {
				continue
			}
			if two, err := protocol.ReadOverrides(bucket, again); err != nil || !reflect.DeepEqual(two, o) {
				t.Errorf("%q is read as %v, then %v: %v", text, o, two, err)
			}
		}
	})
}
