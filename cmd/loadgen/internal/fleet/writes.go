package fleet

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/load"
)

// countWrites counts what the instances write into etcd, until stop is called. The result is per
// second of an elapsed time; nil if etcd does not let the run see all of it.
func (r *run) countWrites(ctx context.Context) (stop func(seconds float64) *load.Writes) {
	ctx, cancel := context.WithCancel(ctx)
	counted := make(chan *load.Writes, 1)
	go func() { counted <- r.watchWrites(ctx) }()
	return func(seconds float64) *load.Writes {
		cancel()
		w := <-counted
		if w == nil {
			return nil
		}
		w.PerSecond /= seconds
		for kind := range w.Keys {
			w.Keys[kind] /= seconds
		}
		return w
	}
}

// watchWrites counts until ctx ends.
func (r *run) watchWrites(ctx context.Context) *load.Writes {
	k, err := keys.New(r.c.Etcd.Prefix)
	if err != nil {
		return nil
	}
	w, last := &load.Writes{Keys: map[string]float64{}}, int64(0)
	for answer := range r.etcd.client.Watch(ctx, k.Prefix(), clientv3.WithPrefix()) {
		if err := answer.Err(); err != nil && ctx.Err() == nil {
			return nil
		}
		for _, event := range answer.Events {
			kind, provider := k.Of(string(event.Kv.Key))
			if provider != r.provider {
				continue
			}
			if w.Keys[kind]++; event.Kv.ModRevision != last {
				w.PerSecond++
				last = event.Kv.ModRevision
			}
		}
	}
	if ctx.Err() == nil {
		return nil
	}
	return w
}
