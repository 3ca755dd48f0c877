package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/diagnose"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/session"
)

const (
	// otherMembers is how long a good answer waits for those of other members.
	otherMembers = 250 * time.Millisecond
	// lateMembers is the time between two questions to those that do not answer.
	lateMembers = 30 * time.Second
)

// checkVersions asks every member for its version, once one has answered well
// only those that have not, and those in the background.
func (s *Session) checkVersions(ctx context.Context) error {
	if s.checked {
		return nil
	}
	late, err := checkVersionsOf(ctx, s.client.Endpoints(), s.version)
	if err != nil {
		return s.diagnosed(ctx, err)
	}
	s.checked = true
	s.wg.Go(func() { s.checkLate(late) })
	return nil
}

// checkLate asks the members that have not answered until all of them run a good
// version, or Close.
func (s *Session) checkLate(late []string) {
	for len(late) > 0 {
		late = slices.DeleteFunc(late, func(endpoint string) bool {
			c, done := s.bounded(s.ctx)
			defer done()
			version, err := s.version(c, endpoint)
			if err != nil {
				return false
			}
			err = checkVersionOf(endpoint, version)
			s.step(session.Problem{Of: endpoint, Err: err})
			return err == nil
		})
		if !sleep(s.ctx, lateMembers) {
			return
		}
	}
}

func (s *Session) version(ctx context.Context, endpoint string) (string, error) {
	r, err := s.client.Status(ctx, endpoint)
	if err != nil {
		return "", err
	}
	return r.Version, nil
}

// checkVersionsOf returns the endpoints that have not answered yet when one has, and
// the others had otherMembers to do so. One that is too old is an error.
func checkVersionsOf(ctx context.Context, endpoints []string, version func(context.Context, string) (string, error)) (late []string, err error) {
	type answer struct {
		endpoint, version string
		err               error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(endpoints))
	for _, e := range endpoints {
		go func() {
			v, err := version(ctx, e)
			answers <- answer{e, v, err}
		}()
	}
	var failed []error
	var enough <-chan time.Time
	late = slices.Clone(endpoints)
	for range endpoints {
		select {
		case a := <-answers:
			if a.err != nil {
				failed = append(failed, a.err)
				continue
			}
			if err := checkVersionOf(a.endpoint, a.version); err != nil {
				return nil, err
			}
			late = slices.DeleteFunc(late, func(e string) bool { return e == a.endpoint })
			if enough == nil {
				enough = time.After(otherMembers)
			}
		case <-enough:
			return late, nil
		}
	}
	if len(failed) == len(endpoints) {
		attempt := "no etcd answers at %v"
		if errors.Is(etcdcall.Kind(failed[0]), ErrPermission) {
			attempt = "ask etcd at %v for its version"
		}
		return nil, classify(ctx, fmt.Sprintf(attempt, endpoints), failed[0])
	}
	return late, nil
}

func checkVersionOf(endpoint, version string) error {
	if err := diagnose.CheckVersion(version); err != nil {
		return fmt.Errorf("coordinator: etcd at %s: %w", endpoint, err)
	}
	return nil
}
