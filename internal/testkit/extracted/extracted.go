// Package extracted compares code with the proof's own definitions, from which Coq makes a program
// (proof/compare): with answers that were recorded, and with -model with as many as are asked for.
package extracted

import (
	"flag"
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
	recordFlag = flag.Bool("record", false, "write the model's answers to testdata")
)

// recordedQuestions is how many answers of the model each file has, one on each line: those to the
// questions of the first seeds.
const recordedQuestions = 1000

// Questions is what is compared with the proof's definitions: its name, and the question of a seed, as
// proof/answers.ml reads it, with what the code answers.
type Questions struct {
	Of  string
	Ask func(seed uint64) (ask, code string)
}

// Test compares the code with the answers that were recorded, and with -model with as many as are
// asked for.
func (q Questions) Test(t *testing.T) {
	recorded := "testdata/" + q.Of + ".txt"
	if *recordFlag {
		answers := q.model(t, 0, recordedQuestions)
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
	q.compare(t, 0, answers)
	if *modelFlag == "" {
		return
	}
	if q.compare(t, 0, q.model(t, 0, recordedQuestions)); t.Failed() {
		t.Fatalf("%s is not what the model answers: look why, then -record", recorded)
	}
	began, first, compared, seed := time.Now(), rand.Uint64N(1<<62), 0, uint64(0)
	for ; compared < *countFlag && !t.Failed(); seed += recordedQuestions {
		compared += q.compare(t, first+seed, q.model(t, first+seed, recordedQuestions))
	}
	t.Logf("%d comparisons of %s from seed %d, in %v", compared, q.Of, first, time.Since(began).Round(100*time.Millisecond))
}

// compare compares the code with answers to the questions from a seed on, and returns how many
// values they have.
func (q Questions) compare(t *testing.T, first uint64, answers []string) (values int) {
	t.Helper()
	for i, answer := range answers {
		seed := first + uint64(i)
		ask, code := q.Ask(seed)
		if code != answer {
			t.Errorf("seed %d: the code says\n%s, and the proof's definitions\n%s\nof: %s", seed, code, answer, ask)
		}
		values += 1 + strings.Count(answer, ",")
	}
	return values
}

// model returns the model's answers to n questions from a seed on.
func (q Questions) model(t *testing.T, first uint64, n int) []string {
	t.Helper()
	var asked strings.Builder
	for i := range n {
		ask, _ := q.Ask(first + uint64(i))
		asked.WriteString(ask + "\n")
	}
	program := exec.CommandContext(t.Context(), *modelFlag) //nolint:gosec // whoever runs the test names the program
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
