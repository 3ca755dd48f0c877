package shipped

import (
	"cmp"
	"flag"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/quotient-limiter/quotient/internal/mutant"
)

var (
	mutantsFlag = flag.String("mutants", "", "the mutants that TestMutantsAreCaught builds and hunts, a regular expression; it takes a minute for each")
	ledFlag     = flag.String("led", "", "the mutant by which TestHunt leads its histories")
)

// led is a mutant, and where it shows.
type led struct {
	mutant.Mutant
	kind   kind
	events []drama // what histories are given
}

func patch(k kind, events []drama, name, wrong, file string, texts ...string) led {
	m := led{mutant.Mutant{Name: name, Wrong: wrong}, k, events}
	for i := 0; i < len(texts); i += 2 {
		m.Edits = append(m.Edits, mutant.Edit{File: file, Old: texts[i], New: texts[i+1]})
	}
	return m
}

// mutants are mistakes in the code that ships, by the rules of docs/protocol.md. What an
// ended watch still tells is not among them: in fake time nothing happens between a
// message's arrival and its taking, so coordinator.TestAnEndedWatchSaysNothing has it.
var mutants = []led{
	patch(faults, []drama{asleepThroughCut}, "WallUnread", "the hot path ignores the wall clock", "consumer/acquire.go",
		"s.WallValid(now) && s.Take(now.Mono, n)", "s.Take(now.Mono, n)"),
	patch(faults, []drama{asleepThroughCut}, "WallUnreadByTry", "TryTake ignores the wall clock", "consumer/limiter.go",
		"s.Open(now.Mono) && (!s.Strict || s.WallValid(now))", "s.Open(now.Mono)"),
	{mutant.Mutant{Name: "DatedByAnswer", Wrong: "a probe is dated at its answer", Edits: []mutant.Edit{
		{File: "coordinator/probe.go", Old: "p.tracker.Answer(a.probe, ", New: "p.tracker.Answer(p.tracker.Sent(s.o.Clock.Now()), "},
		{File: "internal/view/tracker.go", Old: "if revision < p.floor || cluster", New: "if cluster"}, // of that probe it means nothing
	}}, faults, []drama{slowThroughCut}},
	patch(faults, []drama{quitSlowly}, "KeyBeforeLimiter", "the key is given up before the limiter closes", "coordinator/session.go",
		"\ts.cancel()\n\ts.wg.Wait() // with run", "\tfor _, p := range memberships {\n\t\t_ = p.promiseEnd(context.Background())\n\t}\n\ts.cancel()\n\ts.wg.Wait() // with run"),
	patch(restore, []drama{forgotten}, "ReportUnconditional", "a report is written without its condition", "coordinator/report.go",
		"t, err := p.s.kv.Txn(c).If(clientv3.Compare(clientv3.ModRevision(key), \"=\", newest)).\n\t\tThen", "t, err := p.s.kv.Txn(c).Then"),
	patch(restore, []drama{forgotten}, "SilenceUndoubted", "a silence raises no doubt", "coordinator/probe.go",
		"if !p.tracker.Silence(now, int64(p.freshness())) {", "if true {"),
	patch(faults, []drama{resetThroughCut}, "FromThePresent", "a watch that is opened again begins at the present", "coordinator/follow.go",
		"w = p.newStream(ctx, p.tracker.Position()+1)", "w = p.newStream(ctx, 0)"),
	patch(faults, []drama{removedAlive}, "GoneUnseen", "an instance whose key is gone goes on", "coordinator/follow.go",
		"if !p.tracker.Has(p.id) {", "if false {"),
	patch(faults, []drama{quitSlowly}, "EndBeforeUse", "a sealed end is of windows that were used", "coordinator/leave.go",
		"time.Unix(0, p.s.o.Clock.Wall()+1)", "time.Unix(0, p.s.o.Clock.Wall()-int64(time.Second))"),
	patch(faults, []drama{relisted}, "ListedLongAgo", "a history is said to begin before its listing", "coordinator/membership.go",
		"since := at.Mono\n", "at.Mono -= 10_000_000_000\n\t\tsince := at.Mono\n"),
	patch(faults, []drama{deafThroughCut}, "HeaderIsPosition", "the header of events counts as the watch's position", "coordinator/follow.go",
		"r.IsProgressNotify() && p.tracker.Progress(r.Header.Revision)", "p.tracker.Progress(r.Header.Revision)"),
	patch(faults, []drama{deafThroughCut}, "Unchecked", "a doubt is not checked", "coordinator/probe.go",
		"if p.tracker.Unchecked() && !p.checking {", "if false {"),
	patch(restore, []drama{forgotten}, "UnshownIsShown", "a store that has nothing of this instance's is the same", "coordinator/follow.go",
		"\tcase unshown:\n", "\tcase false && unshown:\n"),
	patch(restore, []drama{revived}, "RevivedStays", "an incarnation that a backup has again keeps its share", "coordinator/list.go",
		"err == nil && len(revived) > 0", "false"),
	patch(faults, []drama{lapsed}, "LeaseForGone", "a lease that cannot be renewed is not asked for again", "coordinator/lease.go",
		"case errors.Is(err, rpctypes.ErrLeaseNotFound):\n\t\t\treturn\n", "case errors.Is(err, rpctypes.ErrLeaseNotFound):\n\t\t\tcontinue\n"),
	patch(faults, []drama{relisted}, "CompactedAgain", "a watch whose revision is gone is opened again where it was", "coordinator/follow.go",
		"case errors.Is(err, rpctypes.ErrCompacted), tooLarge(err)", "case false && errors.Is(err, rpctypes.ErrCompacted), tooLarge(err)"),
}

