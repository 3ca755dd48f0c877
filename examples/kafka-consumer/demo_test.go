package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/examples/kafka-consumer/provider"
)

// The consumers of a demonstration are this very program.
func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// The whole demonstration, with one consumer killed, one added, and a provider
// that asks for a pause. The windows and the guard are long: a machine that is
// busy with other tests delays calls on their way.
func TestDemonstrationHolds(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	status := run(t.Context(), []string{"--records", "4000", "--limit", "2000/2s", "--guard", "600ms", "--poison", "500"}, &out, &errs)
	if status != exitHeld {
		t.Errorf("status %d: %s\n%s", status, &errs, &out)
	}
	for _, want := range []string{"consumer-1 is killed", "another consumer joins", "answers 429", "dead letters           8", "lost                   0", "HELD: 0 of 4000"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		r    result
		held bool
	}{
		"all processed":      {result{produced: 10, provider: provider.Totals{Processed: 9}, dead: 1}, true},
		"processed again":    {result{produced: 10, provider: provider.Totals{Processed: 10, Repeated: 3}}, true},
		"one lost":           {result{produced: 10, provider: provider.Totals{Processed: 8}, dead: 1}, false},
		"provider over":      {result{produced: 10, provider: provider.Totals{Processed: 10, Over: 1}}, false},
		"nothing was there":  {result{}, false},
		"lost, but repeated": {result{produced: 10, provider: provider.Totals{Processed: 9, Repeated: 1}}, false},
	} {
		if got := test.r.held(); got != test.held {
			t.Errorf("%s: held is %v", name, got)
		}
	}
}

func TestFlagsAreChecked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, want string }{
		{"--consume", "--consume needs --brokers"},
		{"--consume --brokers a:1 --topic t --provider p", "--consume needs --provider-url"},
		{"--limit 5", "--limit"},
		{"--limit 500/2s,100/1m", "--limit"},
		{"--batch 5 --provider-url http://a", "--batch 5"},
		{"--provider-url ftp://a", "--provider-url"},
		{"--brokers-cacert x", "give --brokers too"},
		{"--brokers a:1 --brokers-cert x", "belong together"},
		{"--cacert x", "give --endpoints too"},
		{"--records 0", "--records is 0"},
		{"--demand 0", "--demand"},
		{"--guard -1s", "cannot be negative"},
		{"extra", `argument "extra"`},
		{"--what", "unknown flag"},
	} {
		var errs bytes.Buffer
		if status := run(t.Context(), strings.Fields(test.args), &bytes.Buffer{}, &errs); status != exitUsage || !strings.Contains(errs.String(), test.want) {
			t.Errorf("%s: status %d, %s", test.args, status, &errs)
		}
	}
	var help bytes.Buffer
	if run(t.Context(), []string{"--help"}, &help, &help) != exitHeld || !strings.Contains(help.String(), "--brokers-tls") {
		t.Errorf("help: %s", &help)
	}
	c, err := parse(strings.Fields("--consume --brokers a:1,b:2 --topic t --provider p --provider-url https://x/y --endpoints e:1"), os.Getenv, &help)
	if err != nil || len(c.brokers) != 2 || c.letters != "t.dead" || c.etcd.Endpoints[0] != "e:1" || c.margin != 200*time.Millisecond {
		t.Errorf("%+v, %v", c, err)
	}
}
