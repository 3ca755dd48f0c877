package quota

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func keysOf(most int64, limits ...Limit) Keys { return Keys{Limits: limits, Most: most} }

// The limits of keys have the bounds that the documents state.
func TestKeysValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		keys       Keys
	}{
		{"none", "", Keys{}},
		{"shortest and longest window", "", keysOf(1, Limit{Permits: 1, Window: 250 * time.Millisecond}, Limit{Permits: 0, Window: MaxWindow})},
		{"most of all", "", keysOf(1_000_000, Limit{Permits: 1, Window: time.Second})},
		{"default most", "", keysOf(0, Limit{Permits: 1, Window: time.Second})},
		{"too many in use", "keys.most 1000001: must be from 1 to 1000000", keysOf(1_000_001, Limit{Permits: 1, Window: time.Second})},
		{"fewer than none", "keys.most -1: must be from 1 to 1000000", keysOf(-1, Limit{Permits: 1, Window: time.Second})},
		{"no limits", "keys without limits: keys.most and keys.owners are of limits by key; set keys.limits too, as in 80/s", keysOf(7)},
		{"short window", "keys.limits[0].window 249ms: must be at least 250ms for keys", keysOf(1, Limit{Permits: 1, Window: 249 * time.Millisecond})},
		{"long windows", "", keysOf(1, Limit{Permits: 5000, Window: time.Hour}, Limit{Permits: 9000, Window: 24 * time.Hour})},
		{"odd long window", "keys.limits[0].window 1h0m0.5s", keysOf(1, Limit{Permits: 5000, Window: time.Hour + 500*time.Millisecond})},
		{"two of one window", "two limits have the same window", keysOf(1, Limit{Permits: 1, Window: time.Second}, Limit{Permits: 2, Window: time.Second})},
		{"most owners", "", Keys{Limits: []Limit{{Permits: 1, Window: time.Second}}, Owners: 16}},
		{"too many owners", "keys.owners 17: must be from 0 to 16; 0 stands for all instances", Keys{Limits: []Limit{{Permits: 1, Window: time.Second}}, Owners: 17}},
		{"owners of nothing", "keys without limits: keys.most and keys.owners are of limits by key", Keys{Owners: 1}},
		{"too many permits", "keys.limits[0].permits", keysOf(1, Limit{Permits: MaxPermits + 1, Window: time.Second})},
	} {
		err := Policy{Limits: []Limit{{Permits: 1, Window: time.Second}}, Keys: c.keys}.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "\n") > 0) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	p := Policy{Limits: []Limit{{Permits: 100, Window: time.Second}}, Keys: keysOf(1, Limit{Permits: 1, Window: time.Second})}
	if p.Shape = ShapeSliding; p.Validate() == nil || !strings.Contains(p.Validate().Error(), "set shape fixed") {
		t.Errorf("under a shape: %v", p.Validate())
	}
	p.Shape, p.Guard = ShapeFixed, 200*time.Millisecond
	if p.Keys.Limits[0].Window = 300 * time.Millisecond; p.Validate() == nil {
		t.Error("the guard leaves nothing of a key's window, and is valid")
	}
	p = Policy{Limits: []Limit{{Permits: 100, Window: time.Second}}, Keys: keysOf(1, Limit{Permits: 1, Window: MaxWindow}), Timing: Timing{Settle: time.Second, Freshness: 880 * time.Millisecond}}
	if p.Validate() == nil {
		t.Error("the settle time does not count the drift of a key's window")
	}
}

// Keys are written with their defaults, and read as they are.
func TestKeysInJSON(t *testing.T) {
	t.Parallel()
	p := Policy{Limits: []Limit{{Permits: 100, Window: time.Second}}, Keys: keysOf(0, Limit{Permits: 1000, Window: time.Minute}, Limit{Permits: 80, Window: time.Second})}
	text, err := json.Marshal(p)
	if want := `"keys":{"limits":[{"permits":80,"window":"1s"},{"permits":1000,"window":"1m0s"}],"most":100000}`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	var again Policy
	if err := json.Unmarshal(text, &again); err != nil || FormatLimits(again.Keys.Limits) != "80/s,1000/1m" || again.Keys.Most != 100_000 {
		t.Errorf("read as %+v, %v", again.Keys, err)
	}
	owned := Policy{Limits: p.Limits, Keys: Keys{Limits: p.Keys.Limits, Owners: 2}}
	text, err = json.Marshal(owned)
	if want := `"most":100000,"owners":2}`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	if err := json.Unmarshal(text, &again); err != nil || again.Keys.Owners != 2 {
		t.Errorf("read as %+v, %v", again.Keys, err)
	}
	clone := p.Clone()
	clone.Keys.Limits[0].Permits = 7
	if p.Keys.Limits[0].Permits != 1000 {
		t.Error("a clone shares the limits of keys")
	}
	if text, _ := json.Marshal(Policy{Limits: p.Limits}); strings.Contains(string(text), "keys") {
		t.Errorf("a policy without keys is written as %s", text)
	}
}
