package cause

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/quotient-limiter/quotient/quota"
)

// Export is what sets the limits again that etcd has lost.
const Export = "quota-admin apply -f EXPORT --withhold, with the file of your last quota-admin export"

const (
	lostLimit = "no limit is set any more; it was "
	keysToo   = ", and "
	ofEachKey = " of each key"
	setWith   = ", set with "
	inMode    = ", in mode "
)

// Limits shows limits of a provider, and of each of its keys; "" if there are none.
func Limits(of, ofKeys []quota.Limit) string {
	all := quota.FormatLimits(of)
	switch keys := quota.FormatLimits(ofKeys) + ofEachKey; {
	case len(ofKeys) == 0:
		return all
	case all == "":
		return keys
	default:
		return all + keysToo + keys
	}
}

// Was shows what is remembered of a policy that is gone: its limits, the flags of quota-admin set that a new policy would
// need to be as it was, and its mode. What was announced for later is not in it, nor are overrides of keys.
func Was(p *quota.Policy) string {
	was := Limits(p.Limits, p.Keys.Limits)
	if flags := flagsOf(p); flags != "" {
		was += setWith + flags
	}
	if p.Mode != "" && p.Mode != quota.ModeEnforce {
		was += inMode + string(p.Mode)
	}
	return was
}

// flagsOf returns what a policy says beside its limits, and other than a new one, as flags of quota-admin set.
func flagsOf(p *quota.Policy) string {
	is := p.WithDefaults()
	fresh := quota.Policy{Keys: quota.Keys{Limits: p.Keys.Limits}, Timing: quota.Timing{Settle: is.Settle}}.WithDefaults() // the freshness follows settle
	var all []string
	for _, f := range []struct {
		flag      string
		is, fresh any
	}{
		{"max-step", strconv.FormatFloat(is.MaxStep, 'f', -1, 64), strconv.FormatFloat(fresh.MaxStep, 'f', -1, 64)},
		{"shape", is.Shape, fresh.Shape},
		{"burst", is.Burst, fresh.Burst},
		{"guard", is.Guard, fresh.Guard},
		{"clock-error", is.ClockError, fresh.ClockError},
		{"zone", is.Zone, fresh.Zone},
		{"keys-owners", is.Keys.Owners, fresh.Keys.Owners},
		{"keys-most", is.Keys.Most, fresh.Keys.Most},
		{"lend", is.Lend, fresh.Lend},
		{"classes", fmt.Sprintf("critical=%d", is.Critical), "critical=0"},
		{"pacing", is.Pacing, fresh.Pacing},
		{"warm-up", is.WarmUp, fresh.WarmUp},
		{"backoff", is.Backoff, fresh.Backoff},
		{"backoff-max", is.BackoffMax, fresh.BackoffMax},
		{"outage", is.Outage, fresh.Outage},
		{"settle", is.Settle, quota.DefaultSettle},
		{"freshness", is.Freshness, fresh.Freshness},
	} {
		if f.is != f.fresh {
			all = append(all, "--"+f.flag+" "+ShellWord(fmt.Sprint(f.is)))
		}
	}
	return strings.Join(all, " ")
}

// LostLimit says that a provider has no policy any more, what that was (Was), and what to look at.
func LostLimit(provider, was string) string {
	return fmt.Sprintf(lostLimit+"%s: quota-admin history %s tells who deleted it, and if that is empty, etcd has lost its data: %s", was, ShellWord(provider), Export)
}

// Lost is what a problem remembers of a policy that is gone.
type Lost struct {
	Was  string // as LostLimit was told; empty if the problem is none
	Set  string // the arguments of quota-admin set that make it again, but for its mode
	Mode string // "" if calls were limited by it
}

// LostBy returns what a problem remembers.
func LostBy(problem string) (l Lost) {
	text, ok := strings.CutPrefix(problem, lostLimit)
	if !ok {
		return l
	}
	l.Was, _, _ = strings.Cut(text, ": quota-admin ")
	rest, mode, _ := strings.Cut(l.Was, inMode)
	rest, flags, _ := strings.Cut(rest, setWith)
	of, ofKeys, both := strings.Cut(rest, keysToo)
	if l.Mode, l.Set = mode, ShellWord(of); both {
		l.Set += " --keys " + ShellWord(strings.TrimSuffix(ofKeys, ofEachKey))
	}
	if flags != "" {
		l.Set += " " + flags
	}
	return l
}
