package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/buildinfo"
	localsocket "github.com/quotient-limiter/quotient/internal/cli/socket"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// quotadFacts are the state of the quotad at a socket, as it tells it, or why it does not.
type quotadFacts struct {
	Version   string
	Problem   string
	Providers []struct {
		Provider, State, Problem string
		OpenFor                  float64 `json:"open_for"` // seconds
	}

	err error
}

// Policies returns policies as admin.Client does.
type Policies interface {
	Get(ctx context.Context, provider string) (admin.Stored, error)
}

// starts reports whether a provider that joins may still need that time: the settle time
// and two windows.
func starts(ctx context.Context, all Policies, provider string, open float64) bool {
	var p quota.Policy
	if all != nil {
		if s, err := all.Get(ctx, provider); err == nil && s.Problem == nil {
			p = s.Policy
		}
	}
	p = p.WithDefaults()
	return open > 0 && open < (p.Settle+2*max(time.Second, protocol.LongestWindow(&p))).Seconds()
}

// maxQuotadAnswer is more than the state of the most providers that quotad opens.
const maxQuotadAnswer = 16 << 20

// Quotad looks at the quotad of this host. The policies, nil if there are none, tell how
// long it takes to join.
func (c *Chart) Quotad(ctx context.Context, socket string, timeout time.Duration, all Policies) {
	f := &quotadFacts{}
	f.err = f.read(ctx, socket, timeout)
	judgeQuotad(c, socket, f, func(provider string, open float64) bool { return starts(ctx, all, provider, open) })
}

func (f *quotadFacts) read(ctx context.Context, socket string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://quotad/v1/providers", nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxQuotadAnswer))
	switch {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %.200s", answer.Status, text)
	}
	return json.Unmarshal(text, f)
}

func judgeQuotad(c *Chart, socket string, f *quotadFacts, starts func(provider string, open float64) bool) {
	const check = "quotad"
	switch {
	case errors.Is(f.err, fs.ErrPermission):
		c.add(problem, check, socket, localsocket.Joining(socket), "this user may not connect")
		return
	case f.err != nil:
		c.add(problem, check, socket, "see whether it runs, and its log: systemctl status quotad", "gives no answer: %s", brief(f.err))
		return
	}
	before := c.Problems()
	joining := false
	for _, p := range f.Providers {
		switch quota.State(p.State) {
		case quota.StateActive, quota.StatePausing, quota.StatePaused:
			if p.Problem == "" {
				continue
			}
			c.add(problem, check, p.Provider, cmp.Or(cause.Command(p.Problem), "see quotad's log"), "says: %s", p.Problem)
		default:
			if p.State == string(quota.StateJoining) && starts(p.Provider, p.OpenFor) && cause.Command(p.Problem) == "" {
				joining = true
				c.add(note, check, p.Provider, "nothing, unless it lasts", "%s", cause.Says(quota.StateJoining, 0, p.Problem))
				continue
			}
			c.add(problem, check, p.Provider, cmp.Or(cause.Command(p.Problem), "see quotad's log, and whether it reaches etcd"), "%s", cause.Says(quota.State(p.State), 0, p.Problem))
		}
	}
	switch {
	case f.Problem == "":
	case joining && c.Problems() == before:
		c.add(note, check, socket, "nothing, unless it lasts", "is not ready: %s", f.Problem)
	default:
		c.add(problem, check, socket, cmp.Or(cause.Command(f.Problem), "see its log, and whether it reaches etcd"), "is not ready: %s", f.Problem)
	}
	if own := buildinfo.Version(); f.Version != own {
		c.add(note, check, socket, "finish the rollout", "runs version %s, this command is of %s", f.Version, own)
	}
	if c.Problems() == before && !joining {
		c.add(ok, check, socket, "", "version %s, with %s", f.Version, format.Count(len(f.Providers), "provider"))
	}
}
