package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/dashboard"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// webChange makes a change that was asked for on the page, or previews it, with
// the same checks as set, pause and resume.
func webChange(admin *coordinator.Admin) dashboard.ChangeFunc {
	return func(ctx context.Context, c dashboard.Change) (done dashboard.Changed, err error) {
		now := time.Now()
		old, err := admin.Get(ctx, c.Provider)
		if err != nil {
			return done, err
		}
		if old.Revision != c.IfRevision {
			return done, &coordinator.ConflictError{Provider: c.Provider, Have: old.Revision, Want: c.IfRevision}
		}
		if policyIn(old) == nil {
			return done, fmt.Errorf("the policy that is set cannot be read: %s; delete it first", problem(old.Problem))
		}
		policy, err := webPolicy(ctx, admin, old, c, now)
		if err != nil {
			return done, err
		}
		if err := policy.Validate(); err != nil {
			return done, refused(err)
		}
		if c.Kind == "set" && !c.Force {
			if err := change.CheckStep(old.Policy, policy, now, 0); err != nil {
				if c.Write {
					return done, err
				}
				done.Refused = webText(err)
			}
		}
		done.Old, done.New = inWords(old.Policy, now), inWords(policy, now)
		done.Effects = effects(old.Policy, policy, now)
		if !c.Write {
			f, err := admin.Fleet(ctx, c.Provider)
			if err != nil {
				return done, err
			}
			done.Shares = compareShares(&f, policy, inForce(old.Policy, policy, time.Time{}, now))
			return done, nil
		}
		stored, err := admin.Put(ctx, c.Provider, policy, old.Revision)
		done.Revision = stored.Revision
		return done, err
	}
}

// webPolicy returns the policy that is asked for.
func webPolicy(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, c dashboard.Change, now time.Time) (p quota.Policy, err error) {
	switch c.Kind {
	case "pause":
		p, err = toMode(ctx, admin, old, quota.ModePause, now)
	case "resume":
		p, err = toMode(ctx, admin, old, "", now)
	default:
		var s settings
		if s.limits, err = quota.ParseLimits(c.Limits); err != nil {
			return p, err
		}
		p, _, err = s.apply(old.Policy, now)
	}
	p.Author, p.Time, p.Reason = c.Who, time.Time{}, c.Reason
	return p.WithDefaults(), err
}

// inWords is a policy's limits, with its mode where that is not the usual one.
func inWords(p quota.Policy, now time.Time) string {
	current := change.Current(p, now).WithDefaults()
	words := quota.FormatLimits(current.Limits)
	if current.Mode != quota.ModeEnforce {
		words += " (" + string(current.Mode) + ")"
	}
	return words
}

// webText is an error for the page, which has other ways out than the flags.
func webText(err error) string {
	if step, ok := errors.AsType[*change.StepError](err); ok {
		return step.What() + ": tick the box if it is meant"
	}
	return classify(err).Error
}

// webExplain turns an error into a status and a sentence.
func webExplain(err error) (int, string) {
	f := classify(err)
	status := map[int]int{
		exitNotFound: http.StatusNotFound, exitConflict: http.StatusConflict, exitUsage: http.StatusBadRequest,
		exitUnreachable: http.StatusServiceUnavailable, exitPermission: http.StatusForbidden,
	}[f.ExitCode]
	if status == 0 {
		status = http.StatusUnprocessableEntity
	}
	return status, webText(err)
}
