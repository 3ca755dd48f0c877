package coordinator

import (
	"context"
	"testing"

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
