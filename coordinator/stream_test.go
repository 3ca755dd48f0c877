package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
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

// silent is a watcher to which etcd answers after a while.
type silent struct {
	clientv3.Watcher
	after time.Duration
}

func (s silent) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	sleep(ctx, s.after)
	return make(clientv3.WatchChan)
}

// TestAWatchThatIsNotCreatedEnds: etcd answers nothing to a watch that is opened, and to other calls it does. No member
// follows yet, so nothing else would end that watch. One that was created stays open, however little it tells.
func TestAWatchThatIsNotCreatedEnds(t *testing.T) {
	for after, ends := range map[time.Duration]bool{etcdcall.Timeout - time.Second: false, time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			s := &stream{Watcher: silent{after: after}, ctx: ctx, end: end}
			began := time.Now()
			s.open("/")
			if took := time.Since(began); took != min(after, etcdcall.Timeout) {
				t.Errorf("it waits %v for an answer that comes after %v", took, after)
			}
			time.Sleep(time.Hour)
			if synctest.Wait(); (ctx.Err() != nil) != ends {
				t.Errorf("an answer comes after %v: %v", after, ctx.Err())
			}
			end()
		})
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
