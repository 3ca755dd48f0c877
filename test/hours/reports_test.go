//go:build load

package hours_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// scene is one instance of a provider and all that is written to etcd.
type scene struct {
	t       *testing.T
	client  *clientv3.Client
	admin   *admin.Client
	session *coordinator.Session
	limiter *consumer.Limiter
	writes  <-chan write
}

// write is one key that was put.
type write struct {
	at     time.Time
	report *protocol.Report // nil if the key is no report
	bytes  int              // of key and value
}

// inScene sets a limit of 1000/s, opens it in a session, and runs f.
func inScene(t *testing.T, f func(s *scene)) {
	t.Helper()
	bubble(t, func(t *testing.T, connect func() *clientv3.Client) {
		s := &scene{t: t, client: connect()}
		var err error
		if s.admin, err = admin.New(s.client, admin.Options{Prefix: prefix, Author: "test"}); err != nil {
			t.Fatal(err)
		}
		s.set("1000/s")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.follow(ctx, connect())
		if s.session, err = coordinator.Join(ctx, connect(), coordinator.Options{Prefix: prefix, Name: "worker-17.payments", Logger: quiet}); err != nil {
			t.Fatal(err)
		}
		defer s.session.Close()
		if s.limiter, err = consumer.Open(ctx, s.session, provider, consumer.Options{Logger: quiet}); err != nil {
			t.Fatal(err)
		}
		if err := s.limiter.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		f(s)
	})
}

func (s *scene) set(limits string) {
	s.t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.admin.Put(s.t.Context(), provider, quota.Policy{Limits: l}); err != nil {
		s.t.Fatal(err)
	}
}

// follow collects what is written from now on.
func (s *scene) follow(ctx context.Context, client *clientv3.Client) {
	writes := make(chan write, 100_000)
	s.writes = writes
	watch := client.Watch(ctx, prefix, clientv3.WithPrefix())
	go func() {
		for r := range watch {
			for _, e := range r.Events {
				if e.Type != clientv3.EventTypePut {
					continue
				}
				w := write{at: time.Now(), bytes: len(e.Kv.Key) + len(e.Kv.Value)}
				if strings.HasPrefix(string(e.Kv.Key), prefix+"reports/") {
					w.report = new(protocol.Report)
					if err := json.Unmarshal(e.Kv.Value, w.report); err != nil {
						s.t.Error(err)
					}
				}
				writes <- w
			}
		}
	}()
}

// pass lets time go by, while n permits a second are taken, in ten bursts, and
// returns what was written meanwhile. The bursts come at other instants than
// reports do.
func (s *scene) pass(d time.Duration, n func(second int) int64) (all []write) {
	s.t.Helper()
	s.written() // before
	time.Sleep(37 * time.Millisecond)
	for second := range int(d / time.Second) {
		for range 10 {
			s.limiter.TryTake(n(second) / 10).N()
			time.Sleep(100 * time.Millisecond)
		}
	}
	return s.written()
}

func (s *scene) written() (all []write) {
	synctest.Wait()
	for {
		select {
		case w := <-s.writes:
			all = append(all, w)
		default:
			return all
		}
	}
}

func idle(int) int64         { return 0 }
func steady(int) int64       { return 700 }
func restless(sec int) int64 { return int64(sec * 7919 % 997) } // another rate every second

func (s *scene) put(key string) {
	s.t.Helper()
	if _, err := s.client.Put(s.t.Context(), prefix+key, "{}"); err != nil {
		s.t.Fatal(err)
	}
}

// gaps returns the shortest and the longest time between two reports.
func gaps(all []write) (shortest, longest time.Duration) {
	shortest = time.Hour
	for i := 1; i < len(all); i++ {
		gap := all[i].at.Sub(all[i-1].at)
		shortest, longest = min(shortest, gap), max(longest, gap)
	}
	return shortest, longest
}

func TestReportsEvery30sWhileNothingChanges(t *testing.T) {
	for name, load := range map[string]func(int) int64{"idle": idle, "steady": steady} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.pass(time.Minute, load)
				all := s.pass(10*time.Minute, load)
				shortest, longest := gaps(all)
				if len(all) != 20 || shortest < 30*time.Second || longest > 31*time.Second {
					s.t.Errorf("%d writes in ten minutes, every %v to %v, want one every 30s", len(all), shortest, longest)
				}
			})
		})
	}
}