// TestPatchesApply: every mutant finds the text that it replaces.
func TestPatchesApply(t *testing.T) {
	var table mutant.Table
	for _, m := range mutants {
		table = append(table, m.Mutant)
	}
	table.Apply(t)
}

// TestHunt plays histories until one shows that something is wrong. It is run in a
// program with a mutant, by TestMutantsAreCaught.
func TestHunt(t *testing.T) {
	for _, m := range mutants {
		if m.Name != *ledFlag {
			continue
		}
		for seed := uint64(1); seed <= max(1, *moreFlag); seed++ {
			if _, wrong := history(t, m.kind, seed, false, m.events...); len(wrong) > 0 {
				t.Fatalf("caught by history %d: %s", seed, wrong[0])
			}
		}
	}
}

// leads is what histories are given more of by -led.
func leads() []drama {
	for _, m := range mutants {
		if m.Name == *ledFlag {
			return m.events
		}
	}
	return nil
}

var caughtBy = regexp.MustCompile(`caught by history (\d+): (.*)`)

// TestMutantsAreCaught builds this test with each mutant in place, and hunts it.
func TestMutantsAreCaught(t *testing.T) {
	if *mutantsFlag == "" {
		t.Log("runs with -mutants")
		return
	}
	root, err := mutant.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if !regexp.MustCompile(*mutantsFlag).MatchString(m.Name) {
			continue
		}
		binary, err := m.BuildTest(t.Context(), root, t.TempDir(), "./internal/shipped")
		if err != nil {
			t.Error(err)
			continue
		}
		most := cmp.Or(*moreFlag, 3000) // the rarest, WallUnreadByTry, took 1,407
		out, err := exec.CommandContext(t.Context(), binary, "-test.run", "^TestHunt$", "-led", m.Name, "-more", strconv.FormatUint(most, 10)).CombinedOutput()
		switch found := caughtBy.FindSubmatch(out); {
		case err == nil:
			t.Errorf("%s (%s): not caught by %d histories", m.Name, m.Wrong, most)
		case found != nil:
			t.Logf("%s (%s): caught by history %s: %s", m.Name, m.Wrong, found[1], found[2])
		default:
			t.Logf("%s (%s): caught: %.2000s", m.Name, m.Wrong, out)
		}
	}
}
