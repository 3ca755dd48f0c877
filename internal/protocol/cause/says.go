package cause

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// clock writes an instant within the day.
func clock(t time.Time) string { return t.Round(time.Millisecond).UTC().Format("15:04:05 UTC") }

// Date writes an instant that may be on another day.
func Date(t time.Time) string {
	return t.Round(time.Millisecond).UTC().Format("2006-01-02 15:04:05 UTC")
}

// Debt says a debt, and about until when it is paid; zero if that is unknown.
func Debt(debt int64, until time.Time) string {
	s := fmt.Sprintf("an earlier call cost more than it reserved; %d of that are still to be paid", debt)
	if !until.IsZero() {
		s += ", by about " + Date(until)
	}
	return s
}

// PayLess is what to do about debts that last.
const PayLess = "let callers reserve about what their calls cost, and settle in the unit of the limit"

// Stranded says, of a number of places for calls, that no report tells of them: instances took them since, or none that runs
// has them. The latter are those of calls that an operator has counted and instances do not know of, those of instances that
// have ended, and those that an instance asked for and does not know to have, as the answer came too late. It names no
// instant: while others take places that would be later at each look.
const Stranded = "taken since the last reports, counted by an operator, or lost by a crash or a late answer of etcd (a lost one is back within one and a half holds)"

// Forgotten says that calls in flight were never ended, and EndCalls is what to do about it.
const (
	Forgotten = "nobody has said that calls ended: their places come back by the hold alone"
	EndCalls  = "call Permit.Done, or the function that Begin returns, when a call has ended, also when it fails; behind quotad call close, or send DELETE /v1/calls/ID"
)

// The texts of an instance that has no share yet name the instant at which it began, not how long ago
// that is: they stay the same while that lasts, in reports and logs.

// Unheard says that etcd has told nothing yet.
const Unheard = "etcd has told nothing yet"

// Unregistered says that an instance's key is gone from etcd.
const Unregistered = "this instance is not registered in etcd at present, and registers again by itself"

// First says that an instance is the first of a fleet, and when its share begins; zero if that is not known.
func First(begins time.Time) string {
	when := "with the next window"
	if !begins.IsZero() {
		when = "at " + clock(begins)
	}
	return "this instance is the first of its fleet; its share begins " + when
}

// ErrLeft says that an instance has announced its end, which is over.
var ErrLeft = errors.New("this instance has left, as its program called Shutdown")

// Joined says when an instance joined, and when its share begins; zero if that is not known.
func Joined(at, begins time.Time, settle time.Duration) string {
	when := ""
	if !begins.IsZero() {
		when = fmt.Sprintf("at %s, ", clock(begins))
	}
	return fmt.Sprintf("this instance joined at %s; its share begins %swith the first window after the settle time (%v)", clock(at), when, settle)
}

// StartedOver says the same of an instance that has forgotten what it knew of the others.
func StartedOver(at, begins time.Time, settle time.Duration) string {
	return strings.Replace(Joined(at, begins, settle), "joined", "started over", 1)
}

// NewWindow says when an instance's share begins of windows whose length the policy did not limit before.
func NewWindow(length string, at time.Time) string {
	return fmt.Sprintf("this instance's share of the new window (%s) begins at %s", length, clock(at))
}

// KeysBegin says when the first limits by key begin.
func KeysBegin(at time.Time, settle time.Duration) string {
	return fmt.Sprintf("the limits by key are new; they begin at %s, with the first windows after the settle time (%v)", clock(at), settle)
}

// Owned says that an instance owns a key for too short a time to have a share of it.
func Owned(settle time.Duration) string {
	return fmt.Sprintf("this instance has owned the key for less than the settle time (%v)", settle)
}

// Begins says when a policy begins.
func Begins(at time.Time) string { return fmt.Sprintf("the policy begins at %s", Date(at)) }

// NoShare says since when an instance has no share because of a trouble; zero if it never had one.
func NoShare(since time.Time, trouble error) string {
	if since.IsZero() {
		return fmt.Sprintf("no share yet: %v", trouble)
	}
	return fmt.Sprintf("no share since %s: %v", clock(since), trouble)
}

// NoLimit says that a provider has no limit, and what to type. It offers no number: the limit may have been lost, and
// what is offered may be typed.
func NoLimit(provider string) string {
	return fmt.Sprintf("no limit is set: quota-admin set %s LIMITS; quota-admin list shows all", ShellWord(provider))
}

