package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/commandline"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// settings are what set changes. Fields that are not named stay as they are.
type settings struct {
	change.Timing
	limits []quota.Limit
	fields [][]func(*quota.Policy) // as in fields
}

func (a *app) setCommand() *cobra.Command {
	s := settings{fields: make([][]func(*quota.Policy), len(fields))}
	create := false
	cmd := &cobra.Command{
		Use:   "set PROVIDER LIMITS",
		Short: "Set the limits of a provider, now or for later",
		Long: `Set the limits of a provider. Fields without a flag keep their values; a new policy
starts with the defaults.

With --at the change is written now. It takes effect in the first window that starts
at TIME or later, in the same window on every instance, and costs no permits. TIME is
2027-01-01T00:00:00Z, 2027-01-01 00:00 or 00:00 (local time), or +90s. With --for the
limits return by themselves when the time is over. Setting limits keeps the announced
changes; get shows them, cancel removes them. A set that changes nothing writes nothing.

A change by a factor above --max-step is refused as a typing error, unless --force
is given. A new provider with nearly the name of another, or with a blank in its name,
is refused too, unless --create is given; on a terminal the command asks.

Without --if-revision the change is refused with exit code 4 if another change of
the policy is written at the same moment.`,
		Example: `  quota-admin set payments/charge 300000/s --reason campaign --wait
  quota-admin set payments/charge 150000/s --at 00:00
  quota-admin set github 15000/s --keys '14/s,5000/h sliding'
  quota-admin set payments/charge 500000/s --at 2027-01-01T00:00:00Z --for 2h
  quota-admin set payments/charge 500/2s,10000/1m --if-revision 17 --dry-run`,
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			s.limits, err = quota.ParseLimits(args[1])
			return err
		},
	}
	addFlag(a, cmd, &s.At, "at", when, "make the change at `TIME`, in the same window on every instance; at least settle, two clock errors and 200ms ahead, 3.3s by default")
	addFlag(a, cmd, &s.For, "for", positive, "take the change back after this `duration`")
	e := a.edits(cmd, 0)
	e.steps, e.lazy, e.already = true, true, noChange
	cmd.Flags().BoolVar(&e.force, "force", false, forceUsage)
	e.withholdFlag(cmd)
	cmd.Flags().BoolVar(&create, "create", false, "set a new provider although another has nearly the same name, or its name has a blank")
	for i, f := range fields {
		addFlag(a, cmd, &s.fields[i], f.flag, func(text string) ([]func(*quota.Policy), error) {
			set, err := f.parse(text)
			return append(s.fields[i], set), err
		}, f.usage)
	}
	underTitles(cmd, titles)
	for _, f := range gone {
		commandline.Gone(cmd.Flags(), f.flag, f.now)
	}
	e.next = func(ctx context.Context, operator *admin.Client, old admin.Stored, now time.Time) (p quota.Policy, err error) {
		if old.Revision == 0 && !create && e.revision == anyRevision {
			if err := a.mayCreate(ctx, operator, old.Provider); err != nil {
				return p, err
			}
		}
		e.at = s.At
		return s.apply(old.Policy, now)
	}
	return cmd
}

// apply returns the policy that the settings make of the one that was there. An old
// policy without limits stands for none.
func (s *settings) apply(old quota.Policy, now time.Time) (quota.Policy, error) {
	p := old.Clone()
	for _, set := range slices.Concat(s.fields...) {
		set(&p)
	}
	will := quota.Policy{Limits: s.limits}.WithDefaults()
	if later := !s.At.IsZero() || s.For != 0; later && len(protocol.Long(&will)) > 0 && !slices.Equal(protocol.Long(&will), protocol.Long(&p)) {
		return p, refused(fmt.Errorf("limits above a minute cannot be announced (%s): leave them out, and those in force stay; to change them run this command at that time, without --at and --for", quota.FormatLimits(protocol.Long(&will))))
	} else if !later {
		p.Limits = will.Limits
	}
	p, err := change.SetLimits(old, p, protocol.Short(&will), s.Timing, now)
	if err != nil {
		err = refused(err)
	}
	return p, err
}

