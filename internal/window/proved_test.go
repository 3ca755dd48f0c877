package window

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

var (
	modelFlag  = flag.String("model", "", "compare with the `program` that proof/program makes")
	countFlag  = flag.Int("comparisons", 100_000, "compare so many values, or a few more")
	recordFlag = flag.Bool("record", false, "write the model's answers to testdata")
)

// recordedQuestions is how many answers of the model each file has, one on each line: those to the
// questions of the first seeds.
const recordedQuestions = 1000

// proved is what is compared with the proof's definitions: its name, and the question of a seed, as
// proof/answers.ml reads it, with what the code answers.
type proved struct {
	of       string
	question func(seed uint64) (ask, code string)
}

// TestShapesAsInTheProof compares buckets and rings with the proof's definitions (proof/Shapes.v).
func TestShapesAsInTheProof(t *testing.T) {
	t.Parallel()
	proved{"shapes", shapeQuestion}.test(t)
}

// TestLoansAsInTheProof compares what a ledger has left, tells and counts with the proof's definitions
// (proof/Lending.v).
func TestLoansAsInTheProof(t *testing.T) {
	t.Parallel()
	proved{"loans", loanQuestion}.test(t)
}

// test compares the code with the answers that were recorded, and with -model with as many as are
// asked for.
func (p proved) test(t *testing.T) {
	recorded := "testdata/" + p.of + ".txt"
	if *recordFlag {
		answers := p.model(t, 0, recordedQuestions)
		if err := os.WriteFile(recorded, []byte(strings.Join(answers, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(answers) != recordedQuestions {
		t.Fatalf("%s has %d answers, want %d", recorded, len(answers), recordedQuestions)
	}
	p.compare(t, 0, answers)
	if *modelFlag == "" {
		return
	}
	if p.compare(t, 0, p.model(t, 0, recordedQuestions)); t.Failed() {
		t.Fatalf("%s is not what the model answers: look why, then -record", recorded)
	}
	began, first, compared, seed := time.Now(), rand.Uint64N(1<<62), 0, uint64(0)
	for ; compared < *countFlag && !t.Failed(); seed += recordedQuestions {
		compared += p.compare(t, first+seed, p.model(t, first+seed, recordedQuestions))
	}
	t.Logf("%d comparisons of %s from seed %d, in %v", compared, p.of, first, time.Since(began).Round(100*time.Millisecond))
}

// compare compares the code with answers to the questions from a seed on, and returns how many
// values they have.
func (p proved) compare(t *testing.T, first uint64, answers []string) (values int) {
	t.Helper()
	for i, answer := range answers {
		seed := first + uint64(i)
		ask, code := p.question(seed)
		if code != answer {
			t.Errorf("seed %d: the code says\n%s, and the proof's definitions\n%s\nof: %s", seed, code, answer, ask)
		}
		values += 1 + strings.Count(answer, ",")
	}
	return values
}

// model returns the model's answers to n questions from a seed on.
func (p proved) model(t *testing.T, first uint64, n int) []string {
	t.Helper()
	var asked strings.Builder
	for i := range n {
		ask, _ := p.question(first + uint64(i))
		asked.WriteString(ask + "\n")
	}
	program := exec.CommandContext(t.Context(), *modelFlag)
	program.Stdin, program.Stderr = strings.NewReader(asked.String()), os.Stderr
	out, err := program.Output()
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(answers) != n {
		t.Fatalf("%d answers to %d questions", len(answers), n)
	}
	return answers
}

// shapeQuestion asks about a ring or a bucket.
func shapeQuestion(seed uint64) (ask, code string) {
	r := rand.New(rand.NewPCG(seed, 10))
	if seed%3 == 0 {
		return ringQuestion(r)
	}
	return bucketQuestion(r)
}

// bucketQuestion asks what a bucket has ready, and its instant, after each of a few events: a share
// and a burst, or a take of what is ready, or of a part of it.
func bucketQuestion(r *rand.Rand) (ask, code string) {
	length := time.Duration(1+r.Int64N(600)) * 100 * time.Millisecond
	b := bucket{length: length, empty: unused}
	now, most := r.Int64N(int64(time.Hour)), 1+r.Int64N(1+r.Int64N(10_000))
	var question []string
	var answer []string
	events := 2 + r.IntN(12)
	for i := range events {
		if i > 0 {
			now += r.Int64N(1 + r.Int64N(int64(length)))
		}
		if i == 0 || r.IntN(3) == 0 {
			share, burst := r.Int64N(most+1), r.Int64N(most+1)
			b.roll(now, share, burst, false)
			question = append(question, fmt.Sprintf("0 %d %d %d", now, share, burst))
		} else {
			b.ready = b.at(now)
			n := r.Int64N(b.ready + 1)
			if r.IntN(2) == 0 {
				n = b.ready
			}
			b.take(n, now)
			question = append(question, fmt.Sprintf("1 %d %d", now, n))
		}
		answer = append(answer, fmt.Sprintf("%d,%d", b.at(now), b.empty))
	}
	return fmt.Sprintf("bucket %d %d %s", spanOf(length), events, strings.Join(question, " ")), strings.Join(answer, ",")
}

// ringQuestion asks how many permits count in a ring after each of a few takes.
func ringQuestion(r *rand.Rand) (ask, code string) {
	length := time.Duration(1+r.Int64N(600)) * 100 * time.Millisecond
	slot := int64(length) / 500
	ring := ring{length: length}
	transit := max(0, r.Int64N(int64(length))-int64(length)/2)
	ring.allowFor(transit)
	now := r.Int64N(int64(time.Hour))
	var question []string
	var answer []string
	events := 1 + r.IntN(20)
	for range events {
		now += r.Int64N(1 + r.Int64N(int64(length)))
		ring.roll(now)
		n := r.Int64N(10)
		ring.take(n, now)
		question = append(question, fmt.Sprint(slotAt(length, now), n))
		answer = append(answer, fmt.Sprint(ring.sum))
	}
	return fmt.Sprintf("ring %d %d %d %s", transit, slot, events, strings.Join(question, " ")), strings.Join(answer, ",")
}

// loanQuestion asks what a ledger has left after each of a few events: a bound of the running window
// or of a later one, permits that are issued or lent, and a number that a host tells.
func loanQuestion(seed uint64) (ask, code string) {
	r := rand.New(rand.NewPCG(seed, 11))
	w, total := quota.Window{Length: time.Second}, r.Int64N(40)
	plan := &Plan{Until: clock.Forever, Windows: Windows{Lending: Lending{Self: "me"}}}
	l := &ledger{}
	var question, answer []string
	events := 2 + r.IntN(14)
	for i := range events {
		kind, who, n, said := 0, r.IntN(3), int64(0), ""
		if i > 0 {
			kind, n = r.IntN(4), r.Int64N(l.budget()+1)
		}
		switch kind {
		case 0:
			w.Index += int64(r.IntN(4) / 3)
			own := r.Int64N(total + 1)
			plan.Running, plan.Over = []quota.Window{w}, w.Start()
			plan.Limits = []Limit{{Window: w, Permits: own, Limit: total}}
			l.adopt(plan, w.Start())
			question = append(question, fmt.Sprintf("0 %d %d", w.Index, own))
		case 1:
			l.charge(n, l.now)
			question = append(question, fmt.Sprintf("1 %d", n))
		case 2:
			said = fmt.Sprintf("%d,", l.lend(fmt.Sprint(who), n).Permits[""])
			question = append(question, fmt.Sprintf("2 %d %d", who, n))
		default:
			told := r.Int64N(30)
			said = fmt.Sprintf("%d,", l.borrow(fmt.Sprint(who), protocol.Note{Windows: l.windows.Running, Permits: map[string]int64{"": told}}))
			question = append(question, fmt.Sprintf("3 %d %d", who, told))
		}
		answer = append(answer, said+fmt.Sprint(l.budget()))
	}
	return fmt.Sprintf("loans %d %d %s", total, events, strings.Join(question, " ")), strings.Join(answer, ",")
}
