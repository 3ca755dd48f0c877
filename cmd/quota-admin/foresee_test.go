package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/dashboard"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// pageOf serves an answer in place of a dashboard, and tells what it was asked.
func pageOf(t *testing.T, status int, answer string) (address string, asked func() string) {
	t.Helper()
	var last string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = r.URL.String() + " " + r.Header.Get("Authorization")
		if status == http.StatusFound {
			w.Header().Set("Location", "/login")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() string { return last }
}

// revisionOfPolicy is the revision that get shows.
func revisionOfPolicy(b *bench, provider string) int64 {
	b.t.Helper()
	stdout, _ := b.want(exitDone, "get", provider, "-o", "json")
	var got storedJSON
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		b.t.Fatal(err)
	}
	return got.Revision
}

// A dry run says what the page's preview says, by the memory of a real dashboard.
func TestADryRunForeseesRefusals(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	s := newSite(t, dashboardFlags{}) // read-only
	b := s.bench
	b.want(exitDone, "set", "p", "100/s", "--settle", "1s")
	go s.page.Follow(t.Context())
	for _, l := range b.join(server, "p", 1) {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the dashboard remembers", func() bool {
			l.TryTake(10)
			stdout, stderr := b.want(exitDone, "set", "p", "50/s", "--dry-run", "--dashboard", s.server.URL)
			return strings.Contains(stdout, " permits asked for in the last ") && strings.Contains(stdout, "; 50/s would have refused about ") && strings.Contains(stderr, "nothing was written")
		})
	}
	b.env[envDashboard] = s.server.URL
	stdout, _ := b.want(exitDone, "set", "p", "50/s", "--dry-run", "-o", "json")
	var r editResult
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Foreseen == nil || r.Foreseen.Limits != "50/s" || r.Foreseen.Known < 1 || r.Foreseen.Problem != "" {
		t.Errorf("%v: %s", err, stdout)
	}
	// A change is not held up by the variable, and asks nobody.
	if stdout, _ := b.want(exitDone, "set", "p", "50/s"); strings.Contains(stdout, "refused") {
		t.Error(stdout)
	}
}

// The answer is shown, with what is wrong with it.
func TestWhatADashboardAnswers(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s")
	revision := revisionOfPolicy(b, "p")
	good := func(revision int64, limits string, known int) string {
		return fmt.Sprintf(`{"policy_revision":%d,"limits":%q,"known_seconds":%d,"asked":500,"refused":20,"would_refuse":300,"text":"\u001b[31mnot this"}`, revision, limits, known)
	}
	const told = "Of 500 permits asked for in the last 15m0s that the dashboard knows, 20 were refused; 50/s would have refused about 300, if callers had asked for the same.\n"
	for name, c := range map[string]struct {
		answer         string
		stdout, stderr string
	}{
		"all":              {good(revision, "50/s", 900), told, ""},
		"another revision": {good(revision+7, "50/s", 900), told, fmt.Sprintf("knows p at revision %d, not %d", revision+7, revision)},
		"no provider":      {`{"policy_revision":0}`, "", "the dashboard does not remember p"},
		"no second":        {good(revision, "50/s", 0), "", "knows no second of p yet"},
		"long limits":      {good(revision, "", 0), "", "limits of more than a minute are not compared"},
	} {
		address, asked := pageOf(t, http.StatusOK, c.answer)
		stdout, stderr := b.want(exitDone, "set", "p", "50/s", "--dry-run", "--dashboard", address)
		if !strings.Contains(stdout, c.stdout) || strings.Contains(stdout, "not this") || c.stdout == "" && strings.Contains(stdout, "asked for") {
			t.Errorf("%s: %s", name, stdout)
		}
		if !strings.Contains(stderr, c.stderr) || c.stderr == "" && strings.Count(stderr, "\n") != 2 || strings.Contains(stderr, foreseeHint) {
			t.Errorf("%s: %s", name, stderr)
		}
		if got := asked(); got != "/api/foresee?limits=50%2Fs&provider=p " {
			t.Errorf("%s: it was asked %q", name, got)
		}
	}
}

