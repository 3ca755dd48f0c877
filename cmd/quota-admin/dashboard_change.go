package main

import (
	"context"
	"errors"
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
		e := edit{revision: revisionFlag{true, c.IfRevision}, reason: c.Reason, author: c.Who, next: webPolicy(c)}
		now := time.Now()
		changes, err := amend(ctx, admin, []string{c.Provider}, !c.Write, func(_ int, old coordinator.Stored) (*quota.Policy, error) {
			if err := mustExist(old); err != nil {
				return nil, err
			}
			p, err := e.checked(ctx, admin, old, now)
			if err == nil && c.Kind == "set" && !c.Force {
				if err = change.CheckStep(old.Policy, p, now, 0); err != nil && !c.Write {
					done.Refused, err = webText(err), nil
				}
			}
			return &p, err
		})
		if err != nil {
			return done, err
		}
		old, policy := changes[0].old.Policy, changes[0].new.Policy
		done.Revision, done.Old, done.New, done.Effects = changes[0].new.Revision, inWords(old, now), inWords(policy, now), effects(old, policy, now)
		if c.Write {
			return done, nil
		}
		f, err := admin.Fleet(ctx, c.Provider)
		if err == nil {
			done.Shares = compareShares(&f, policy, inForce(old, policy, time.Time{}, now))
		}
		return done, err
	}
}

// webPolicy returns what makes the policy that is asked for.
func webPolicy(c dashboard.Change) func(context.Context, *coordinator.Admin, coordinator.Stored, time.Time) (quota.Policy, error) {
	return func(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (p quota.Policy, err error) {
		switch c.Kind {
		case "pause":
			return toMode(ctx, admin, old, quota.ModePause, now)
		case "resume":
			return toMode(ctx, admin, old, "", now)
		}
		var s settings
		if s.limits, err = quota.ParseLimits(c.Limits); err == nil {
			p, _, err = s.apply(old.Policy, now)
		}
		return p, err
	}
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

// statuses are the HTTP statuses of exit codes.
var statuses = map[int]int{
	exitNotFound: http.StatusNotFound, exitConflict: http.StatusConflict, exitUsage: http.StatusBadRequest,
	exitUnreachable: http.StatusServiceUnavailable, exitPermission: http.StatusForbidden,
	exitFailed: http.StatusUnprocessableEntity, exitRefused: http.StatusUnprocessableEntity, exitLate: http.StatusUnprocessableEntity,
}

// webExplain turns an error into a status and a sentence.
func webExplain(err error) (int, string) { return statuses[classify(err).ExitCode], webText(err) }
