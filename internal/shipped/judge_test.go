package shipped

import (
	"fmt"
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

func readAt(t int64) clock.Instant { return clock.Instant{Mono: t + 1, Wall: epoch + t} }

// judge returns what is wrong with a history: windows of which more was issued than
// docs/protocol.md allows, windows of which less was issued than the total although all
// faults were over for long, and callers that were answered late.
func (w *world) judge() (wrong []string) {
	wrong = append(wrong, w.late...)
	length := w.policy.Limits[0].Window
	byIndex, byTime := map[int64]int64{}, map[int64]int64{}
	for _, g := range w.grants {
		byIndex[quota.WindowAt(length, g.start).Index] += g.permits
		byTime[quota.WindowAt(length, epoch+g.at).Index] += g.permits
	}
	first := quota.WindowAt(length, epoch).Index
	for k := range w.end/int64(length) + 2 {
		win := quota.Window{Length: length, Index: first + k}
		if n := byIndex[win.Index]; n > 0 {
			w.stats.windows++
			if bound, over := w.exceeds(win, n); over {
				wrong = append(wrong, fmt.Sprintf("window #%d from %.3f s: %d permits, at most %d", k, seconds(win.Start()), n, bound))
			}
		}
		// With a guard as large as the clock error every permit falls into the window of
		// true time that has its number.
		if n := byTime[win.Index]; n > 0 && int64(w.policy.Guard) >= w.e {
			if bound, over := w.exceeds(win, n); over {
				wrong = append(wrong, fmt.Sprintf("window #%d from %.3f s, by true time: %d permits, at most %d", k, seconds(win.Start()), n, bound))
			}
		}
		if total, whole := w.promised(win); whole {
			if w.stats.whole++; byIndex[win.Index] < total {
				wrong = append(wrong, fmt.Sprintf("window #%d from %.3f s: %d permits of %d are used", k, seconds(win.Start()), byIndex[win.Index], total))
			}
		}
	}
	return wrong
}

func seconds(wall int64) float64 { return float64(wall-epoch) / 1e9 }

// exceeds reports whether n permits are more than the smallest T* of the views that were
// the newest at some time in [B-, B+].
func (w *world) exceeds(win quota.Window, n int64) (bound int64, over bool) {
	p, b, r := &w.policy, win.Start()-epoch, int64(protocol.DriftBound)
	from := b + w.e - (int64(p.Settle)-int64(win.Length)/r)*r/(r+1)
	to := b - w.e - int64(p.Freshness)*r/(r-1)
	for s := w.states.at(from); s <= w.states.at(to); s++ {
		if s >= 0 && w.states.all[s].lost {
			continue // some went by what a restore took back, and others never saw it
		}
		w.stats.judged++
		if bound = w.total(s, win); n > bound {
			end, other := w.run(s, win)
			if bound = max(w.total(end, win), w.total(other, win)); n > bound {
				return bound, true
			}
		}
	}
	return 0, false
}

// total is that of a state for a window; before the first state nobody has anything.
func (w *world) total(s int, win quota.Window) int64 {
	if s < 0 {
		return 0
	}
	total, _, limited := share.Of(&w.states.all[s].view, win)
	if p := w.states.all[s].view.Policy; !limited || p.Mode == quota.ModePause {
		return 0
	}
	return total
}

// run returns the end of the run of states from s on of which none takes a permit of the
// window from anybody, as far as they were committed before the window ended on the last
// clock: on the line that a restore took back, and on the one after it.
func (w *world) run(s int, win quota.Window) (end, other int) {
	last := w.states.at(win.End() - epoch + w.e)
	end, other = s, s
	for n := s + 1; n <= last && w.takesNothing(end, n, win); n++ {
		end = n
	}
	for n := s + 1; n <= last; n++ {
		if w.states.all[n].lost {
			continue
		}
		if !w.takesNothing(other, n, win) {
			break
		}
		other = n
	}
	return end, other
}

// takesNothing reports whether everybody has at least as much of a window by state v as
// by state u, or has promised to issue nothing of it.
func (w *world) takesNothing(u, v int, win quota.Window) bool {
	if u < 0 {
		return false
	}
	old, young := &w.states.all[u].view, &w.states.all[v].view
	if old.Policy == nil || young.Policy == nil {
		return false
	}
	_, before, _ := share.Of(old, win)
	_, now, limited := share.Of(young, win)
	if !limited {
		return false
	}
	for id, n := range before {
		if now[id] < n && !promised(young, id, win) {
			return false
		}
	}
	return true
}

// promised reports whether an instance has said itself that it issues nothing of a
// window.
func promised(v *protocol.View, id string, win quota.Window) bool {
	return slices.ContainsFunc(v.Instances, func(i quota.Instance) bool {
		return i.ID == id && protocol.Sealed(&i) && i.Until.UnixNano() <= win.Start()
	})
}

// promised returns the total of a window of which all shall be used: nothing has
// happened for long, and somebody takes part.
func (w *world) promised(win quota.Window) (total int64, whole bool) {
	start := win.Start() - epoch
	if start < w.settled || win.End()-epoch > w.end-100*ms || w.policy.Share == quota.ShareDemand {
		return 0, false
	}
	if !slices.ContainsFunc(w.instances, func(i *instance) bool { return !i.crashed && !i.leaving }) {
		return 0, false
	}
	return w.total(w.states.at(start), win), true
}
