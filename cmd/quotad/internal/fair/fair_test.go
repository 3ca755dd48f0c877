package fair

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// user is a user with one process.
func user(name string) Client { return Client{name, "process of " + name} }

// Clients with waiting calls get permits alike, whatever the number and the size of their
// calls: no two differ by more than their largest calls. Equal calls of one client are in
// order, and none is lost.
func TestQueueIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue()
		waiting := map[*call]bool{}
		costs := map[string]int64{"a": 1, "b": rapid.Int64Range(1, 50).Draw(t, "b"), "c": rapid.Int64Range(1, 50).Draw(t, "c")}
		names := []string{"a", "b", "c"}
		got := map[string]int64{} // since all of them wait
		next := map[string]uint64{}
		most := max(costs["a"], costs["b"], costs["c"])
		left := func(name string) (n int) {
			for w := range waiting {
				if w.client.User == name {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "client")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				waiting[q.push(user(name), costs[name])] = true
			case 3:
				for w := range waiting {
					if !q.remove(w) || q.remove(w) {
						t.Fatal("a waiting call could not be removed, or twice")
					}
					delete(waiting, w)
					break
				}
			default:
				w := q.pop()
				if w == nil {
					if len(waiting) > 0 {
						t.Fatalf("%d wait, and none is next", len(waiting))
					}
					continue
				}
				if !waiting[w] || q.remove(w) {
					t.Fatal("a call was served twice, or removed after")
				}
				delete(waiting, w)
				if w.number <= next[w.client.User] {
					t.Fatal("a client's calls are out of order")
				}
				next[w.client.User] = w.number
				got[w.client.User] += w.cost
			}
			for _, name := range names {
				if left(name) == 0 {
					clear(got) // only those that wait all the time are alike
				}
			}
			for _, x := range names {
				for _, y := range names {
					if got[x]-got[y] > 2*most {
						t.Fatalf("%v", got)
					}
				}
			}
		}
	})
}

// A client that comes does not catch up, and is not behind.
func TestNewcomerIsServedNext(t *testing.T) {
	q := newQueue()
	for range 100 {
		q.push(user("busy"), 1)
	}
	for range 50 {
		q.pop()
	}
	for range 100 {
		q.push(user("new"), 1)
	}
	count := map[string]int{}
	for range 40 {
		count[q.pop().client.User]++
	}
	if count["new"] != 20 {
		t.Errorf("%v", count)
	}
}

// A user with many processes gets no more than one with a single process, and its processes
// are alike.
func TestProcessesGetNoMoreThanTheirUser(t *testing.T) {
	q := newQueue()
	const processes, rounds = 40, 10
	for n := range processes {
		for range rounds {
			q.push(Client{"many", fmt.Sprint(n)}, 1)
		}
	}
	for range processes * rounds {
		q.push(Client{"one", "0"}, 1)
	}
	users, each := map[string]int{}, map[string]int{}
	for range 2 * processes * rounds / 2 {
		w := q.pop()
		users[w.client.User]++
		if w.client.User == "many" {
			each[w.client.Process]++
		}
	}
	if users["one"] != processes*rounds/2 {
		t.Errorf("%v", users)
	}
	for name, n := range each {
		if n != rounds/2 || len(each) != processes {
			t.Errorf("process %s of %d got %d", name, len(each), n)
		}
	}
}

func TestNamesAreForgotten(t *testing.T) {
	q := newQueue()
	for n := range 10_000 {
		q.push(user(fmt.Sprint(n)), 1)
		q.push(user("stays"), 1)
		q.pop()
		q.pop()
	}
	if len(q.users.known) > 200 {
		t.Errorf("%d clients are remembered", len(q.users.known))
	}
}

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		if err := turns.Enter(t.Context(), user("busy"), 1, 0); err != nil || !turns.Busy() {
			t.Fatal(err)
		}
		var order []string
		enter := func(name string) {
			go func() {
				if err := turns.Enter(t.Context(), user(name), 1, time.Minute); err != nil {
					t.Error(err)
				}
				order = append(order, name)
				time.Sleep(time.Second)
				turns.Leave()
			}()
			synctest.Wait()
		}
		for range 3 {
			enter("busy")
		}
		enter("other")
		if err := turns.Enter(t.Context(), user("late"), 1, time.Second); !errors.Is(err, ErrLate) {
			t.Error(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := turns.Enter(gone, user("gone"), 1, time.Minute); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		turns.Leave()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(order); got != "[other busy busy busy]" {
			t.Error(got)
		}
		if turns.Busy() || len(turns.queue.users.known) > 0 {
			t.Error("a turn was not given back")
		}
	})
}

// A turn that comes when its call has given up goes to the next.
func TestTurnIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		for n := range 100 {
			if err := turns.Enter(t.Context(), user("a"), 1, 0); err != nil {
				t.Fatal(n, err)
			}
			ended := make(chan struct{})
			go func() {
				if turns.Enter(t.Context(), user("b"), 1, time.Second) == nil {
					turns.Leave()
				}
				close(ended)
			}()
			time.Sleep(time.Second) // both timers end at the same moment
			turns.Leave()
			<-ended
			if turns.Busy() {
				t.Fatal("the turn is lost")
			}
		}
	})
}