func TestRatesThatChangeAllTheTimeAreReportedEvery5sAtMost(t *testing.T) {
	inScene(t, func(s *scene) {
		all := s.pass(10*time.Minute, restless)
		if shortest, _ := gaps(all[1:]); shortest < 5*time.Second {
			s.t.Errorf("two reports %v apart", shortest)
		}
		if len(all) < 60 {
			s.t.Errorf("%d reports in ten minutes: changes of the rate are not reported", len(all))
		}
	})
}

func TestSignificantChangesAreReportedAtOnce(t *testing.T) {
	inScene(t, func(s *scene) {
		s.pass(time.Minute, idle)
		for _, step := range []struct {
			what string
			do   func()
			is   func(r *protocol.Report) bool
		}{
			{"another limit", func() { s.set("500/s") }, func(r *protocol.Report) bool { return r.Total == 500 }},
			{"pausing", func() { s.limiter.PauseUntil(time.Now().Add(time.Hour)) }, func(r *protocol.Report) bool { return r.State == quota.StatePausing }},
			{"no longer", func() { s.limiter.Resume() }, func(r *protocol.Report) bool { return r.State == quota.StateActive }},
		} {
			s.written()
			began := time.Now()
			step.do()
			found := false
			for !found && time.Since(began) < 20*time.Second {
				time.Sleep(100 * time.Millisecond)
				for _, w := range s.written() {
					found = found || w.report != nil && step.is(w.report)
				}
			}
			// A lower limit binds once all have settled; what follows is seen within a
			// second.
			if d := time.Since(began); !found || d > 6*time.Second {
				s.t.Errorf("%s: reported %v, after %v", step.what, found, d)
			}
		}
	})
}

func TestReportsEverySecondOnlyWhileSomebodyLooks(t *testing.T) {
	inScene(t, func(s *scene) {
		s.pass(time.Minute, idle)
		s.put("observers/other/1")
		if all := s.pass(time.Minute, idle); len(all) > 3 {
			s.t.Errorf("%d writes a minute, while somebody looks at another provider", len(all))
		}
		s.put("observers/" + provider + "/1")
		if looked := s.pass(time.Minute, idle); len(looked) < 53 || len(looked) > 61 {
			s.t.Errorf("%d reports in the first minute that somebody looks, want one a second after at most 6s", len(looked))
		}
		if looked := s.pass(time.Minute, idle); len(looked) < 59 || len(looked) > 60 {
			s.t.Errorf("%d reports in a minute that somebody looks, want 60", len(looked))
		}
		if _, err := s.client.Delete(s.t.Context(), prefix+"observers/"+provider+"/1"); err != nil {
			s.t.Fatal(err)
		}
		s.pass(10*time.Second, idle)
		if all := s.pass(time.Minute, idle); len(all) > 3 {
			s.t.Errorf("%d writes in the minute after", len(all))
		}
	})
}

// TestWhatADayCosts prints what one instance of one provider writes to etcd in a
// day, from ten minutes of fake time: go test -v -run WhatADayCosts ./test/hours
func TestWhatADayCosts(t *testing.T) {
	for _, c := range []struct {
		name    string
		load    func(int) int64
		watched bool
		most    int // writes in the ten minutes
	}{
		{"idle", idle, false, 21},
		{"steady", steady, false, 21},
		{"another rate every second", restless, false, 121},
		{"somebody looks", steady, true, 601},
	} {
		t.Run(c.name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				if c.watched {
					s.put("observers/" + provider + "/1")
				}
				s.pass(time.Minute, c.load)
				log := logged(s.t)
				all := s.pass(10*time.Minute, c.load)
				log = logged(s.t) - log
				bytes := 0
				for _, w := range all {
					bytes += w.bytes
				}
				s.t.Logf("%-26s %6d writes, %5.1f MB of keys and values, %5.1f MB in the log of each member, a day",
					c.name, 144*len(all), float64(144*bytes)/1e6, 144*log/1e6)
				if len(all) > c.most {
					s.t.Errorf("%d writes in ten minutes, want %d at most", len(all), c.most)
				}
			})
		})
	}
}

// logged returns how many bytes etcd has written to its log, in this process.
func logged(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if m := f.GetMetric(); f.GetName() == "etcd_disk_wal_write_bytes_total" && len(m) > 0 {
			return m[0].GetGauge().GetValue() + m[0].GetCounter().GetValue()
		}
	}
	t.Fatal("etcd does not tell it")
	return 0
}
