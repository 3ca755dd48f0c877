package config

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/testkit/golden"
	"github.com/quotient-limiter/quotient/quota"
)

func noEnv(string) string { return "" }

func TestDefaults(t *testing.T) {
	c, err := ParseFlags(nil, noEnv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Limits) != 1 || c.Limits[0] != (quota.Limit{Permits: 300000, Window: time.Second}) ||
		c.Instances != 20 || c.Duration != 10*time.Second || c.Demand != 1.5 ||
		c.Arrival != "steady" || !c.Spread.Even() || c.MaxWait != 100*time.Millisecond ||
		c.Settle != 3*time.Second || c.policy.Outage != quota.OutageHold || !c.Embedded {
		t.Errorf("%+v", c)
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if _, err := ParseFlags([]string{"--help"}, noEnv, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	golden.Check(t, "help.golden", out.String())
	out.Reset()
	if _, err := ParseFlags([]string{"--version"}, noEnv, &out); !errors.Is(err, pflag.ErrHelp) || out.String() != "loadgen "+buildinfo.Version()+"\n" {
		t.Errorf("--version: %v, %q", err, out.String())
	}
}

func TestChangesAreInOrder(t *testing.T) {
	c, err := ParseFlags([]string{"--change", "5s=2/s", "--change", "1s=1/s,100/1m"}, noEnv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Changes) != 2 || c.Changes[0].At != time.Second || c.Changes[1].Limits[0].Permits != 2 || c.Longest() != time.Minute {
		t.Errorf("%+v", c.Changes)
	}
}

// The embedded etcd is the default only where nobody names another. Flags that are for it win over the environment.
func TestEndpointsFromTheEnvironment(t *testing.T) {
	env := func(name string) string {
		if name == "QUOTIENT_ENDPOINTS" {
			return "10.0.0.1:2379"
		}
		return ""
	}
	c, err := ParseFlags(nil, env, io.Discard)
	if err != nil || c.Embedded || c.Etcd.Endpoints[0] != "10.0.0.1:2379" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, own := range [][]string{{"--etcd-members", "3"}, {"--fault", "5s=kill-leader"}} {
		if c, err := ParseFlags(own, env, io.Discard); err != nil || !c.Embedded {
			t.Errorf("%q ask for an etcd of its own, whatever the environment names: %+v, %v", own, c, err)
		}
		if _, err := ParseFlags(append(own, "--endpoints", "10.0.0.1:2379"), noEnv, io.Discard); err == nil || !strings.Contains(err.Error(), "leave them out, or --endpoints") {
			t.Errorf("%q for an etcd that --endpoints names: %v", own, err)
		}
	}
}

// Every settle time within bounds makes a policy that instances apply.
func TestPoliciesFitTheirSettleTime(t *testing.T) {
	for _, settle := range []string{"100ms", "500ms", "1s", "2999ms", "3s", "10s", "1m"} {
		if _, err := ParseFlags([]string{"--settle", settle}, noEnv, io.Discard); err != nil {
			t.Errorf("%s: %v", settle, err)
		}
	}
}