// mayCreate refuses a new provider whose name has a blank, or is nearly that of another: a
// typing error would leave the one that was meant as it is. On a terminal it asks. A user
// that may not list providers is not refused for another's name.
func (a *app) mayCreate(ctx context.Context, operator *admin.Client, provider string) error {
	if strings.Contains(provider, " ") && !(isTerminal(a.stdin) && a.confirm(fmt.Sprintf("The name %q has a blank. Create it?", provider))) {
		return refused(fmt.Errorf("the name %q has a blank; if it is meant, give --create", provider))
	}
	all, err := operator.List(ctx)
	if errors.Is(err, coordinator.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	near := nearest(provider, all)
	if near == "" || isTerminal(a.stdin) && a.confirm(fmt.Sprintf("There is no provider %s, but %s. Create it?", provider, near)) {
		return nil
	}
	return refused(fmt.Errorf("there is no provider %s; did you mean %s? To set a new one give --create", provider, near))
}

// nearest returns the provider whose name a typing error may have made provider; "" if none.
func nearest(provider string, all []admin.Stored) (near string) {
	least := 3
	for _, s := range all {
		if d := distance(provider, s.Provider); d < least && len(provider) > 2*d && digits.ReplaceAllString(provider, "") != digits.ReplaceAllString(s.Provider, "") {
			near, least = s.Provider, d
		}
	}
	return near
}

// digits are left out of names: none of those that are numbered is a typing error.
var digits = regexp.MustCompile(`\d`)

// distance is how many characters must be inserted, deleted or replaced to make one
// text the other (Levenshtein).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0]++
		for j := range y {
			replaced := diagonal
			if x[i] != y[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}

// field is a flag of set for a field of a policy besides its limits.
type field struct {
	flag, usage string
	// parse returns what a value changes in a policy.
	parse func(text string) (func(*quota.Policy), error)
}

// fields are in the order of what depends on each other: a change of the settle time comes
// before the freshness, and that of the shape before the burst.
var fields = []field{
	{"max-step", "refuse a change by more than this `FACTOR`, up or down: kept in the policy, and used now; new policies: 10x",
		value(parseFactor, func(p *quota.Policy, f float64) { p.MaxStep = f })},
	{"shape", "`fixed|sliding|bucket`: the limit is of each window of the clock, of any span of a window's length, or of a token bucket; new policies: fixed",
		value(oneOf(quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket), setShape)},
	{"burst", "`PERMITS` that may come at once, with shape bucket; new policies: 0, the whole limit",
		value(whole(0, quota.MaxPermits), func(p *quota.Policy, v int64) { p.Burst = v })},
	{"guard", "shape fixed: issue nothing within this `duration` of a window's edges, as in 50ms, so that a call arrives in the window of its permit; other shapes, sliding and inflight: how long a call may take to arrive; 0 is off",
		value(parseGuard, func(p *quota.Policy, d time.Duration) { p.Guard = d })},
	{"clock-error", "most that a host's clock may be wrong, a `duration`; new policies: 50ms",
		value(positive, func(p *quota.Policy, d time.Duration) { p.ClockError = d })},
	{"zone", "time `ZONE` of limits per day (d) and month (mo), as in Europe/Berlin; new policies: UTC",
		value(zone, func(p *quota.Policy, v string) { p.Zone = v })},
	{"keys", "limits of each key, such as an account, beside those of the provider: `LIMITS` as in 80/s or 80/s,1000/m, or off", parseKeys},
	{"keys-owners", "how many instances (`N`) have the permits of a key, and lend them to the others: 1 to 16, which a hash of its name chooses, or 0: all share them; new policies: 0",
		value(whole(0, 16), func(p *quota.Policy, v int64) { p.Keys.Owners = v })},
	{"keys-most", "most keys (`N`) that one instance may have in use; new policies: 100000",
		value(whole(1, 1_000_000), func(p *quota.Policy, v int64) { p.Keys.Most = v })},
	{"lend", "`on|off`: instances lend each other the permits that they do not need; new policies: on",
		value(parseLend, func(p *quota.Policy, v string) { p.Lend = v })},
	{"classes", "`critical=PERCENT` of each share that is kept, at a window's start, for the calls that programs mark as critical, 0 to 90; off is 0", parseClasses},
	{"pacing", "`off|even`: the permits of a window are released at once, or evenly; new policies: off",
		value(oneOf(quota.PacingOff, quota.PacingEven), func(p *quota.Policy, v quota.Pacing) { p.Pacing = v })},
	{"warm-up", "`duration` in which the share of an instance grows to its full size, when it is new or a 429 has paused it; 0 is off",
		value(notNegative, func(p *quota.Policy, d time.Duration) { p.WarmUp = d })},
	{"backoff", "`instance|fleet`: a provider's answer 429 pauses the refused instance, or the fleet; new policies: fleet",
		value(oneOf(quota.BackoffInstance, quota.BackoffFleet), func(p *quota.Policy, v quota.Backoff) { p.Backoff = v })},
	{"backoff-max", "longest `duration` of a pause that a provider can ask for; new policies: 1m",
		value(positive, func(p *quota.Policy, d time.Duration) { p.BackoffMax = d })},
	{"outage", "`hold|stop`: without etcd an instance keeps its last share, or issues nothing; new policies: hold",
		value(oneOf(quota.OutageHold, quota.OutageStop), func(p *quota.Policy, v quota.Outage) { p.Outage = v })},
	{"settle", "how long (`duration`) a share waits before it grows, after a join or a crash; new policies: 3s", value(positive, setSettle)},
	{"freshness", "how long (`duration`) an instance may be without an answer from etcd, before --outage counts; new policies: five sixths of settle",
		value(positive, func(p *quota.Policy, d time.Duration) { p.Freshness = d })},
}

// titles are of the groups of flags in the help, by the first of each.
var titles = map[string]string{
	"at":      "This change",
	"shape":   "How the limit counts",
	"keys":    "Limits by key",
	"lend":    "Which calls have the permits, and when",
	"backoff": "When the provider answers 429",
	"outage":  "When etcd is away, and when instances come and go",
}

// gone are flags of earlier versions, each with what to do now.
var gone = []struct{ flag, now string }{
	{"adaptive", "leave it out; a 429 still pauses the fleet, and --for lowers a limit for a time"},
	{"backoff-quorum", "leave it out; a pause of the fleet takes two refused instances, in fleets of up to 3 one; with --backoff instance each pauses alone"},
	{"floor", "leave it out; shares are equal, and instances lend what they do not need"},
	{"reserve", "leave it out; instances keep 1% of their share, in fleets below 20 instances 10%; --classes keeps permits for critical calls"},
	{"share", "leave it out; shares are equal, and instances lend what they do not need"},
	{"weight", "leave it out; shares are equal, and instances lend what they do not need"},
}

// value makes a field's parse of a parser and a setter.
func value[T any](parse func(string) (T, error), set func(*quota.Policy, T)) func(string) (func(*quota.Policy), error) {
	return func(text string) (func(*quota.Policy), error) {
		v, err := parse(text)
		return func(p *quota.Policy) { set(p, v) }, err
	}
}

func oneOf[T ~string](all ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if slices.Contains(all, T(text)) {
			return T(text), nil
		}
		var words []string
		for _, v := range all[:len(all)-1] {
			words = append(words, string(v))
		}
		return "", fmt.Errorf("must be %s or %s", strings.Join(words, ", "), all[len(all)-1])
	}
}

func parseLend(text string) (string, error) {
	if text == "newcomers" {
		return "", errors.New("went with an earlier version: write on, under which new instances borrow too, or off")
	}
	return oneOf("on", "off")(text)
}

func whole(least, most int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		return n, nil
	}
}

