package trace

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// someView is a view of any kind, about the time of someWindow.
func someView(r *rand.Rand) *protocol.View {
	about := func() time.Time { return time.Unix(0, epoch+r.Int64N(4*second)-2*second) }
	limits := func() (all []quota.Limit) {
		for _, length := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			if r.IntN(3) > 0 || length == time.Second {
				all = append(all, quota.Limit{Permits: r.Int64N(1 + int64(1)<<r.IntN(20)), Window: length})
			}
		}
		return all
	}
	some := func(part int) bool { return r.IntN(part) == 0 }
	p := quota.Policy{Limits: limits()}
	if some(4) {
		p.From = about()
	}
	for range r.IntN(4) {
		p.Next = append(p.Next, quota.LimitChange{From: about(), Limits: limits()})
	}
	slices.SortFunc(p.Next, func(a, b quota.LimitChange) int { return a.From.Compare(b.From) })
	if some(8) {
		p.Ignored = []string{"share weighted"}
	}
	if some(4) {
		p.Shape = quota.ShapeSliding
	}
	if some(8) {
		p.Mode = quota.ModePause
	}
	p = p.WithDefaults()
	v := &protocol.View{Revision: 5, Policy: &p, PolicyRevision: 3}
	for i := range r.IntN(30) {
		in := protocol.Instance{ID: fmt.Sprintf("i%d.%x", i, r.Uint64()), Name: fmt.Sprintf("i%d", i)}
		if some(5) {
			in.From = about()
		}
		if some(5) {
			in.Until = about()
		}
		v.Instances = append(v.Instances, in)
	}
	return v
}

// The judge's totals and shares are those of the instances, though it works them out by
// code of its own; so a mistake in either of them shows.
func TestTheNaivePathAgrees(t *testing.T) {
	t.Parallel()
	seeds := uint64(20_000)
	if testing.Short() {
		seeds = 2_000
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 4))
		v, w := someView(r), quota.WindowAt([]time.Duration{time.Second, 2 * time.Second, 4 * time.Second}[r.IntN(3)], epoch)
		permits, limited, inForce := protocol.PermitsFor(v.Policy, w)
		if p, l, f := limitOf(v.Policy, w); p != permits || l != limited || f != inForce {
			t.Fatalf("seed %d: the total is %d, %v, %v, and instances have %d, %v, %v\n%+v", seed, p, l, f, permits, limited, inForce, v.Policy)
		}
		total, want, ok := share.Of(v, w)
		got, limited := sharesOf(v, w)
		for _, in := range v.Instances {
			if _, there := got[in.ID]; !there && want[in.ID] == 0 {
				delete(want, in.ID)
			}
		}
		if limited != ok || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: shares %v, %v, and instances have %v, %v\n%+v", seed, got, limited, want, ok, v.Policy)
		}
		if all := (Views{{View: *v}}).Total(0, w); ok && !givesNothing(v.Policy) && all != total {
			t.Fatalf("seed %d: a total of %d, and instances have %d", seed, all, total)
		}
	}
}

// The judge reads no total and no share by the code that instances use.
func TestTheJudgeIsOnItsOwn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bound.go", "explain.go", "judge.go", "naive.go", "views.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`internal/(share|window|view)"|PermitsFor\(|LimitOf|LimitsAt|TakesPart`).FindString(string(text)); found != "" {
			t.Errorf("%s has %s: work it out in naive.go", name, found)
		}
	}
}
