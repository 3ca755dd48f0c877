package worker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Members come and go in good order, under each way to rebalance: every record
// is processed exactly once, and all of it is committed.
func TestRebalanceLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, opts := range balancers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.opts = opts
				w.produce(4000, nil)
				a := w.start(100, nil)
				w.until("300 are processed", func() bool { return w.provider.distinct() > 300 })
				b := w.start(100, nil)
				c := w.start(100, nil)
				w.until("1500 are processed", func() bool { return w.provider.distinct() > 1500 })
				w.leave(a)
				w.until("2500 are processed", func() bool { return w.provider.distinct() > 2500 })
				d := w.start(100, nil)
				w.await(a, b, c, d)
				for _, m := range []*running{b, c, d} {
					if m.Stats().Processed == 0 {
						t.Error("a member has processed nothing: it did not take part")
					}
				}
				w.leave(b, c, d)
				w.committed()
				if n := w.provider.duplicates(); n > 0 {
					t.Errorf("%d records were processed again", n)
				}
				if n := w.provider.worst(); n > 300 {
					t.Errorf("%d calls in a second, and no three members may make more than 300", n)
				}
			})
		})
	}
}

// A member that dies leaves its records to the others. Those that it had done
// and not committed are done again, and none is lost.
func TestDeathLosesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.produce(3000, nil)
		often := func(c *Config) { c.CommitInterval = 4 * time.Second }
		a, b := w.start(100, often), w.start(100, nil)
		w.until("1000 are processed", func() bool { return w.provider.distinct() > 1000 })
		a.kill()
		w.await(b)
		w.leave(b)
		w.committed()
		// Not more than it could do between two commits, what waited in its backlog
		// done out of order, and its calls under way.
		if n := w.provider.duplicates(); n > 100*(4+1)+a.Workers {
			t.Errorf("%d records were processed again", n)
		}
		w.leave(a)
	})
}

// balancers are the ways to rebalance.
var balancers = map[string][]kgo.Opt{
	"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"next":        {kgo.ServerSideBalancer()},
}

// A member that waits for permits for longer than any timeout of the group stays
// in it, hands half of its partitions to another one that joins meanwhile, and
// neither does anything twice.
func TestLongWaitStaysInGroup(t *testing.T) {
	t.Parallel()
	for name, opts := range balancers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.opts = opts
				w.produce(500, nil)
				a := w.start(100, nil)
				w.until("400 are processed", func() bool { return w.provider.distinct() > 400 })
				a.limiter.Drain(time.Now().Add(20 * time.Minute))
				w.produce(1500, nil)
				w.pass(time.Minute)
				if n := a.Stats().Paused; n != partitions {
					t.Errorf("%d of %d partitions are paused: it has stopped polling before their backlogs were full", n, partitions)
				}
				polls := a.Stats().Polls
				w.pass(5 * time.Minute)
				if n := a.Stats().Polls - polls; n > 5*60*10 {
					t.Errorf("%d polls in 5 minutes in which there was nothing to do: the loop spins", n)
				}
				before := w.cluster.GroupInfo(group).Members[0].MemberID
				b := w.start(100, nil)
				w.pass(5 * time.Minute)
				info := w.cluster.GroupInfo(group)
				stayed := slices.ContainsFunc(info.Members, func(m kfake.GroupMember) bool { return m.MemberID == before })
				if !stayed || len(info.Members) != 2 || info.Members[0].NumAssigned() != partitions/2 || info.Members[1].NumAssigned() != partitions/2 {
					t.Errorf("member %s has waited, and another one joined: %+v", before, info.Members)
				}
				if b.Stats().Processed == 0 {
					t.Error("the member that joined has processed nothing: the first one has kept it waiting")
				}
				if s := a.limiter.Status().State; s != "draining" {
					t.Errorf("the first member is %s: it did not wait for so long as it was meant to", s)
				}
				w.await(a, b)
				w.leave(a, b)
				w.committed()
				if n := w.provider.duplicates(); n > 0 {
					t.Errorf("%d records were processed again", n)
				}
			})
		})
	}
}