// atLeast reads durations of 0, or 1, nanoseconds at least.
func atLeast(least time.Duration, otherwise string) func(text string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil {
			err = errors.New("write a number with its unit, as in 250ms, 3s or 1m")
		} else if d < least {
			err = errors.New(otherwise)
		}
		return d, err
	}
}

var (
	positive    = atLeast(1, "must be more than 0")
	notNegative = atLeast(0, "must not be negative; 0 switches it off")
)

// setSettle takes a freshness that was left at its default along.
func setSettle(p *quota.Policy, d time.Duration) {
	if p.Freshness == (quota.Policy{Timing: quota.Timing{Settle: p.Settle}}).WithDefaults().Freshness {
		p.Freshness = 0
	}
	p.Settle = d
}

// setShape drops the burst of the bucket that there was.
func setShape(p *quota.Policy, v quota.Shape) {
	if p.Shape = v; v != quota.ShapeBucket {
		p.Burst = 0
	}
}

func parseGuard(text string) (time.Duration, error) {
	d, err := quota.ParseGuard(text)
	if err == nil && d < 0 {
		err = errors.New("must not be negative; 0 switches it off")
	}
	return d, err
}

// parseKeys reads the limits of keys; off is none.
func parseKeys(text string) (set func(*quota.Policy), err error) {
	if text == "off" {
		return func(p *quota.Policy) { p.Keys = quota.Keys{} }, nil
	}
	limits, err := quota.ParseLimits(text)
	return func(p *quota.Policy) { p.Keys.Limits = limits }, err
}

func zone(text string) (string, error) {
	_, err := time.LoadLocation(text)
	if err != nil {
		err = errors.New("write the name of a time zone, as in Europe/Berlin")
	}
	return text, err
}

// parseClasses reads critical=10%, or off.
func parseClasses(text string) (set func(*quota.Policy), err error) {
	class, value, _ := strings.Cut(text, "=")
	n := int64(0)
	switch {
	case text == "off":
	case class != string(consumer.Critical):
		err = errors.New("write critical=PERCENT, as in critical=10, or off: permits are kept for critical calls only")
	default:
		n, err = whole(0, 90)(strings.TrimSuffix(value, "%"))
	}
	return func(p *quota.Policy) { p.Critical = n }, err
}

func parseFactor(text string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "x"), 64)
	if err != nil || !(n >= 1 && n <= float64(quota.MaxPermits)) {
		return 0, fmt.Errorf("write a number from 1 to %d, as in 10x", quota.MaxPermits)
	}
	return n, nil
}
