// Package fleet is the parent's side of a run: it starts the workers, has happen to
// them what was asked for, and sums up what was seen.
package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/show"
	"github.com/quotient-limiter/quotient/internal/load"
)

// Execute runs the fleet. The report is nil where nothing ran.
func Execute(ctx context.Context, c *config.Config, text, stderr io.Writer) (*load.Report, error) {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	e, err := openEtcd(running, c, fail)
	if err != nil {
		return nil, err
	}
	provider := "loadgen/" + strings.ToLower(rand.Text()[:10])
	c.Asked["provider"] = provider
	if !c.Quiet {
		fmt.Fprintf(text, "%d instances%s share %s%s; demand %v, %s, %s; settle time %v; %s\n",
			c.Instances, c.ProcessesText(), c.Limit, c.ShapeText(), c.Demand, c.Arrival, c.Skew, c.Settle, e.where(c))
	}
	own, err := openClock(running, c.NTP, c.Policy(nil, "").ClockError)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	defer own.close()
	r := &run{c: c, etcd: e, provider: provider, own: own, crew: newCrew(c, e, provider, own, fail), show: new(show.Progress)}
	r.crew.event = r.event
	if !c.Quiet {
		r.show = show.NewProgress(stderr)
	}
	if c.HTML != "" {
		r.shares = &load.Shares{Names: c.Bands()}
	}
	err = r.drive(running)
	if cause := context.Cause(running); ctx.Err() == nil && cause != nil {
		err = errors.Join(cause, err) // not the user, but something that went wrong
	}
	if closing := e.close(); err == nil && closing != nil && ctx.Err() == nil {
		err = fmt.Errorf("closing etcd: %w", closing)
	}
	return r.report(), err
}
