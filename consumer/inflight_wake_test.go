package consumer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// woken is a fleet whose instances ask etcd only when their limiter says so, as a session does in between its looks.
type woken struct {
	*treasury
	sinks []*stub
	dead  map[int]bool
}

func wokenFleet(t *testing.T, limits string, ids ...string) (*woken, []*Limiter) {
	t.Helper()
	bank, sinks, all := longFleet(t, withDefaults(policyOf(t, limits)), ids...)
	bank.told, bank.fleet = sinks, int64(len(sinks))
	bank.serve(sinks...) // each hears of the total from its first use on
	return &woken{bank, sinks, map[int]bool{}}, all
}

// play lets them do so for a time, or until done says so, if that is not nil.
func (f *woken) play(d time.Duration, done func() bool) {
	for end := time.Now().Add(d); time.Now().Before(end) && (done == nil || !done()); time.Sleep(5 * time.Millisecond) {
		for i, s := range f.sinks {
			if f.dead[i] {
				continue
			}
			s.prove()
			select {
			case <-s.sink.Wanting():
				f.serve(s)
			default:
			}
		}
		synctest.Wait()
	}
}

// Who has an idle place, and who waits for one, asks etcd as soon as there is a reason, and not only when it looks.
func TestWhoWaitsForAPlaceIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, all := wokenFleet(t, "6 inflight hold=10m", "a", "b", "c")
		var taken []Permit
		for range 6 {
			had := make(chan Permit, 1)
			go func() {
				p, _ := all[0].Take(t.Context(), 1, time.Minute)
				had <- p
			}()
			fleet.play(50*time.Millisecond, nil)
			select {
			case p := <-had:
				taken = append(taken, p)
			default:
				t.Fatalf("the first instance waits for place %d", len(taken))
			}
		}
		for i, p := range taken {
			waits := all[1+i%2]
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			had := make(chan error, 1)
			go func() {
				_, err := waits.Take(ctx, 1, Forever)
				had <- err
			}()
			fleet.play(time.Duration(i)*400*time.Millisecond, nil) // it asks, and asks again
			p.Done()
			fleet.play(50*time.Millisecond, nil)
			select {
			case err := <-had:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Errorf("place %d does not come to who waits", i)
			}
			end()
		}
	})
}

// A place that comes back for a caller of another instance which has gone meanwhile is idle no longer than a few answers of
// etcd take: the instance takes its ask back, and whoever waits elsewhere has the place.
func TestNoPlaceIsKeptForWhoHasGone(t *testing.T) {
	t.Parallel()
	const atMost = 50 * time.Millisecond
	for _, gone := range []string{"by its context", "by its time", "before etcd is asked"} {
		t.Run(gone, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet, all := wokenFleet(t, "2 inflight hold=10m", "a", "b")
				var had [3]chan Permit
				for i := range had {
					had[i] = make(chan Permit, 1)
					go func() {
						p, _ := all[0].Take(t.Context(), 1, Forever)
						had[i] <- p
					}()
					fleet.play(50*time.Millisecond, nil)
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				patience := Forever
				if gone == "by its time" {
					patience = 100 * time.Millisecond
				}
				left := make(chan error, 1)
				go func() {
					_, err := all[1].Take(ctx, 1, patience)
					left <- err
				}()
				if synctest.Wait(); gone != "before etcd is asked" {
					fleet.play(200*time.Millisecond, nil) // it asks
				}
				if gone != "by its time" {
					leave()
				}
				if err := <-left; err == nil {
					t.Fatal("there was a place")
				}
				fleet.play(50*time.Millisecond, nil)
				p := <-had[0]
				p.Done()
				began := time.Now()
				fleet.play(10*time.Second, func() bool { return len(had[2]) > 0 })
				if idle := time.Since(began); idle > atMost {
					t.Errorf("a place is idle for %v", idle)
				}
			})
		})
	}
}

// Places whose calls end while etcd is away are not lost: whoever waits has them when it is back. That is so if a look
// was due when etcd went away, which then is all that it is asked, and if none was: then it is asked to take places back.
func TestAnOutageCostsNoPlaces(t *testing.T) {
	t.Parallel()
	t.Run("a look is due", func(t *testing.T) { outageCostsNoPlaces(t, true) })
	t.Run("none is due", func(t *testing.T) { outageCostsNoPlaces(t, false) })
}

func outageCostsNoPlaces(t *testing.T, due bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const limit = 6
		fleet, all := wokenFleet(t, "6 inflight hold=10m", "a", "b")
		take := func(l *Limiter) (had []Permit) {
			got := make(chan Permit, limit)
			for range limit {
				go func() {
					p, _ := l.Take(t.Context(), 1, time.Minute)
					got <- p
				}()
			}
			fleet.play(time.Second, func() bool { return len(got) == limit })
			for range len(got) {
				had = append(had, <-got)
			}
			return had
		}
		had := take(all[0])
		time.Sleep(80 * time.Second) // more than a part
		if !due {
			fleet.serve(fleet.sinks...)
		}
		fleet.away = true
		for _, p := range had {
			p.Done()
			fleet.serve(fleet.sinks...)
		}
		fleet.away = false
		fleet.play(time.Second, nil)
		fleet.serve(fleet.sinks...)
		if n := len(take(all[1])); len(had) != limit || n != limit {
			t.Errorf("%d places before, %d after", len(had), n)
		}
	})
}

// Whenever an instance crashes, who waits at another one has all its places within one and a half holds, though nobody
// tells it of the crash.
func TestPlacesOfACrashedInstanceAreBack(t *testing.T) {
	t.Parallel()
	const hold, limit, phases = 4 * time.Second, 6, 8
	for crashes := range 2 {
		latest := time.Duration(0)
		for phase := range phases { // of a part of the hold
			synctest.Test(t, func(t *testing.T) {
				fleet, all := wokenFleet(t, "6 inflight hold=4s", "k", "e") // the first begins its parts early, and the second late
				crashed, other := all[crashes], all[1-crashes]
				time.Sleep(hold + time.Duration(phase)*hold/8/phases)
				var takes sync.WaitGroup
				take := func(l *Limiter) {
					for range limit {
						takes.Go(func() {
							if _, err := l.Take(t.Context(), 1, 2*hold); err != nil {
								t.Error(err)
							}
						})
					}
				}
				uses := func(l *Limiter) int64 { return l.Status().Limits[0].Used }
				take(crashed)
				fleet.play(time.Second, func() bool { return uses(crashed) == limit })
				if n := uses(crashed); n != limit {
					t.Fatalf("it has %d places", n)
				}
				fleet.dead[crashes] = true
				at := time.Now()
				take(other)
				fleet.play(2*hold, func() bool { return uses(other) == limit })
				takes.Wait()
				latest = max(latest, time.Since(at))
			})
		}
		if t.Logf("crash of instance %d: its places are back after %v at the latest", crashes, latest); latest > hold*3/2 {
			t.Error("that is more than one and a half holds")
		}
	}
}
