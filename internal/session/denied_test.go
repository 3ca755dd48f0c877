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
			s.do(Leased{Lease: Lease{ID: 8}})
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

// What keeps a provider from going on is told in one line, and its log has one cure: of what etcd says, not of more.
func TestSeveralTroublesAreOneLine(t *testing.T) {
	t.Parallel()
	s := newSteps()
	p := s.joins("p", 20)
	s.do(WriteAnswered{Member: p, Right: ToThrottle, Err: fmt.Errorf("put: %w", cause.ErrDenied), Denied: true})
	var told error
	var logged []Log
	for _, x := range s.Step(WatchEnded{Line: s.whole(), Err: fmt.Errorf("watch: %w", errors.Join(cause.ErrAway, errors.New("it is slow")))}, s.at()) {
		if x, ok := x.(Trouble); ok {
			told = x.Err
		}
	}
	const want = "put: etcd does not permit it; quota-admin roles consumer p --to USER grants it; beside that: watch: etcd cannot be reached; beside that: it is slow"
	if told == nil || told.Error() != want || !errors.Is(told, cause.ErrAway) || !errors.Is(told, cause.ErrDenied) {
		t.Errorf("told %q, want %q", told, want)
	}
	for _, err := range []error{fmt.Errorf("read: %w", cause.ErrAway), fmt.Errorf("read: %w", cause.ErrLogin)} {
		for _, x := range s.Step(Troubled{p, err}, s.at()) {
			if x, ok := x.(Log); ok {
				logged = append(logged, x)
			}
		}
	}
	if len(logged) != 2 || fmt.Sprint(logged[0].Args[4:]) != "[do quota-admin roles consumer p --to USER grants it]" || fmt.Sprint(logged[1].Args[4:]) != fmt.Sprint(logged[0].Args[4:]) {
		t.Errorf("logged %+v", logged)
	}
	s.do(WriteAnswered{Member: p, Right: ToThrottle})
	if all := s.Step(Troubled{p, fmt.Errorf("list: %w", cause.ErrAway)}, s.at()); !slices.ContainsFunc(all, func(x Effect) bool {
		l, ok := x.(Log)
		return ok && fmt.Sprint(l.Args[4:]) == fmt.Sprint([]any{"do", cause.LeaveRunning})
	}) {
		t.Errorf("%+v", all)
	}
}

// A refused login says nothing about the role; a lease that etcd does not renew because of a role ends, and no line says
// that to wait helps.
func TestTheCureIsOfWhatEtcdSays(t *testing.T) {
	t.Parallel()
	s := newSteps()
	p := s.joins("p", 20)
	for _, kind := range []error{cause.ErrLogin, cause.ErrToken} {
		if all := s.Step(WriteAnswered{Member: p, Right: ToTake, Err: fmt.Errorf("take: %w", kind), Denied: true}, s.at()); len(all) > 0 {
			t.Errorf("%v: %+v", kind, all)
		}
	}
	for _, err := range []error{nil, cause.ErrDenied, cause.ErrLogin} {
		s.do(Leased{Lease: Lease{ID: 9}})
		all := s.Step(Leased{Err: err}, s.at())
		l, ok := all[0].(Log)
		if !ok || l.Args[len(l.Args)-1] != cause.Remedy(err) {
			t.Errorf("%v: %+v", err, all)
		}
	}
}
