package differential

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
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
	seedFlag   = flag.Uint64("seed", 0, "of the first question; 0: chosen by chance")
	recordFlag = flag.Bool("record", false, "write the model's answers to "+recorded)
)

// recorded has the model's answers to the questions of the first seeds, one on each line.
const recorded = "testdata/answers.txt"

// recordedQuestions is how many these are.
const recordedQuestions = 5000

// TestRecordedAnswers compares the code with the answers of the proof's definitions as they
// were recorded, so that this takes no Coq. With -model these are compared with the model's.
func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	if *modelFlag != "" {
		var answers []string
		err := eachAnswer(t.Context(), *modelFlag, bySeed(0), func(_ question, answer string) bool {
			answers = append(answers, answer)
			return len(answers) < recordedQuestions
		})
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(answers, "\n") + "\n"
		if *recordFlag {
			if err := os.WriteFile(recorded, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if was, err := os.ReadFile(recorded); err != nil || string(was) != text {
			t.Errorf("the model answers otherwise than %s has it (%v): look why, then -record", recorded, err)
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
	for seed, answer := range answers {
		compare(t, uint64(seed), questionOf(uint64(seed)), answer)
	}
}

// TestAgainstTheModel compares the code with the proof's definitions on questions that no run
// has asked before.
func TestAgainstTheModel(t *testing.T) {
	t.Parallel()
	if *modelFlag == "" {
		t.Log("runs with -model")
		return
	}
	first := *seedFlag
	if first == 0 {
		first = rand.Uint64N(1 << 62)
	}
	began, seed, compared := time.Now(), first, 0
	err := eachAnswer(t.Context(), *modelFlag, bySeed(first), func(q question, answer string) bool {
		compare(t, seed, q, answer)
		seed++
		compared += values(answer)
		return compared < *countFlag && !t.Failed()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d comparisons of %d questions from seed %d, in %v", compared, seed-first, first, time.Since(began).Round(100*time.Millisecond))
}

func compare(t *testing.T, seed uint64, q question, answer string) {
	t.Helper()
	if q.code != answer {
		t.Errorf("seed %d (-seed %d): the code says\n%s, and the proof's definitions\n%s\nof: %s", seed, seed, q.code, answer, q.ask)
	}
}

// bySeed makes the questions of the seeds from first on, without an end.
func bySeed(first uint64) iter.Seq[question] {
	return func(yield func(question) bool) {
		for seed := first; yield(questionOf(seed)); seed++ {
		}
	}
}

// eachAnswer asks the model the questions, until they end or each returns false.
func eachAnswer(ctx context.Context, model string, all iter.Seq[question], each func(question, string) bool) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	program := exec.CommandContext(ctx, model)
	program.Stderr = os.Stderr
	in, err := program.StdinPipe()
	if err != nil {
		return err
	}
	out, err := program.StdoutPipe()
	if err != nil {
		return err
	}
	if err := program.Start(); err != nil {
		return err
	}
	questions := make(chan question, 64)
	go func() {
		defer in.Close()
		asked := bufio.NewWriter(in)
		n := 0
		for q := range all {
			n++
			select {
			case questions <- q:
			case <-ctx.Done():
				return
			}
			if _, err := asked.WriteString(q.ask + "\n"); err != nil {
				return
			}
			if n%16 == 0 && asked.Flush() != nil {
				return
			}
		}
		close(questions)
		_ = asked.Flush() // if it fails, answers are missing
	}()
	answers := bufio.NewScanner(out)
	for answers.Scan() {
		if !each(<-questions, answers.Text()) {
			done()
			_, _ = io.Copy(io.Discard, out)
			_ = program.Wait() // it was ended
			return nil
		}
	}
	if err := errors.Join(answers.Err(), program.Wait()); err != nil {
		return err
	}
	if _, more := <-questions; more {
		return fmt.Errorf("%s has not answered all", model)
	}
	return nil
}
