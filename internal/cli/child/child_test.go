package child

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

type order struct {
	Say  string `json:"say,omitempty"`
	Exit bool   `json:"exit,omitempty"`
}

type answer struct{ Said string }

func TestMain(m *testing.M) {
	Be("parrot", func(name string, orders <-chan order, tell func(answer)) error {
		for o := range orders {
			if o.Exit {
				os.Exit(7)
			}
			tell(answer{name + ": " + o.Say})
		}
		tell(answer{name + ": bye"})
		if name == "deaf" {
			select {}
		}
		return nil
	})
	os.Exit(m.Run())
}

// start starts a child.
func start(t *testing.T, name string) (p *Process, said *[]string, lost chan error) {
	t.Helper()
	said, lost = new([]string), make(chan error, 1)
	p, err := Start("parrot", name, func(a answer) { *said = append(*said, a.Said) }, func(err error) { lost <- err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, said, lost
}

func TestAChildObeysAndEnds(t *testing.T) {
	t.Parallel()
	p, said, lost := start(t, "polly")
	for _, word := range []string{"one", "two"} {
		if err := p.Send(order{Say: word}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(time.Minute); err != nil {
		t.Error(err)
	}
	if got := strings.Join(*said, ", "); got != "polly: one, polly: two, polly: bye" {
		t.Error(got)
	}
	if err := p.Close(time.Minute); err != nil || len(lost) > 0 || p.Used() <= 0 {
		t.Errorf("%v, %d lost, %v used", err, len(lost), p.Used())
	}
}

// One that ends by itself is lost, one that does not end is killed.
func TestAChildThatDoesNotDoAsItIsTold(t *testing.T) {
	t.Parallel()
	p, _, lost := start(t, "polly")
	if err := p.Send(order{Exit: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-lost; !strings.Contains(err.Error(), "nobody had asked it to: exit status 7") {
		t.Error(err)
	}
	p, _, lost = start(t, "deaf")
	if err := p.Close(time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") || len(lost) > 0 {
		t.Error(err)
	}
}

// A child that is told nonsense says so; one whose orders end before its
// configuration does nothing.
func TestNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", `"a"`: "", `"a" {"say":"a"} {"say":"b"}`: "", `"a" {"shout":"a"}`: "unknown field", `"a" say`: "invalid", `"a" {"say":`: "unexpected EOF",
		`{}`: "cannot unmarshal", `"a" {"say":"no"}`: "refused",
	} {
		var out bytes.Buffer
		err := serve(strings.NewReader(text), &out, func(_ string, orders <-chan order, tell func(answer)) error {
			for o := range orders {
				if o.Say == "no" {
					return errors.New("refused")
				}
				tell(answer{o.Say})
			}
			return nil
		})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