// Without an answer a dry run fails only where the user of this run asked for one.
func TestADryRunWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s")
	b.want(exitDone, "set", "q", "100/s")
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, c := range map[string]struct {
		status       int
		answer, want string
	}{
		"away":       {0, "", "does not answer: dial tcp"},
		"no login":   {401, `{"error":"log in with your token"}`, "refuses: log in with your token; give it by " + envToken},
		"no right":   {403, `{"error":"connect through the proxy"}`, "refuses: connect through the proxy"},
		"a login":    {302, "", "a proxy asks people to log in"},
		"a web site": {200, "<html>", "gives an answer that cannot be read"},
		"nonsense":   {200, `{"policy_revision":1,"asked":1,"would_refuse":2}`, "gives an answer that cannot be read"},
		"negative":   {200, `{"policy_revision":1,"known_seconds":-1}`, "gives an answer that cannot be read"},
		"too long":   {200, `{"text":"` + strings.Repeat("x", 2*answerAtMost) + `"}`, "gives an answer that cannot be read"},
		"an old one": {404, "404 page not found", "HTTP status 404 Not Found: is it a dashboard of this version?"},
	} {
		address := gone.URL
		if c.status != 0 {
			address, _ = pageOf(t, c.status, c.answer)
		}
		delete(b.env, envDashboard)
		stdout, stderr := b.want(exitFailed, "set", "p", "50/s", "--dry-run", "--dashboard", address)
		if !strings.Contains(stdout, "100/s -> 50/s") || !strings.Contains(stderr, "quota-admin: the dashboard at "+address+" ") || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: %s%s", name, stdout, stderr)
		}
		b.env[envDashboard] = address
		_, stderr = b.want(exitDone, "set", "p", "50/s", "--dry-run")
		if !strings.Contains(stderr, "would have refused is not known: the dashboard at "+address) || !strings.Contains(stderr, c.want) {
			t.Errorf("%s, by the environment: %s", name, stderr)
		}
	}
	// Of several providers one line is enough.
	b.stdin = strings.NewReader("policies: {p: {limits: 50/s}, q: {limits: 60/s}}\n")
	if _, stderr := b.want(exitDone, "apply", "-f", "-", "--dry-run"); strings.Count(stderr, "is not known") != 1 {
		t.Error(stderr)
	}
	b.env[envDashboard] = "dashboard.example.com"
	if _, stderr := b.want(exitDone, "set", "p", "50/s", "--dry-run"); !strings.Contains(stderr, "is not known: QUOTIENT_DASHBOARD: write the address of the page") {
		t.Error(stderr)
	}
	// A user may switch the variable off, and is told once how to get an answer.
	if _, stderr := b.want(exitDone, "set", "p", "50/s", "--dry-run", "--dashboard", ""); strings.Count(stderr, foreseeHint) != 1 || strings.Contains(stderr, "not known") {
		t.Error(stderr)
	}
	for _, args := range []string{"set p 100/s --settle 5s --dry-run", "set new 5/s --dry-run"} { // no other limits, no past
		delete(b.env, envDashboard)
		if _, stderr := b.want(exitDone, strings.Fields(args)...); strings.Contains(stderr, foreseeHint) {
			t.Errorf("%s: %s", args, stderr)
		}
	}
}

// A token is sent where nobody reads along, and stands in no message.
func TestTheTokenOfADashboard(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s")
	address, asked := pageOf(t, http.StatusOK, `{"policy_revision":1}`)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("ann 0123456789-of-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.env[envToken] = "0123456789-of-the-variable"
	for _, c := range []struct{ args, token string }{{"", "0123456789-of-the-variable"}, {" --dashboard-token-file " + file, "0123456789-of-the-file"}} {
		b.want(exitDone, strings.Fields("set p 50/s --dry-run --dashboard "+address+c.args)...)
		if got := asked(); !strings.HasSuffix(got, " Bearer "+c.token) {
			t.Errorf("with %q it was asked %q", c.args, got)
		}
	}
	for args, want := range map[string]string{
		"--dry-run --dashboard http://quota.example.com":                     "the token could be read on the way",
		"--dry-run --dashboard http://127.0.0.1:8686/#token=0123456789":      "write the address alone",
		"--dry-run --dashboard http://ann:0123456789@127.0.0.1:8686":         "write the address alone",
		"--dry-run --dashboard ftp://127.0.0.1":                              "write the address of the page",
		"--dry-run --dashboard http://0123456789:x":                          "write the address of the page",
		"--dry-run --dashboard https://a.test --dashboard-token-file absent": "no such file",
		"--dry-run --dashboard-token-file absent":                            "without --dashboard",
		"--dashboard https://a.test":                                         "give --dry-run",
	} {
		if _, stderr := b.want(exitUsage, strings.Fields("set p 50/s "+args)...); !strings.Contains(stderr, want) || strings.Contains(stderr, "0123456789") {
			t.Errorf("%s: %s", args, stderr)
		}
	}
	b.env[envToken] = "ann 0123456789-of-ann\nbob 0123456789-of-bob\n"
	if _, stderr := b.want(exitUsage, "set", "p", "50/s", "--dry-run", "--dashboard", address); !strings.Contains(stderr, "more than one token") || strings.Contains(stderr, "0123456789") {
		t.Error(stderr)
	}
	if stdout, _ := b.want(exitDone, "get", "p"); !strings.Contains(stdout, "100/s") {
		t.Errorf("something was written: %s", stdout)
	}
}

// A dashboard's certificate may be signed by the authority that etcd's is signed by.
func TestTheCertificateOfADashboard(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"policy_revision":1}`) }))
	t.Cleanup(s.Close)
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s")
	args := []string{"set", "p", "50/s", "--dry-run", "--dashboard", s.URL}
	if _, stderr := b.want(exitFailed, args...); !strings.Contains(stderr, "does not answer: tls: failed to verify certificate") {
		t.Error(stderr)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &foreseer{}
	var err error
	if f.page, err = url.Parse(s.URL); err != nil {
		t.Fatal(err)
	}
	if known, err := f.ask(t.Context(), &etcdflags.Flags{CACert: file, CommandTimeout: time.Minute}, "p", "50/s"); err != nil || known.Revision != 1 {
		t.Errorf("%+v, %v", known, err)
	}
}

// The page asks by the same endpoint, and is told what is wrong with its question.
func TestAQuestionOfThePast(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboardFlags{})
	for query, want := range map[string]string{
		"provider=p&limits=5/s":         `200 {"policy_revision":0,"limits":"5/s","known_seconds":0,`,
		"provider=p&limits=many":        `400 {"error":"limits: `,
		"provider=p":                    `400 {"error":"limits: `,
		"provider=../policy&limits=5/s": `400 {"error":`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+dashboard.ForeseePath+"?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := s.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if got := fmt.Sprintf("%d %s", a.StatusCode, text); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, %v", query, got, err)
		}
	}
}
