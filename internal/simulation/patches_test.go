package simulation_test

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/mutant"
)

// patches are the mutants of the real code: those of all rules, and more.
var patches = slices.Concat(mutant.Rules, mutant.Table{
	{Name: "NotWholeWindow", Wrong: "leaves out a window within which a length comes into force", Edits: []mutant.Edit{
		{File: "internal/share/terms.go", Old: `	total, limited, inForce := protocol.PermitsFor(t.policy, w)
`, New: `	total, limited, inForce := protocol.PermitsFor(t.policy, w)
	if _, ok := protocol.LimitOf(t.policy.LimitsAt(w.Start()), w.Length); !ok {
		limited = false
	}
`},
	}},
	{Name: "OldEvent", Wrong: "applies an event that came before", Edits: []mutant.Edit{
		{File: "internal/view/tracker.go", Old: "} else if k.Revision > t.revision {", New: "} else if k.Revision > 0 {"},
		{File: "internal/share/history.go", Old: "\tif !h.started || c.Revision <= h.revision {", New: "\tif !h.started {"},
	}},
	{Name: "OwnLostUnseen", Wrong: "does not miss its own write in a store in doubt", Edits: []mutant.Edit{
		{File: "internal/view/doubt.go", Old: "} else if !t.memory.own || found.Kept < from {", New: "} else if false {"},
	}},
	{Name: "RemovedForgotten", Wrong: "forgets a limit that the newest view lacks", Edits: []mutant.Edit{
		{File: "internal/share/bound.go", Old: `		for _, length := range t.lengths {
			if !slices.Contains(lengths, length)`, New: `		if i < len(h.terms)-1 {
			continue
		}
		for _, length := range t.lengths {
			if !slices.Contains(lengths, length)`},
	}},
	{Name: "SilenceUndoubted", Wrong: "counts a proof after a long silence as before", Edits: []mutant.Edit{
		{File: "internal/view/doubt.go", Old: "if max(now.Mono-t.sure.Mono, now.Wall-t.sure.Wall) <= freshness {", New: "if true {"},
	}},
	{Name: "TimerEndsProof", Wrong: "ends the proof by a timer, not in the reading that admits", Edits: []mutant.Edit{
		{File: "internal/share/planner.go", Old: "\treturn p.proof.Mono + int64(r.Freshness)", New: `	if !p.expired {
		return window.Forever, window.Forever
	}
	return p.proof.Mono + int64(r.Freshness)`},
		{File: "internal/share/planner.go", Old: "	heldBack bool // the latest warm-up is that after a pause\n}\n", New: `	heldBack bool
	expired  bool
}

func (p *Planner) Expire() { p.expired = true }
`},
		{File: "internal/share/planner.go", Old: "p.proof, p.proved = sent, true", New: "p.proof, p.proved, p.expired = sent, true, false"},
	}},
	{Name: "TimingUnchecked", Wrong: "obeys a policy that breaks the timing rule", Edits: []mutant.Edit{
		{File: "quota/validate.go", Old: "\ttimed.checkTiming(&errs)\n", New: "\t_ = timed\n"},
	}},
	{Name: "TwoWatches", Wrong: "applies an event that came before", Edits: []mutant.Edit{
		{File: "internal/view/tracker.go", Old: "} else if k.Revision > t.revision {", New: "} else if k.Revision > 0 {"},
		{File: "internal/share/history.go", Old: "\tif !h.started || c.Revision <= h.revision {", New: "\tif !h.started {"},
	}},
})
