package hours_test

import (
	"flag"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

var (
	costOf  = flag.Int("instances", manyInstances, "how many instances TestWhatSharingByDemandCosts has")
	costFor = flag.Int("seconds", 60, "how long it counts")
)

// traffic is what was written to etcd, by the kind of key.
type traffic struct{ reports, levels, levelBytes int }

// listen counts writes from now on, until the returned function is called.
func (c *crew) listen() func() traffic {
	watch := c.network.connect(c.t).Watch(c.ctx, prefix, clientv3.WithPrefix())
	counted := make(chan traffic)
	enough := make(chan struct{})
	go func() {
		var sum traffic
		for {
			select {
			case r := <-watch:
				for _, e := range r.Events {
					switch key := string(e.Kv.Key); {
					case e.Type != clientv3.EventTypePut:
					case strings.HasPrefix(key, prefix+"reports/"):
						sum.reports++
					case strings.HasSuffix(key, "/level"):
						sum.levels++
						sum.levelBytes += len(e.Kv.Key) + len(e.Kv.Value)
					}
				}
			case <-enough:
				counted <- sum
				return
			}
		}
	}()
	return func() traffic {
		synctest.Wait()
		close(enough)
		return <-counted
	}
}

// TestWhatSharingByDemandCosts: each instance writes a report in two seconds at
// most and in ten at least, and reads a level in two seconds at most; and what
// etcd sends is in proportion to the instances, though a few read all reports.
// For many instances: -run 'Costs/demand' -instances 1000 -seconds 20.
func TestWhatSharingByDemandCosts(t *testing.T) {
	n, seconds := *costOf, *costFor
	for _, share := range []quota.ShareRule{quota.ShareEqual, quota.ShareDemand} {
		for _, load := range []string{"steady", "restless"} {
			t.Run(string(share)+"/"+load, func(t *testing.T) {
				inCrew(t, n, int64(500*n), quota.Policy{Division: quota.Division{Share: share}}, func(c *crew) {
					c.cost(n, seconds, share, load)
				})
			})
		}
	}
}

func (c *crew) cost(n, seconds int, share quota.ShareRule, load string) {
	c.offer(func(i int) int64 { return int64(1000 * (i % 2)) })
	time.Sleep(20 * time.Second)
	stop := c.listen()
	sent := counted(c.t, "etcd_network_client_grpc_sent_bytes_total")
	for second := range seconds {
		if load == "restless" && second%3 == 0 {
			c.offer(func(i int) int64 { return int64((i*31 + second*17) % 1000) })
		}
		time.Sleep(time.Second)
	}
	sum := stop()
	each := float64(sum.reports) / float64(n*seconds)
	level := float64(sum.levels) / float64(seconds)
	sent = (counted(c.t, "etcd_network_client_grpc_sent_bytes_total") - sent) / float64(n*seconds)
	c.t.Logf("%d instances, %s, %s: an instance writes %.3f reports and reads %.2f levels a second, %d bytes; etcd sends %.0f bytes a second for each",
		n, share, load, each, level, sum.levelBytes/seconds, sent)
	if share == quota.ShareEqual && sum.levels > 0 || share == quota.ShareDemand && (each < 0.09 || each > 0.51 || level < 0.05 || level > 0.55) {
		c.t.Errorf("%+v in %d seconds", sum, seconds)
	}
}

// TestBurstsDoNotMakeTheLevelSwing: instances that all call in bursts, and rest
// for a second in between, keep what they have.
func TestBurstsDoNotMakeTheLevelSwing(t *testing.T) {
	const n, total = 24, 12_000
	inCrew(t, n, total, quota.Policy{Division: quota.Division{Share: quota.ShareDemand}}, func(c *crew) {
		bursts := func(seconds int) []int64 {
			before := c.served(0)
			for second := range seconds {
				c.offer(func(i int) int64 { return int64((i+second)%2) * int64(1+i%4) * total * 2 / 5 / n })
				time.Sleep(time.Second)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			for i, h := range c.hands {
				before[i] = h.served
			}
			return before
		}
		bursts(30)
		first, second := bursts(30), bursts(30)
		for i := range first {
			if d := first[i] - second[i]; d > first[i]/5 || d < -first[i]/5 {
				t.Errorf("instance %d was issued %d in 30 s and %d in the next, for the same bursts", i, first[i], second[i])
			}
		}
		if part := float64(sum(second)) / (30 * total / 2); part < 0.9 {
			t.Errorf("%.3f of what was asked for in bursts was served", part)
		}
	})
}
