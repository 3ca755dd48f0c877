package session

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// Where etcd answers, and does not let this process take part in a provider, it goes on only when somebody grants the role:
// the log, once, and the limiter have the command that does.
func TestADeniedProviderIsToldWhatGrantsIt(t *testing.T) {
	t.Parallel()
	denied := fmt.Errorf("watch: %w", cause.ErrDenied)
	const grants = "quota-admin roles consumer q --to USER grants it"
	for what, play := range map[string]func(s *steps, p, q *Member) (all []Effect){
		"it may not read": func(s *steps, _, _ *Member) (all []Effect) {
			s.do(WatchEnded{Line: s.whole(), Err: denied, Denied: true})
			for range 2 {
				all = append(all, s.Step(WatchEnded{Line: s.lines["/q/"], Err: denied, Denied: true}, s.at())...)
			}
			return all
		},
		"it may not register": func(s *steps, p, q *Member) (all []Effect) {
			s.do(Leased{})
			s.do(Leased{Lease{ID: 8}})
			for range 2 {
				batch, _ := s.NextBatch(most, true)
				i := slices.IndexFunc(batch, func(j *Joining) bool { return j.Member == q })
				batch[i].Err = denied
				all = append(all, s.Step(JoinEnded{batch[i]}, s.at())...)
			}
			return all
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSteps()
			all := play(s, s.joins("p", 20), s.joins("q", 30))
			var logged []Log
			var told error
			for _, x := range all {
				switch x := x.(type) {
				case Log:
					logged = append(logged, x)
				case Trouble:
					told = x.Err
				}
			}
			if len(logged) != 1 || !slices.Equal(logged[0].Args[len(logged[0].Args)-2:], []any{"do", grants}) {
				t.Errorf("logged %+v", logged)
			}
			if want := "watch: etcd does not permit it; " + grants; !errors.Is(told, cause.ErrDenied) || told.Error() != want {
				t.Errorf("told %v, want %s", told, want)
			}
		})
	}
}

// Two problems at once are told in one line, which a log does not cut.
func TestTwoProblemsAreOneLine(t *testing.T) {
	s := newSteps()
	s.joins("p", 20)
	s.log = nil
	s.do(Problem{"a", errors.New("old")})
	s.do(Problem{"b", errors.New("new")})
	if got, want := s.log[len(s.log)-1], "p trouble old; beside that"; got != want {
		t.Errorf("it is told %q, want %q", got, want)
	}
}
