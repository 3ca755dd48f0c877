package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/coreos/go-semver/semver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The oldest servers whose watches can be relied on: before them, a member that
// lags could deliver old events to a new watch, and progress notifications out
// of order.
var (
	oldest35 = *semver.New("3.5.22")
	oldest36 = *semver.New("3.6.2")
)

// checkVersions asks every endpoint for its version. One that does not answer
// is no obstacle as long as another does; one that is too old is.
func checkVersions(ctx context.Context, client *clientv3.Client) error {
	return checkVersionsOf(ctx, client.Endpoints(), func(ctx context.Context, endpoint string) (string, error) {
		r, err := client.Status(ctx, endpoint)
		if err != nil {
			return "", err
		}
		return r.Version, nil
	})
}

func checkVersionsOf(ctx context.Context, endpoints []string, version func(context.Context, string) (string, error)) error {
	type answer struct {
		endpoint, version string
		err               error
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout*4/5)
	defer cancel()
	answers := make(chan answer, len(endpoints))
	for _, e := range endpoints {
		go func() {
			v, err := version(ctx, e)
			answers <- answer{e, v, err}
		}()
	}
	var failed []error
	for range endpoints {
		a := <-answers
		if a.err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", a.endpoint, a.err))
			continue
		}
		if err := CheckVersion(a.version); err != nil {
			return fmt.Errorf("coordinator: etcd at %s: %w", a.endpoint, err)
		}
	}
	if len(failed) == len(endpoints) {
		return classify(ctx, fmt.Sprintf("no etcd at %v", endpoints), errors.Join(failed...))
	}
	return nil
}

// CheckVersion returns nil if an etcd of that version can be relied on, and
// otherwise an error that says which can.
func CheckVersion(version string) error {
	v, err := semver.NewVersion(version)
	if err != nil {
		return fmt.Errorf("its version %q cannot be read: %w", version, err)
	}
	v.PreRelease = ""
	if v.LessThan(oldest35) || (v.Major == 3 && v.Minor == 6 && v.LessThan(oldest36)) {
		return fmt.Errorf("version %s is too old, its watches can deliver events out of order: 3.5.22, 3.6.2 or newer is needed", version)
	}
	return nil
}
