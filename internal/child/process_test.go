package child

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

const roleVariable = "QUOTIENT_CHILD_TEST"

type order struct {
	Say  string `json:"say,omitempty"`
	End  bool   `json:"end,omitempty"`
	Exit bool   `json:"exit,omitempty"`
}

type answer struct{ Said string }

func TestMain(m *testing.M) {
	if role, ok := os.LookupEnv(roleVariable); ok {
		err := Serve(func(o order, tell func(answer)) error {
			if o.Exit {
				os.Exit(7)
			}
			if !o.End || role != "deaf" {
				tell(answer{role + ": " + o.Say})
			}
			return nil
		})
		if err != nil {
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start starts a child. done is closed when it has said so often something.
func start(t *testing.T, role string, times int) (p *Process[order, answer], done chan struct{}, said *[]string, lost chan error) {
	t.Helper()
	done, said, lost = make(chan struct{}), new([]string), make(chan error, 1)
	p, err := Start[order](roleVariable, role, func(a answer) {
		if *said = append(*said, a.Said); len(*said) == times {
			close(done)
		}
	}, func(err error) { lost <- err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, done, said, lost
}

func TestAChildObeysAndEnds(t *testing.T) {
	t.Parallel()
	p, done, said, lost := start(t, "parrot", 3)
	for _, word := range []string{"one", "two"} {
		if err := p.Send(order{Say: word}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.End(order{Say: "bye"}, done, time.Minute); err != nil {
		t.Error(err)
	}
	if got := strings.Join(*said, ", "); got != "parrot: one, parrot: two, parrot: bye" {
		t.Error(got)
	}
	if err := p.End(order{}, done, time.Minute); err != nil || len(lost) > 0 || p.Used() <= 0 {
		t.Errorf("%v, %d lost, %v used", err, len(lost), p.Used())
	}
}

// One that ends by itself is lost, one that does not end is killed.
func TestAChildThatDoesNotDoAsItIsTold(t *testing.T) {
	t.Parallel()
	p, _, _, lost := start(t, "parrot", 1)
	if err := p.Send(order{Exit: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-lost; !strings.Contains(err.Error(), "nobody had asked it to: exit status 7") {
		t.Error(err)
	}
	p, done, _, lost := start(t, "deaf", 1)
	if err := p.End(order{End: true}, done, time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") || len(lost) > 0 {
		t.Error(err)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", `{"say":"a"} {"say":"b"}`: "", `{"shout":"a"}`: "unknown field", "say": "invalid", `{"say":`: "unexpected EOF", `{"say":"no"}`: "refused",
	} {
		var out bytes.Buffer
		err := serve(strings.NewReader(text), &out, func(o order, tell func(answer)) error {
			if o.Say == "no" {
				return errors.New("refused")
			}
			tell(answer{o.Say})
			return nil
		})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
