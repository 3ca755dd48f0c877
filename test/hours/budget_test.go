//go:build load

package hours_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// spenders are instances that take a permit a second each, as long as there is one.
type spenders struct {
	*network
	t   *testing.T
	all []*spender

	mu     sync.Mutex
	issued map[int64]int64 // by the window's index
	first  int64           // index
}

type spender struct {
	session *coordinator.Session
	limiter *consumer.Limiter
	line    *line
	stop    context.CancelFunc
}

// spending is the limit that binds them: an hour has four of its windows. A part of one is a
// fifteenth.
var spending = quota.Limit{Permits: 900, Window: 15 * time.Minute}

// limit sets the limits, and returns a client and an operator's.
func (s *spenders) limit() (*clientv3.Client, *admin.Client) {
	s.t.Helper()
	client := s.connect(s.t)
	operator, err := admin.New(client, admin.Options{Prefix: prefix, Author: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	p := quota.Policy{Limits: []quota.Limit{{Permits: 20, Window: time.Second}, spending}}
	if _, err := operator.Put(s.t.Context(), provider, p); err != nil {
		s.t.Fatal(err)
	}
	return client, operator
}

func (s *spenders) join() {
	s.t.Helper()
	one := &spender{line: newLine(s.network)}
	var err error
	one.session, err = coordinator.Join(s.t.Context(), s.connectBy(s.t, one.line.dial), coordinator.Options{Prefix: prefix, Logger: quiet, Probe: time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	pass(time.Millisecond)
	if one.limiter, err = consumer.Open(s.t.Context(), one.session, provider, consumer.Options{Logger: quiet}); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	one.stop = stop
	s.all = append(s.all, one)
	go func() {
		for ctx.Err() == nil {
			n := one.limiter.TryTake(1).N()
			s.mu.Lock()
			s.issued[time.Now().UnixNano()/int64(spending.Window)] += n
			s.mu.Unlock()
			pass(time.Second)
		}
	}()
}

// at waits until so many parts after the start of a window, and returns how many permits
// it has.
func (s *spenders) at(window, parts int64) int64 {
	began := s.first*int64(spending.Window) + window*int64(spending.Window)
	pass(time.Duration(began + parts*int64(spending.Window/15) - time.Now().UnixNano()))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issued[s.first+window]
}

// end stops all instances, once.
func (s *spenders) end() {
	for _, one := range s.all {
		one.stop()
	}
	pass(2 * time.Second) // until they have noticed
	for _, one := range s.all {
		one.line.open()
		if err := one.session.Close(); err != nil {
			s.t.Error(err)
		}
	}
	s.all = nil
}

// correct says what was used of a window that is withheld, as quota-admin does. The total may not say that it is: the mark
// does, where all instances have noticed the restore.
func (s *spenders) correct(client *clientv3.Client, operator *admin.Client, used int64) {
	s.t.Helper()
	if f, err := feed.Inside(operator).Fleet(s.t.Context(), provider); err != nil || len(f.Budgets) != 1 || f.Budgets[0].Withheld == "" {
		s.t.Fatalf("%+v, %v: not withheld", f.Budgets, err)
	}
	k, err := keys.New(prefix)
	if err != nil {
		s.t.Fatal(err)
	}
	got, err := client.Get(s.t.Context(), k.BudgetTotals(provider, protocol.Budget{Limit: spending}.Name()), clientv3.WithLastKey()...)
	if err != nil || len(got.Kvs) != 1 {
		s.t.Fatal(got, err)
	}
	total, err := escrow.Decode[escrow.Total](got.Kvs[0].Value)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := escrow.Encode(total.Corrected(used, 0, 0, protocol.Part{}, got.Header.ClusterId)) // nobody has any in hand
	if err == nil {
		_, err = client.Put(s.t.Context(), string(got.Kvs[0].Key), text, clientv3.WithIgnoreLease())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// An instance that makes no calls for a while gives back what it has in hand.
func TestIdlenessGivesPermitsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, net *network) {
		s := &spenders{network: net, t: t, issued: map[int64]int64{}}
		defer s.end()
		_, operator := s.limit()
		s.join()
		pass(10 * time.Second)
		inHand := func() int64 { return s.all[0].limiter.Status().Limits[1].Left }
		had := int64(0)
		for range 10 {
			pass(300 * time.Millisecond)
			had = max(had, inHand())
		}
		s.all[0].stop()
		pass(20 * time.Second)
		f, err := feed.Inside(operator).Fleet(t.Context(), provider)
		issued := s.all[0].limiter.Status().Issued
		if err != nil || had == 0 || inHand() != 0 || issued == 0 || f.Budgets[0].Left != spending.Permits-issued {
			t.Errorf("%d in hand, then %d; %d issued, %+v, %v", had, inHand(), issued, f.Budgets, err)
		}
	})
}

// Four windows of a long limit, on real sessions and a real etcd: instances join and crash,
// one is cut off, a backup of etcd is restored within a window. No window has more than its
// limit, and those in which nobody crashed have all of it.
func TestHoursOfALongLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, net *network) {
		s := &spenders{network: net, t: t, issued: map[int64]int64{}, first: time.Now().UnixNano() / int64(spending.Window)}
		defer s.end() // also after a failure: else the bubble's time goes on for ever
		client, operator := s.limit()
		for range 4 {
			s.join()
		}
		s.at(0, 1)
		s.join()
		crashed := s.all[0]
		s.at(0, 2)
		crashed.stop()
		crashed.line.hold()
		s.at(0, 3)
		s.join()

		s.at(1, 1)
		s.all[1].line.hold()
		s.at(1, 5)
		s.all[1].line.mend()

		s.at(2, 1)
		s.all[2].stop() // it is at rest, and shall know all the same
		backup := filepath.Join(t.TempDir(), "backup")
		net.restart(func(dir string) error { return os.CopyFS(backup, os.DirFS(dir)) })
		s.at(2, 2)
		net.restart(func(dir string) error {
			pass(10 * time.Second) // longer than settle: docs/run.md
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.CopyFS(dir, os.DirFS(backup))
		})
		before := s.at(2, 4)
		if after := s.at(2, 8); before == 0 || after != before {
			t.Errorf("%d permits, and %d some minutes after the restore", before, after)
		}
		told := func(want bool) {
			t.Helper()
			for i, one := range s.all {
				if one == crashed {
					continue
				}
				st := one.limiter.Status()
				if got := strings.Contains(st.Problem, "quota-admin budget "+provider+" --used N"); got != want || (st.Limits[1].Withheld != "") != want {
					t.Errorf("instance %d says %q of a window that is withheld: %v", i, st.Problem, want)
				}
			}
		}
		told(true)
		s.correct(client, operator, before)
		s.at(2, 11)
		told(false)

		s.at(4, 0)
		s.end()
		for i := range int64(4) {
			least := spending.Permits
			if i == 0 { // a crash may strand a second of the instance's share
				least -= 20 / 4
			}
			if n := s.issued[s.first+i]; n < least || n > spending.Permits {
				t.Errorf("window %d: %d permits, want %d to %d", i, n, least, spending.Permits)
			}
		}
		t.Log(s.issued)
	})
}
