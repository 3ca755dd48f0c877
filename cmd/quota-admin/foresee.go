package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/dashboard"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/webguard"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/quota"
)

// envDashboard holds what --dashboard does.
const envDashboard = "QUOTIENT_DASHBOARD"

const foreseeHint = "--dashboard URL, or " + envDashboard + ", adds what the last 15 minutes would have refused"

// foreseer asks a dashboard what a change would have refused: it has a memory, and a command
// has none.
type foreseer struct {
	cmd                *cobra.Command
	address, tokenFile string
	token              string
	page               *url.URL // nil: no dashboard is asked
	hint               bool     // one could have told
}

// foreseenJSON is what a dry run knows of the last minutes.
type foreseenJSON struct {
	live.Foresight
	Problem string `json:"problem,omitempty"` // why little or nothing is known
}

func foreseesBy(cmd *cobra.Command) *foreseer {
	f := &foreseer{cmd: cmd}
	cmd.Flags().StringVar(&f.address, "dashboard", "", "with --dry-run: `URL` of a dashboard, to show what the last 15 minutes would have refused [env "+envDashboard+"]")
	cmd.Flags().StringVar(&f.tokenFile, "dashboard-token-file", "", "`file` that holds your token, where the dashboard requires a login; or "+envToken)
	_ = cmd.RegisterFlagCompletionFunc("dashboard", cobra.FixedCompletions([]string{"http://" + defaultDashboard, "https://"}, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// asked reports whether the user of this run wants an answer, not only the environment.
func (f *foreseer) asked() bool {
	return f.cmd.Flags().Changed("dashboard") && f.address != "" || f.cmd.Flags().Changed("dashboard-token-file")
}

// plan finds out whom to ask. An error says what is wrong with a flag or a variable.
func (f *foreseer) plan(env func(string) string, dryRun bool) (err error) {
	if !dryRun {
		if f.asked() {
			return usageError(f.cmd, "--dashboard is asked by a dry run only: give --dry-run")
		}
		return nil
	}
	source := "--dashboard"
	if !f.cmd.Flags().Changed("dashboard") {
		f.address, source = env(envDashboard), envDashboard
	}
	if f.address == "" {
		if f.tokenFile != "" {
			return usageError(f.cmd, "--dashboard-token-file is given without --dashboard")
		}
		return nil
	}
	secret, where := env(envToken), envToken
	if f.tokenFile != "" {
		where = "--dashboard-token-file"
		if secret, err = etcdflags.ReadSecret(f.tokenFile); err != nil {
			return usageError(f.cmd, "%s: %v", where, err)
		}
	}
	words := strings.Fields(secret)
	if len(words) > 0 {
		f.token = words[len(words)-1]
	}
	// The address is not repeated: it may hold a token.
	page, err := url.Parse(f.address)
	switch {
	case err != nil || page.Host == "" || page.Scheme != "http" && page.Scheme != "https":
		return usageError(f.cmd, "%s: write the address of the page, as in https://quota.example.com:8686", source)
	case page.User != nil || page.Fragment != "" || page.RawQuery != "":
		return usageError(f.cmd, "%s: write the address alone; a token belongs in %s or --dashboard-token-file", source, envToken)
	case len(words) > 2:
		return usageError(f.cmd, "%s: has more than one token; write your own TOKEN, or NAME TOKEN", where)
	case f.token != "" && page.Scheme == "http" && !webguard.Loopback(net.JoinHostPort(page.Hostname(), "0")):
		return usageError(f.cmd, "%s: the token could be read on the way; write https://", source)
	}
	f.page = page
	return nil
}

// foresee fills in what the last minutes would have refused, as far as a dashboard answers. It
// returns an error only where the user asked for that by a flag.
func (e *edit) foresee(ctx context.Context, results []*editResult, unplanned error) error {
	f := e.foreseer
	for _, r := range results {
		now := time.Now()
		old, limits := change.InForce(r.old.Policy, now), change.InForce(r.new.Policy, later(now, e.at))
		if !r.changed || len(old) == 0 || len(limits) == 0 || r.new.Policy.Mode == quota.ModePause {
			continue
		}
		if f.page == nil && unplanned == nil {
			f.hint = f.hint || !slices.Equal(old, limits)
			continue
		}
		known, problem := dashboard.Foreseen{}, unplanned
		if problem == nil {
			known, problem = f.ask(ctx, e.a.etcd, r.Provider, quota.FormatLimits(limits))
		}
		switch {
		case problem != nil && f.asked():
			return problem
		case problem != nil: // the same for all
			r.Foreseen = &foreseenJSON{Problem: "what the last 15 minutes would have refused is not known: " + format.OneLine(problem)}
			return nil
		}
		r.Foreseen = &foreseenJSON{known.Foresight, lacking(known, r.old)}
	}
	return nil
}

// lacking says why an answer tells little or nothing; "" if it does not.
func lacking(known dashboard.Foreseen, s coordinator.Stored) string {
	switch {
	case known.Revision == 0:
		return fmt.Sprintf("the dashboard does not remember %s: it does so for the first %d providers by name, and for those whose page is open", s.Provider, dashboard.ReadAtMost)
	case known.Revision != s.Revision:
		return fmt.Sprintf("the dashboard knows %s at revision %d, not %d: it is some seconds behind, or reads another etcd", s.Provider, known.Revision, s.Revision)
	case known.Limits == "":
		return "limits of more than a minute are not compared with the last 15 minutes; budget shows them"
	case known.Known == 0:
		return "the dashboard knows no second of " + s.Provider + " yet: it needs 40 s after its start, or after instances came"
	}
	return ""
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// tell writes the comparison as the page does, and what is wrong with it.
func (f *foreseenJSON) tell(a *app, provider string, several bool) {
	prefix := ""
	if several {
		prefix = provider + ": "
	}
	if text := f.String(); text != "" {
		fmt.Fprintln(a.stdout, format.Clean(prefix+text))
	}
	if f.Problem != "" {
		a.note("%s%s", prefix, f.Problem)
	}
}

// answerAtMost bounds what is read of an answer, in bytes.
const answerAtMost = 16 << 10

// ask asks the dashboard. Errors name it.
func (f *foreseer) ask(ctx context.Context, etcd *etcdflags.Flags, provider, limits string) (known dashboard.Foreseen, err error) {
	name := "the dashboard at " + f.page.Scheme + "://" + f.page.Host
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	if transport.TLSClientConfig, err = dashboardTLS(etcd.CACert); err != nil {
		return known, fmt.Errorf("--cacert: %w", err)
	}
	// A proxy's page of login is no answer, and the token is for nobody else.
	client := http.Client{Transport: transport, Timeout: etcd.CommandTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	to := f.page.JoinPath(dashboard.ForeseePath)
	to.RawQuery = url.Values{"provider": {provider}, "limits": {limits}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return known, fmt.Errorf("%s cannot be asked: %w", name, err)
	}
	if f.token != "" {
		r.Header.Set("Authorization", "Bearer "+f.token)
	}
	answer, err := client.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if err != nil {
		return known, errors.New(name + " does not answer: " + err.Error()) // no timeout of etcd's
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, answerAtMost))
	if err != nil {
		return known, errors.New(name + " stopped in its answer: " + err.Error())
	}
	if answer.StatusCode != http.StatusOK {
		return known, f.refusal(name, answer, text)
	}
	if json.Unmarshal(text, &known) != nil || min(known.Known, known.Asked, known.Refused, known.Would, float64(known.Revision)) < 0 || known.Would > known.Asked {
		return dashboard.Foreseen{}, fmt.Errorf("%s gives an answer that cannot be read: is it a dashboard of this version?", name)
	}
	return known, nil
}

// refusal says what an answer other than 200 means.
func (f *foreseer) refusal(name string, answer *http.Response, text []byte) error {
	var said struct{ Error string }
	_ = json.Unmarshal(text, &said) // others than a dashboard say nothing
	why := cmp.Or(said.Error, "HTTP status "+answer.Status)
	switch {
	case answer.StatusCode == http.StatusUnauthorized && f.token == "":
		why += "; give it by " + envToken + " or --dashboard-token-file"
	case answer.StatusCode/100 == 3:
		why += ": a proxy asks people to log in; ask the dashboard behind it"
	case answer.StatusCode == http.StatusNotFound && said.Error == "":
		why += ": is it a dashboard of this version?"
	}
	return fmt.Errorf("%s refuses: %s", name, why)
}

// dashboardTLS trusts what this machine trusts, and the certificates of --cacert.
func dashboardTLS(cacert string) (*tls.Config, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if cacert != "" {
		text, err := os.ReadFile(cacert)
		if err != nil {
			return nil, err
		}
		pool.AppendCertsFromPEM(text) // etcd's client has refused a file without any
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, nil
}
