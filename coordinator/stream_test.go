package coordinator

import (
	"context"
	"testing"
	"testing/synctest"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestAnEndedWatchSaysNothing: events on their way when a watch ends are not taken. They
// may be of a store that has been replaced.
func TestAnEndedWatchSaysNothing(t *testing.T) {
	for range 20 { // select is fair
		told := make(chan clientv3.WatchResponse, 1)
		ended, end := context.WithCancel(t.Context())
		end()
		told <- clientv3.WatchResponse{}
		s := &stream{answers: told, ctx: ended, end: end}
		if _, ok := s.next(); ok {
			t.Fatal("an ended watch has an answer")
		}
	}
}

// stuck is a watcher of a client whose Close does not return.
type stuck struct {
	clientv3.Watcher
	released chan struct{}
}

func (s stuck) Close() error {
	<-s.released
	return nil
}

// TestNobodyWaitsForTheClient: Close of etcd's client may never return. A session that waited for it would
// neither close nor open its next watch.
func TestNobodyWaitsForTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		released := make(chan struct{})
		(&stream{Watcher: stuck{released: released}, ctx: ctx, end: end}).close()
		if ctx.Err() == nil {
			t.Error("the watch goes on")
		}
		close(released)
	})
}
