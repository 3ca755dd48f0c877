package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

func TestQuotad(t *testing.T) {
	told := func(text string) *quotadFacts {
		f := &quotadFacts{}
		f.err = json.Unmarshal([]byte(text), f)
		return f
	}
	for _, test := range []struct {
		name  string
		facts *quotadFacts
		want  []string // level, subject and finding
	}{
		{"well", told(`{"version":"devel","providers":[{"provider":"a","state":"active"},{"provider":"b","state":"paused"}]}`), []string{
			"ok s: version devel, with 2 providers"}},
		{"alone", told(`{"version":"v9.9.9","providers":[]}`), []string{
			"note s: runs version v9.9.9, this command is of devel", "ok s: version v9.9.9, with 0 providers"}},
		{"without etcd", told(`{"version":"devel","problem":"a is joining: etcd cannot be reached","providers":[{"provider":"a","state":"joining","problem":"etcd cannot be reached"},{"provider":"b","state":"active","problem":"clock"}]}`), []string{
			"problem a: is joining: etcd cannot be reached", "problem b: says: clock", "problem s: is not ready: a is joining: etcd cannot be reached"}},
		{"starting", told(`{"version":"devel","problem":"a is joining: waits","providers":[{"provider":"a","state":"joining","problem":"waits","open_for":4.9}]}`), []string{
			"note a: is joining: waits", "note s: is not ready: a is joining: waits"}},
		{"starting, without the role", told(`{"version":"devel","problem":"a is joining: denied; quota-admin roles consumer a --to USER grants it","providers":[{"provider":"a","state":"joining","problem":"denied; quota-admin roles consumer a --to USER grants it","open_for":0.1}]}`), []string{
			"problem a: is joining: denied; quota-admin roles consumer a --to USER grants it", "problem s: is not ready: a is joining: denied; quota-admin roles consumer a --to USER grants it"}},
		{"starting for long", told(`{"version":"devel","problem":"a is joining: waits","providers":[{"provider":"a","state":"joining","problem":"waits","open_for":5.1}]}`), []string{
			"problem a: is joining: waits", "problem s: is not ready: a is joining: waits"}},
		{"forbidden", &quotadFacts{err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}}, []string{
			"problem s: this user may not connect"}},
		{"away", &quotadFacts{err: errors.New("connection refused")}, []string{"problem s: gives no answer: connection refused"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c Chart
			judgeQuotad(&c, "s", test.facts, func(provider string, open float64) bool { return starts(t.Context(), nil, provider, open) })
			var got []string
			for _, f := range c {
				got = append(got, f.Level+" "+f.Subject+": "+f.Finding)
				if (f.Mend == "") != (f.Level == ok) {
					t.Errorf("%s: mend %q", f.Finding, f.Mend)
				}
			}
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got %q\nwant %q", got, test.want)
			}
		})
	}
}

// What to do is the command that quotad's problem names.
func TestDoIsTheCommandThatTheProblemNames(t *testing.T) {
	f := &quotadFacts{}
	if err := json.Unmarshal([]byte(`{"version":"devel","problem":"a is joining: no limit is set: quota-admin set a LIMITS; quota-admin list shows all","providers":[
		{"provider":"a","state":"joining","problem":"no limit is set: quota-admin set a LIMITS; quota-admin list shows all"},
		{"provider":"b","state":"active","problem":"nothing more of 9/h is handed out; give the provider's count: quota-admin budget b --used N --limit 9/h"}]}`), f); err != nil {
		t.Fatal(err)
	}
	var c Chart
	judgeQuotad(&c, "s", f, func(string, float64) bool { return false })
	var got []string
	for _, f := range c {
		got = append(got, f.Mend)
	}
	if want := []string{"quota-admin set a LIMITS", "quota-admin budget b --used N --limit 9/h", "quota-admin set a LIMITS"}; !slices.Equal(got, want) {
		t.Errorf("do: %q\nwant %q", got, want)
	}
	fleet := workers(func(i *protocol.InstanceStatus) { i.Report.Problem = cause.NoLimit("p") })
	c = nil
	judgeFleet(&c, fleet, now, nil, absence{})
	if len(c) != 1 || c[0].Mend != "quota-admin set p LIMITS" {
		t.Errorf("of an instance: %+v", c)
	}
}

// known are policies, by provider.
type known map[string]quota.Policy

func (k known) Get(_ context.Context, provider string) (admin.Stored, error) {
	p, ok := k[provider]
	if !ok {
		return admin.Stored{}, errors.New("etcd does not answer")
	}
	return admin.Stored{Provider: provider, Policy: p}, nil
}

// A provider may join for its settle time and two windows; by default 5 s.
func TestAStartTakesAsLongAsThePolicySays(t *testing.T) {
	all := known{
		"minutes": {Timing: quota.Timing{Settle: 10 * time.Second}, Limits: []quota.Limit{{Permits: 1, Window: time.Second}, {Permits: 5, Window: time.Minute}}},
		"quick":   {Timing: quota.Timing{Settle: time.Second}, Limits: []quota.Limit{{Permits: 1, Window: 100 * time.Millisecond}}},
	}
	for _, test := range []struct {
		provider string
		open     float64 // seconds
		want     bool
	}{
		{"minutes", 129, true}, {"minutes", 131, false}, {"quick", 1.1, true}, {"quick", 3.1, false},
		{"unknown", 4.9, true}, {"unknown", 5.1, false}, {"unknown", 0, false}, // an older quotad
	} {
		if got := starts(t.Context(), all, test.provider, test.open); got != test.want {
			t.Errorf("%s after %v s: %v", test.provider, test.open, got)
		}
	}
}

// What answers at the socket may be anything.
func TestQuotadIsRead(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan string, 1)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := <-answer
		if text == "busy" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = w.Write([]byte(text))
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	for text, want := range map[string]string{
		`{"version":"devel","providers":[]}`: "version devel, with 0 providers",
		"busy":                               "gives no answer: 429 Too Many Requests: busy",
		"<html>":                             "gives no answer: invalid character",
	} {
		answer <- text
		var c Chart
		c.Quotad(t.Context(), socket, time.Minute, nil)
		if len(c) != 1 || !strings.HasPrefix(c[0].Finding, want) {
			t.Errorf("%s: %+v", text, c)
		}
	}
	var c Chart
	c.Quotad(t.Context(), socket+"2", time.Minute, nil)
	if len(c) != 1 || c[0].Level != problem || !strings.Contains(c[0].Finding, "no such file") {
		t.Errorf("%+v", c)
	}
}
