//go:build load

package hours_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

var growthHours = flag.Float64("hours", 0.5, "how long TestTheDatabaseStopsGrowing writes, in fake time")

// TestTheDatabaseStopsGrowing writes what the reports of 300 instances write, one
// in 30 s each, and prints the size of etcd's database as it is compacted every
// five minutes: it holds what was written in ten minutes at most, not in hours.
// The ten reports of a second are one transaction, given to the server without
// a client: for the database that is the same, and it takes a tenth of the time.
//
//	go test -v -run DatabaseStopsGrowing ./test/hours -hours 12
func TestTheDatabaseStopsGrowing(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		const instances, aSecond = 300, 10
		value := []byte(strings.Repeat("r", 330)) // with its key, as much as a report
		hours := time.Duration(*growthHours * float64(time.Hour))
		twenty, most := int64(0), int64(0)
		for i := 0; time.Duration(i)*time.Second < hours; i++ {
			txn := &pb.TxnRequest{}
			for j := range aSecond {
				key := fmt.Sprintf("%sreports/%s/worker-%d.payments.694d9a1b2c3d4e5f.1", prefix, provider, (i*aSecond+j)%instances)
				txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: value}}})
			}
			if _, err := n.server.Txn(t.Context(), txn); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			size := n.server.Backend().Size()
			if most = max(most, size); i == 20*60 {
				twenty = most
			}
			if hour := 3600; i == 10*60 || i == 20*60 || i%hour == hour-1 {
				t.Logf("after %v: %.1f MB, of which %.1f MB are in use, %d reports", time.Duration(i+1)*time.Second,
					float64(size)/1e6, float64(n.server.Backend().SizeInUse())/1e6, (i+1)*aSecond)
			}
		}
		if twenty == 0 || float64(most) > 1.5*float64(twenty) {
			t.Errorf("the database grew from %d bytes after twenty minutes to %d", twenty, most)
		}
	})
}
