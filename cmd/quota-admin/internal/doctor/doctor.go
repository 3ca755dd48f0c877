// Package doctor finds what is wrong with etcd, this host's clock and fleets. Facts
// are read apart from their judgement, so that a test can judge any.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// The levels of findings. Only problems count for the exit code.
const (
	levelOK      = "ok"
	levelNote    = "note"
	levelProblem = "problem"
)

// Finding is one thing that was looked at.
type Finding struct {
	Level   string `json:"level"`
	Check   string `json:"check"`   // etcd, clock or fleet
	Subject string `json:"subject"` // the endpoint, the host, the provider or the instance
	Finding string `json:"finding"`
	Mend    string `json:"mend,omitempty"`
}

// Chart collects findings.
type Chart []Finding

func (c *Chart) add(level, check, subject, mend, text string, args []any) {
	*c = append(*c, Finding{level, check, subject, fmt.Sprintf(text, args...), mend})
}

func (c *Chart) ok(check, subject, text string, args ...any) {
	c.add(levelOK, check, subject, "", text, args)
}

func (c *Chart) note(check, subject, mend, text string, args ...any) {
	c.add(levelNote, check, subject, mend, text, args)
}

func (c *Chart) problem(check, subject, mend, text string, args ...any) {
	c.add(levelProblem, check, subject, mend, text, args)
}

// Clock measures this host's clock, by the kernel and by NTP servers.
func (c *Chart) Clock(ctx context.Context, servers []string) {
	judgeClock(c, measureClock(ctx, servers))
}

// Etcd looks at etcd. The error is why fleets cannot be read either.
func (c *Chart) Etcd(ctx context.Context, client *clientv3.Client, timeout time.Duration) error {
	facts := readEtcd(ctx, client, timeout)
	judgeEtcd(c, facts)
	return facts.quorum.err
}

// Fleets looks at the instances of the providers, of all if none is named.
func (c *Chart) Fleets(ctx context.Context, admin *coordinator.Admin, prefix string, providers []string) error {
	if len(providers) == 0 {
		all, err := admin.List(ctx)
		if err != nil {
			return err
		}
		for _, s := range all {
			if quota.ValidateProvider(s.Provider) != nil {
				c.problem("fleet", s.Provider, "delete the key", "%s", brief(s.Problem))
				continue
			}
			providers = append(providers, s.Provider)
		}
		if len(all) == 0 {
			c.note("fleet", prefix, "set one: quota-admin set PROVIDER LIMITS; or check --prefix", "there are no policies")
		}
	}
	for _, p := range providers {
		f, err := admin.Fleet(ctx, p)
		if err != nil {
			return err
		}
		judgeFleet(c, &f, time.Now())
	}
	return nil
}

// Problems counts them.
func (c *Chart) Problems() (n int) {
	for _, f := range *c {
		if f.Level == levelProblem {
			n++
		}
	}
	return n
}

// Table writes a line for each finding, and one for its mend.
func (c *Chart) Table(w io.Writer) {
	format.Row(w, "LEVEL", "CHECK", "SUBJECT", "FINDING")
	for _, f := range *c {
		format.Row(w, f.Level, f.Check, format.Name(f.Subject), format.Show(f.Finding))
		if f.Mend != "" {
			format.Row(w, "", "", "", "mend: "+format.Show(f.Mend))
		}
	}
}

// brief returns an error without what its place says already.
func brief(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, " desc = "); ok {
		text = after
	}
	return strings.TrimPrefix(text, "coordinator: ")
}
