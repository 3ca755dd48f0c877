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
)

var (
	modelFlag  = flag.String("model", "", "compare with the `program` that proof/program makes")
	countFlag  = flag.Int("comparisons", 100_000, "compare so many values, or a few more")
	recordFlag = flag.Bool("record", false, "write the model's answers to "+recordedShapes)
)

// recordedShapes has the model's answers to the questions of the first seeds, one on each line.
const (
	recordedShapes    = "testdata/shapes.txt"
	recordedQuestions = 1000
)

// TestShapesAsInTheProof compares buckets and rings with the answers of the proof's definitions
// (proof/Shapes.v): with those that were recorded, and with -model with as many as are asked for.
func TestShapesAsInTheProof(t *testing.T) {
	t.Parallel()
	if *recordFlag {
		answers := modelOfShapes(t, 0, recordedQuestions)
		if err := os.WriteFile(recordedShapes, []byte(strings.Join(answers, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(recordedShapes)
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(answers) != recordedQuestions {
		t.Fatalf("%s has %d answers, want %d", recordedShapes, len(answers), recordedQuestions)
	}
	compareShapes(t, 0, answers)
	if *modelFlag == "" {
		return
	}
	if compareShapes(t, 0, modelOfShapes(t, 0, recordedQuestions)); t.Failed() {
		t.Fatalf("%s is not what the model answers: look why, then -record", recordedShapes)
	}
	began, first, compared, seed := time.Now(), rand.Uint64N(1<<62), 0, uint64(0)
	for ; compared < *countFlag && !t.Failed(); seed += recordedQuestions {
		compared += compareShapes(t, first+seed, modelOfShapes(t, first+seed, recordedQuestions))
	}
	t.Logf("%d comparisons of shapes from seed %d, in %v", compared, first, time.Since(began).Round(100*time.Millisecond))
}

// compareShapes compares the code with answers to the questions from a seed on, and returns how
// many values they have.
func compareShapes(t *testing.T, first uint64, answers []string) (values int) {
	t.Helper()
	for i, answer := range answers {
		seed := first + uint64(i)
		ask, code := shapeQuestion(seed)
		if code != answer {
			t.Errorf("seed %d: the code says\n%s, and the proof's definitions\n%s\nof: %s", seed, code, answer, ask)
		}
		values += 1 + strings.Count(answer, ",")
	}
	return values
}

// modelOfShapes returns the model's answers to n questions from a seed on.
func modelOfShapes(t *testing.T, first uint64, n int) []string {
	t.Helper()
	var asked strings.Builder
	for i := range n {
		ask, _ := shapeQuestion(first + uint64(i))
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

// shapeQuestion returns the question of a seed, as proof/answers.ml reads it, and what the code
// answers.
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
