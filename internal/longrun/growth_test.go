package longrun_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

var growthHours = flag.Float64("hours", 0.5, "how long TestTheDatabaseStopsGrowing writes, in fake time")

// TestTheDatabaseStopsGrowing writes what the reports of 300 instances write, one
// in 30 s each, and prints the size of etcd's database as it is compacted every
// five minutes: it holds what was written in ten minutes at most, not in hours.
//
//	go test -v -run DatabaseStopsGrowing ./internal/longrun -hours 12
func TestTheDatabaseStopsGrowing(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		client := n.connect(t)
		const instances = 300
		value := strings.Repeat("r", 330) // with its key, as much as a report
		ten, most := int64(0), int64(0)
		began := time.Now()
		for i := 0; time.Since(began) < time.Duration(*growthHours*float64(time.Hour)); i++ {
			key := fmt.Sprintf("%sreports/%s/worker-%d.payments.694d9a1b2c3d4e5f.1", prefix, provider, i%instances)
			if _, err := client.Txn(t.Context()).Then(clientv3.OpPut(key, value)).Commit(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second / instances)
			synctest.Wait()
			size := n.server.Backend().Size()
			if most = max(most, size); i == 10*600 {
				ten = most
			}
			if i%6000 == 0 {
				t.Logf("after %v: %.1f MB, of which %.1f MB are in use, %d writes", time.Since(began).Round(time.Minute), float64(size)/1e6, float64(n.server.Backend().SizeInUse())/1e6, i)
			}
		}
		if ten == 0 || most > 2*ten {
			t.Errorf("the database grew from %d bytes after ten minutes to %d", ten, most)
		}
	})
}
