//go:build load

package hours_test

import (
	"encoding/json"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestHoursOfKeepalives: leases, probes and watches of a fleet for two hours. Nobody
// registers anew, and proofs come all the time.
func TestHoursOfKeepalives(t *testing.T) {
	inTeam(t, 3, func(f *team) {
		var before []string
		for _, l := range f.limiters {
			before = append(before, l.Status().Incarnation)
		}
		for range 2 * 60 {
			pass(time.Minute)
			f.agree(100)
		}
		for i, l := range f.limiters {
			if now := l.Status().Incarnation; now != before[i] {
				t.Errorf("instance %d became %s, it was %s", i, now, before[i])
			}
		}
	})
}

// TestHoursOfTrouble: again and again leases are revoked under living
// instances, connections break, revisions are compacted away while they are
// broken, and the policy changes. After each the fleet agrees.
func TestHoursOfTrouble(t *testing.T) {
	inTeam(t, 3, func(f *team) {
		total := int64(100)
		for round := range 3 {
			f.loseLease(round)
			f.agree(total)
			total = int64(200 + round)
			f.compactUnseen(total)
			f.agree(total)
			pass(20 * time.Minute)
			f.agree(total)
		}
	})
}

// compactUnseen breaks all connections, changes the policy and compacts it away
// meanwhile, through the server itself, and lets the fleet come back.
func (f *team) compactUnseen(total int64) {
	f.t.Helper()
	done := make(chan struct{})
	go func() {
		f.breakOff(1500 * time.Millisecond)
		close(done)
	}()
	pass(100 * time.Millisecond)
	// Twice, so that the first is gone after the compaction.
	for _, n := range []int64{total + 1000, total} {
		value, err := json.Marshal(permits(n))
		if err != nil {
			f.t.Fatal(err)
		}
		r, err := f.server.Put(f.t.Context(), &pb.PutRequest{Key: []byte(prefix + "providers/" + provider + "/policy"), Value: value})
		if err != nil {
			f.t.Fatal(err)
		}
		if n == total {
			if _, err := f.server.Compact(f.t.Context(), &pb.CompactionRequest{Revision: r.Header.Revision}); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	<-done
	pass(20 * time.Second)
}