// ShellWord writes text as one word of a command for a POSIX shell.
func ShellWord(text string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-./:@%+=,", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Command returns the command of quota-admin that a problem names first, with what follows it up to
// the next semicolon; "" if it names none. It is what to do about the problem. Where to wait is better than the command,
// it says so first.
func Command(problem string) string {
	at := strings.Index(problem, "quota-admin ")
	if at < 0 {
		return ""
	}
	if strings.HasSuffix(problem[:at], waitOr) {
		at -= len(waitOr)
	}
	command, _, _ := strings.Cut(problem[at:], ";")
	return command
}

// Unsupported says what of the policy of a revision this version cannot obey: what a later version has,
// or what went with an earlier one.
func Unsupported(p *quota.Policy, revision int64) string {
	later := slices.DeleteFunc(p.Unsupported(), func(name string) bool { return slices.Contains(p.Ignored, name) })
	if len(later) == 0 {
		return Went(p, revision)
	}
	return fmt.Sprintf("this version cannot obey the policy (it requires %s): upgrade this program", strings.Join(later, ", "))
}

// Went says what of a policy went with an earlier version, and what instances do instead.
func Went(p *quota.Policy, revision int64) string {
	then := "the rest of it counts"
	if len(p.Unsupported()) > 0 {
		then = "instances of this version issue nothing by it"
	}
	return fmt.Sprintf("the policy (revision %d) has %s, which went with an earlier version: %s; set it again to drop that", revision, strings.Join(p.Ignored, " and "), then)
}

var (
	// ErrAway is the error of an etcd that does not answer.
	ErrAway = errors.New("etcd cannot be reached")
	// ErrDenied is that of one which refuses because of who the program's user is: Admit.
	ErrDenied = errors.New("etcd does not permit it")
	// ErrNoUser is an ErrDenied that no role ends: the program gave no user.
	ErrNoUser = Worded(ErrDenied.Error(), ErrDenied)
	// ErrLogin is an ErrDenied that no role ends: etcd knows no such user by this password.
	ErrLogin = Worded(ErrDenied.Error(), ErrDenied)
	// ErrToken is an ErrDenied that passes: etcd does not know the token of an earlier login any more, and the program
	// logs in again.
	ErrToken = Worded(ErrDenied.Error(), ErrDenied)
)

// Worded returns an error with a text of its own, which errors.Is and errors.As find to be those of is too.
func Worded(text string, is ...error) error { return &worded{text, is} }

// Beside stands between two problems of one line.
const Beside = "; beside that: "

// Together returns an error that is each of those that are not nil, in one line; nil if all are.
func Together(errs ...error) error {
	var texts []string
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	for _, err := range errs {
		texts = append(texts, strings.ReplaceAll(err.Error(), "\n", Beside)) // of errors.Join
	}
	if len(errs) == 0 {
		return nil
	}
	return Worded(strings.Join(texts, Beside), errs...)
}

type worded struct {
	text string
	is   []error
}

func (e *worded) Error() string   { return e.text }
func (e *worded) Unwrap() []error { return e.is }

// GrantRole is what to do where etcd does not let a program's user take part in a provider.
func GrantRole(provider string) string {
	return RoleCommand(provider) + " grants it"
}

// RoleCommand is the command that grants a user the right to take part in a provider.
func RoleCommand(provider string) string { return grantRole + ShellWord(provider) + " --to USER" }

const grantRole = "quota-admin roles consumer "

// Admit is what to do about an error of the kind ErrDenied, for those who see this program only: the command in the error that
// grants a role, if it has one, since what one provider is refused may stop others. A provider named P stands for any.
func Admit(err error, provider string) string {
	switch {
	case errors.Is(err, ErrNoUser):
		return "give this program an etcd user: Username and Password of clientv3.Config, or a client certificate; of quotad --user, or --cert and --key"
	case errors.Is(err, ErrLogin):
		return giveLogin
	case errors.Is(err, ErrToken):
		return "nothing: this program logs in again; if that is refused, " + giveLogin
	}
	if _, after, named := strings.Cut(err.Error(), grantRole); named { // of another provider, perhaps
		return Command(grantRole + after)
	}
	return GrantRole(provider)
}

const giveLogin = "correct the etcd user and the password that this program gives: Username and Password of clientv3.Config; of quotad --user and --password-file"

// Remedy is what to do about an error of etcd's client: LeaveRunning, unless etcd has answered, and refuses.
func Remedy(err error) string {
	if errors.Is(err, ErrDenied) {
		return Admit(err, "P")
	}
	return LeaveRunning
}

// LeaveRunning is what to do about an etcd that does not answer, for those who see this program only.
const LeaveRunning = "leave this program running: it goes on when etcd answers; quota-admin doctor finds the cause"

// Silent says since when etcd has not answered.
func Silent(since time.Time) string { return fmt.Sprintf("no answer from etcd since %s", clock(since)) }

// Clock says that a host's clock is too far off, perhaps.
func Clock(bound, allowed time.Duration) string {
	if bound >= time.Millisecond {
		bound = bound.Round(time.Millisecond)
	}
	return fmt.Sprintf("the host's clock may be off by %v, and the policy allows %v (clock_error)", bound, allowed)
}

// SetClock is what to do about it.
const SetClock = "correct the host's clock, name nearer NTP servers, or raise clock_error"

// Pause says that a provider asked for a pause, why, and how it ends.
func Pause(provider, why string, until time.Time) string {
	return fmt.Sprintf("the provider asked for a pause until %s (%s); quota-admin resume %s ends it", clock(until), why, ShellWord(provider))
}

// OwnPause says that the application paused its limiter.
func OwnPause(until time.Time) string {
	return fmt.Sprintf(ownPause+"%s", clock(until))
}

const ownPause = "this program paused the limiter until "

// EndPause is what to do about the pause that a problem tells of: who asked for it decides.
func EndPause(problem string) string {
	if strings.HasPrefix(problem, ownPause) {
		return "nothing; the program's Resume ends it before"
	}
	return "nothing; if the provider asks for pauses often, lower the limit"
}

// ShadowPause says of a pause, and why it was asked for, that shadow mode does not obey it.
func ShadowPause(why string, until time.Time) string {
	return fmt.Sprintf("%s%s (%s); calls pass", shadowPause, clock(until), why)
}

// InShadow reports whether a problem is a pause that shadow mode does not obey.
func InShadow(problem string) bool { return strings.HasPrefix(problem, shadowPause) }

const shadowPause = "shadow mode: would pause until "

// Withheld says of which long limit nothing more is handed out, of a key or all of it, and why. resumes is when that
// ends (Until) if no operator does anything; zero if that is not known.
func Withheld(limit quota.Limit, ofKey bool, why string, resumes time.Time) string {
	what := limit.String() + " is handed out"
	if ofKey {
		what += " for this key"
	}
	if !resumes.IsZero() {
		what += " until " + Until(limit, Date(resumes))
	}
	return fmt.Sprintf("nothing more of %s, because %s", what, why)
}

// Until says when the withholding of a limit ends. Of one in flight that is the latest instant: it ends with the part of time
// that begins first, and the parts begin at other instants at each instance.
func Until(limit quota.Limit, resumes string) string {
	if limit.InFlight {
		return resumes + " at the latest"
	}
	return resumes
}

// waitOr is before the command in GiveCount of a limit in flight that goes on by itself.
const waitOr = "wait, or to go on sooner give how many calls are open now, those from before the restore included: "

// GiveCount is what to do about a limit of which nothing more is handed out. resumes says that this ends by itself, at an
// instant that is known: to wait for that is best for a limit in flight, as a count that is too low lets calls exceed it.
func GiveCount(provider string, limit quota.Limit, resumes bool) string {
	words := "give the provider's count: "
	switch {
	case limit.InFlight && resumes:
		words = waitOr
	case limit.InFlight:
		words = "give how many calls are open now: "
	}
	return words + giveCount(ShellWord(provider), limit)
}

func giveCount(of string, limit quota.Limit) string {
	return fmt.Sprintf("quota-admin budget %s --used N --limit %s", of, ShellWord(limit.String()))
}

// GiveCountOf is GiveCount of a key, which is given as a word of a command. It warns of --keys-unused: a store that has
// lost its data counts nothing.
func GiveCountOf(provider, key string, limit quota.Limit) string {
	return "give the provider's count: " + giveCount(ShellWord(provider)+" --key "+key, limit) + ", or --keys-unused, but only if etcd counts all that keys have used"
}

// Stopped is what an answer of the provider says that names no limit.
const Stopped = "by an answer that named no limit, such as one with Retry-After"

// Stated says that by the provider's own count nothing is left of a limit or, if it has named none, that it wants a pause.
func Stated(limit string, named bool) string {
	if !named {
		return "the provider wants nothing more of " + limit + " for now, " + Stopped
	}
	return fmt.Sprintf("the provider says that nothing more of %s is left", limit)
}

// PermitsNone says that a limit is 0.
func PermitsNone(limit quota.Limit) string {
	return fmt.Sprintf("the limit of %v permits no call", limit)
}

// Paused says who paused a provider, when and why, as far as that is known, and how it ends.
func Paused(provider, author, reason string, at time.Time) string {
	return fmt.Sprintf("%s; resume with quota-admin resume %s", PausedBy(author, reason, at), ShellWord(provider))
}

// PausedBy is Paused without how it ends.
func PausedBy(author, reason string, at time.Time) string {
	if author == "" || at.IsZero() {
		return "the provider is paused"
	}
	who := fmt.Sprintf("paused by %s at %s", author, at.UTC().Format("15:04 UTC"))
	if reason != "" {
		who += fmt.Sprintf(" (%q)", reason)
	}
	return who
}