// A record that the provider rejects goes to the dead letters after so many
// attempts and no more, holds up nothing, and is committed.
func TestPoisonGoesToDeadLetters(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		t.Run(fmt.Sprintf("batch=%d", batch), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				bad := func(i int) bool { return i%100 == 7 }
				w.produce(1000, bad)
				a := w.start(500, func(c *Config) { c.Attempts, c.Batch = 3, batch })
				w.await(a)
				w.leave(a)
				w.committed()
				if n := w.provider.duplicates(); n > 0 {
					t.Errorf("%d records were processed again", n)
				}
				if s := a.Stats(); s.Dead != 10 || s.Rejected != 30 || s.Processed != 990 {
					t.Errorf("got %+v; want 990 processed, 10 dead after 3 rejections each", s)
				}
				for i, r := range w.deadLetters(10) {
					h := headers(r)
					if h[HeaderTopic] != topic || h[HeaderAttempts] != "3" || h[HeaderReason] != "cannot be read" ||
						!strings.HasPrefix(string(r.Value), "bad ") || string(r.Value) != "bad "+string(r.Key) {
						t.Errorf("dead letter %d: %q = %q, %v", i, r.Key, r.Value, h)
					}
					if _, err := strconv.Atoi(h[HeaderOffset]); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func (w *world) deadLetters(n int) (records []*kgo.Record) {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.network.DialContext), kgo.ConsumeTopics(letters),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for len(records) < n {
		f := c.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			w.t.Fatalf("%d of %d dead letters: %v", len(records), n, err)
		}
		records = append(records, f.Records()...)
	}
	return records
}

func headers(r *kgo.Record) map[string]string {
	h := map[string]string{}
	for _, f := range r.Headers {
		h[f.Key] = string(f.Value)
	}
	return h
}

// A provider that answers 429 is left alone for as long as it asks, and the
// record that met it is tried again.
func TestRetryAfterDrains(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.produce(2000, nil)
		a := w.start(200, nil)
		w.until("500 are processed", func() bool { return w.provider.distinct() > 500 })
		w.provider.set(func() { w.provider.busy = 30 * time.Second })
		w.until("it drains", func() bool { return a.limiter.Status().State == "draining" })
		answered := time.Now()
		w.await(a)
		w.leave(a)
		for _, at := range w.provider.calls {
			if d := at.Sub(answered); d > 0 && d < 29*time.Second {
				t.Fatalf("a call %v after the provider asked for 30 s", d)
			}
		}
		if n := w.provider.duplicates(); n > 0 {
			t.Errorf("%d records were processed again", n)
		}
		w.committed()
	})
}

// A provider that is down costs no record its life, and the backlog is bounded.
func TestOutageOfTheProvider(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.produce(3000, nil)
		w.provider.set(func() { w.provider.down = true })
		a := w.start(1000, func(c *Config) { c.Attempts = 1 })
		w.until("the backlogs are full", func() bool { return a.Stats().Paused == partitions })
		for range 600 {
			w.pass(time.Second)
			if s := a.Stats(); s.Backlog > partitions*(a.MaxBacklog+a.MaxPoll) {
				t.Fatalf("%d records in the backlog", s.Backlog)
			}
		}
		w.provider.set(func() { w.provider.down = false })
		w.await(a)
		w.leave(a)
		w.committed()
		if s := a.Stats(); s.Dead > 0 || s.Processed != 3000 {
			t.Errorf("%+v", s)
		}
	})
}

// An ordered member processes each partition in its order, whatever fails.
func TestOrdered(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		last := map[int32]int64{}
		n := 0
		w.produce(1000, nil)
		a := w.start(500, func(c *Config) {
			c.Ordered = true
			call := c.Call
			c.Call = func(ctx context.Context, records []*kgo.Record) Answer {
				r := records[0]
				fail := false
				w.provider.set(func() {
					n++
					if fail = n%17 == 0; fail {
						return
					}
					if o, ok := last[r.Partition]; ok && r.Offset != o+1 {
						t.Errorf("partition %d: %d came after %d", r.Partition, r.Offset, o)
					}
					last[r.Partition] = r.Offset
				})
				if fail {
					return Answer{Err: context.DeadlineExceeded}
				}
				return call(ctx, records)
			}
		})
		w.await(a)
		w.leave(a)
		w.committed()
	})
}

// A batch larger than any window's share is made smaller, instead of waiting for
// ever.
func TestBatchLargerThanShare(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.produce(300, nil)
		a := w.start(7, func(c *Config) { c.Batch = 100 })
		w.await(a)
		w.leave(a)
		w.committed()
		if n := w.provider.duplicates(); n > 0 {
			t.Errorf("%d records were processed again", n)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Batch: 2, Ordered: true, Workers: -1, CallTimeout: time.Minute})
	for _, want := range []string{"Group", "Topic", "DeadLetters", "Limiter", "Call is missing", "Workers is -1", "Ordered needs Batch 1", "RebalanceTimeout is 1m0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}
