package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/quotient-limiter/quotient/quota"
)

// transactions counts what the instances' clients send to etcd as transactions.
var transactions atomic.Int64

func countTransactions(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	if method == "/etcdserverpb.KV/Txn" {
		transactions.Add(1)
	}
	return invoke(ctx, method, req, reply, c, o...)
}

// long has all instances use keys of a limit of an hour: at the whole rate of that, and then
// others that have few permits until all of these are gone. Callers count the permits.
func (f *fleet) long(context.Context) (over bool, err error) {
	rate := policies["long"].Keys.Limits[0]
	f.callEach("long", float64(rate.Permits)/rate.Window.Seconds(), *length) // it begins
	before := transactions.Load()
	began := time.Now()
	issued := f.callEach("long", float64(rate.Permits)/rate.Window.Seconds(), 3**length)
	spent := time.Since(began).Seconds()
	sum, wanted := int64(0), float64(*counted)*float64(rate.Permits)/rate.Window.Seconds()*spent
	for _, n := range issued {
		sum += n
	}
	fmt.Printf("%d keys of %s in use on %d instances: %.1f transactions a second; %.1f%% of the calls at the limit's rate were served at once\n",
		*counted, rate, *instances, float64(transactions.Load()-before)/spent, 100*float64(sum)/wanted)

	few := policies["few"].Keys.Limits[0]
	all := map[int]int64{}
	began = time.Now()
	for left := true; left && time.Since(began) < 10**length; {
		left = false
		for key, n := range f.callEach("few", 20, time.Second) {
			all[key] += n
		}
		for key := range *counted {
			over = over || all[key] > few.Permits
			left = left || all[key] < few.Permits
		}
	}
	sum = 0
	for _, n := range all {
		sum += n
	}
	fmt.Printf("%d keys of %s, all instances calling for each: %.2f%% of the permits were had after %.0f s, none over: %t\n",
		*counted, few, 100*float64(sum)/float64(int64(*counted)*few.Permits), time.Since(began).Seconds(), !over)
	return over, nil
}

// callEach has callers of all instances together call for each key so often a second. They do
// not wait. It returns the permits by key.
func (f *fleet) callEach(provider string, rate float64, d time.Duration) map[int]int64 {
	var mu sync.Mutex
	sum := map[int]int64{}
	var all sync.WaitGroup
	began := time.Now()
	each := time.Duration(float64(time.Second) * float64(*instances) / (rate * float64(*counted))) // between two calls of an instance
	for i, l := range f.limiters[provider] {
		all.Go(func() {
			own := map[int]int64{}
			for call := 0; ; call++ {
				at := began.Add(time.Duration(call) * each)
				if at.Sub(began) >= d {
					break
				}
				time.Sleep(time.Until(at))
				key := (call + i*(*counted / *instances)) % *counted
				if l.Key(keyName(key)).TryAcquire() {
					own[key]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for key, n := range own {
				sum[key] += n
			}
		})
	}
	all.Wait()
	return sum
}

// hourly is a policy of keys with so many permits an hour.
func hourly(permits int64) quota.Policy {
	p := policy(permits, time.Minute, 1_000_000)
	p.Keys.Limits[0].Window = time.Hour
	return p
}
