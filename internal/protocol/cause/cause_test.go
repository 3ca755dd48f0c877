package cause_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// The sentences, as somebody has read them.
func TestSentences(t *testing.T) {
	at, none := time.Date(2027, 1, 1, 15, 4, 5, 999, time.UTC), time.Time{}
	hour, resumes := quota.Limit{Permits: 5000, Window: time.Hour}, time.Date(2026, 11, 29, 15, 36, 0, 0, time.UTC)
	flight := quota.Limit{Permits: 20, Window: time.Minute, InFlight: true}
	sliding := hour
	sliding.Sliding = true
	for got, want := range map[string]string{
		cause.Debt(17500, at):                                "an earlier call cost more than it reserved; 17500 of that are still to be paid, by about 2027-01-01 15:04:05 UTC",
		cause.Debt(9, at.Add(-2000)):                         "an earlier call cost more than it reserved; 9 of that are still to be paid, by about 2027-01-01 15:04:05 UTC",
		cause.Silent(at.Add(-2000)):                          "no answer from etcd since 15:04:05 UTC",
		cause.Debt(1, none):                                  "an earlier call cost more than it reserved; 1 of that are still to be paid",
		cause.Joined(at, at.Add(4*time.Second), time.Second): "this instance joined at 15:04:05 UTC; its share begins at 15:04:09 UTC, with the first window after the settle time (1s)",
		cause.Joined(at, none, 3*time.Second):                "this instance joined at 15:04:05 UTC; its share begins with the first window after the settle time (3s)",
		cause.StartedOver(at, none, 3*time.Second):           "this instance started over at 15:04:05 UTC; its share begins with the first window after the settle time (3s)",
		cause.KeysBegin(at, 3*time.Second):                   "the limits by key are new; they begin at 15:04:05 UTC, with the first windows after the settle time (3s)",
		cause.Owned(3 * time.Second):                         "this instance has owned the key for less than the settle time (3s)",
		cause.NewWindow("10s", at):                           "this instance's share of the new window (10s) begins at 15:04:05 UTC",
		cause.Begins(at):                                     "the policy begins at 2027-01-01 15:04:05 UTC",
		cause.NoShare(at, errors.New("its lease ended")):     "no share since 15:04:05 UTC: its lease ended",
		cause.NoShare(none, errors.New("etcd is away")):      "no share yet: etcd is away",
		cause.NoLimit("p"):                                   "no limit is set: quota-admin set p LIMITS; quota-admin list shows all",
		cause.NoLimit("demo api"):                            "no limit is set: quota-admin set 'demo api' LIMITS; quota-admin list shows all",
		cause.LostLimit("demo api", "5/s"):                   "no limit is set any more; it was 5/s: quota-admin history 'demo api' tells who deleted it, and if that is empty, etcd has lost its data: quota-admin apply -f EXPORT --withhold, with the file of your last quota-admin export",
		cause.Pause("demo api", "429 from api", at):          "the provider asked for a pause until 15:04:05 UTC (429 from api); quota-admin resume 'demo api' ends it",
		cause.Paused("demo api", "ann", "", at):              "paused by ann at 15:04 UTC; resume with quota-admin resume 'demo api'",
		cause.GiveCountOf("demo api", "'a b'", hour):         "give the provider's count: quota-admin budget 'demo api' --key 'a b' --used N --limit 5000/h, or --keys-unused, but only if etcd counts all that keys have used",
		cause.LostLimit("p", "5000/h"):                       "no limit is set any more; it was 5000/h: quota-admin history p tells who deleted it, and if that is empty, etcd has lost its data: quota-admin apply -f EXPORT --withhold, with the file of your last quota-admin export",
		cause.Unsupported(&quota.Policy{Requires: []string{"x", "y"}, Ignored: []string{"share weighted"}}, 7): "this version cannot obey the policy (it requires x, y): upgrade this program",
		cause.Unsupported(&quota.Policy{Ignored: []string{"share weighted", "weights"}}, 7):                    "the policy (revision 7) has share weighted and weights, which went with an earlier version: instances of this version issue nothing by it; set it again to drop that",
		cause.Went(&quota.Policy{Ignored: []string{"guard auto (now 50ms)"}}, 7):                               "the policy (revision 7) has guard auto (now 50ms), which went with an earlier version: the rest of it counts; set it again to drop that",
		cause.Silent(at): "no answer from etcd since 15:04:05 UTC",
		cause.Clock(80_400_000, 50*time.Millisecond):                                       "the host's clock may be off by 80ms, and the policy allows 50ms (clock_error)",
		cause.Pause("p", "429 from api", at):                                               "the provider asked for a pause until 15:04:05 UTC (429 from api); quota-admin resume p ends it",
		cause.OwnPause(at):                                                                 "this program paused the limiter until 15:04:05 UTC",
		cause.Paused("p", "ann", "it is down", at):                                         `paused by ann at 15:04 UTC ("it is down"); resume with quota-admin resume p`,
		cause.Withheld(hour, false, "etcd was restored", resumes):                          "nothing more of 5000/h is handed out until 2026-11-29 15:36:00 UTC, because etcd was restored",
		cause.Withheld(hour, true, "etcd was restored", resumes):                           "nothing more of 5000/h is handed out for this key until 2026-11-29 15:36:00 UTC, because etcd was restored",
		cause.GiveCount("p", hour, true):                                                   "give the provider's count: quota-admin budget p --used N --limit 5000/h",
		cause.Withheld(sliding, false, "etcd was restored", resumes):                       "nothing more of 5000/h sliding is handed out until 2026-11-29 15:36:00 UTC, because etcd was restored",
		cause.Withheld(sliding, true, "etcd was restored", time.Time{}):                    "nothing more of 5000/h sliding is handed out for this key, because etcd was restored",
		cause.GiveCount("p", flight, true):                                                 "wait, or to go on sooner give how many calls are open now, those from before the restore included: quota-admin budget p --used N --limit '20 inflight hold=1m'",
		cause.GiveCount("p", flight, false):                                                "give how many calls are open now: quota-admin budget p --used N --limit '20 inflight hold=1m'",
		cause.Command("nothing more of it; " + cause.GiveCount("p", flight, true)):         cause.GiveCount("p", flight, true),
		cause.Command("nothing more of it; " + cause.GiveCount("p", hour, true) + "; and"): "quota-admin budget p --used N --limit 5000/h",
		cause.GiveCount("p", sliding, true):                                                "give the provider's count: quota-admin budget p --used N --limit '5000/h sliding'",
		cause.GiveCountOf("p", "'a b'", hour):                                              "give the provider's count: quota-admin budget p --key 'a b' --used N --limit 5000/h, or --keys-unused, but only if etcd counts all that keys have used",
		cause.Withheld(flight, false, "etcd was restored", resumes):                        "nothing more of 20 inflight hold=1m is handed out until 2026-11-29 15:36:00 UTC at the latest, because etcd was restored",
		cause.PausedBy("ann", "it is down", at):                                            `paused by ann at 15:04 UTC ("it is down")`,
		cause.PermitsNone(quota.Limit{Window: time.Second}):                                "the limit of 0/s permits no call",
		cause.Paused("p", "", "", none):                                                    "the provider is paused; resume with quota-admin resume p",
		cause.Admit(cause.ErrDenied, "p"):                                                  "quota-admin roles consumer p --to USER grants it",
		cause.Admit(fmt.Errorf("x: quota-admin doctor; %s; y", cause.GrantRole("q")), "p"): "quota-admin roles consumer q --to USER grants it",
		cause.Says(quota.StateActive, 3, "x"):                                              "pays a debt: x",
		cause.Says(quota.StateJoining, 3, ""):                                              "is joining",
		cause.Says("", 0, "x"):                                                             "is closed: x",
	} {
		if got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
}

// Several errors are told in one line, and are each of them.
func TestTogether(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	if err := cause.Together(a, nil, b); err.Error() != "a; beside that: b" || !errors.Is(err, a) || !errors.Is(err, b) {
		t.Errorf("%v", err)
	}
	if err := cause.Together(nil, nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}

// Each reason is there once, and an unknown one has a title too.
func TestOf(t *testing.T) {
	for _, c := range cause.All {
		if of := cause.Of(c.Reason); of != c || c.Title == "" || c.Word == "" {
			t.Errorf("%+v is found for %+v", of, c)
		}
	}
	if of := cause.Of("other"); of.Title == "" || of.Limit {
		t.Errorf("%+v", of)
	}
}
