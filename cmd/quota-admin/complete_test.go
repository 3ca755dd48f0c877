package main

import (
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	b := newBench(t, server)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if stdout, _ := b.want(exitDone, "completion", shell); !strings.Contains(stdout, "quota-admin") {
			t.Errorf("%s: %s", shell, stdout)
		}
	}
	b.want(exitDone, "set", "payments/charge", "5/s")
	b.want(exitDone, "set", "payments/refund", "5/s")
	b.want(exitDone, "set", "mail", "5/s")
	stdout, _ := b.want(exitDone, "__complete", "get", "pay")
	if want := "payments/charge\npayments/refund\n:4\n"; stdout != want {
		t.Errorf("got %q, want %q", stdout, want)
	}
	b.env["QUOTIENT_ENDPOINTS"] = closedPort(t)
	if stdout, _ = b.want(exitDone, "__complete", "get", "pay"); stdout != ":1\n" {
		t.Errorf("without etcd: got %q, want no names", stdout)
	}
}

// A shell is told the values of flags, and what stands in etcd.
func TestCompletionOfValues(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "20/s,500/h")
	b.want(exitDone, "set", "keyed", "20/s", "--keys", "5/s,70/h")
	b.want(exitDone, "keys", "set", "keyed", "installation-4711", "6/s", "--force")
	stdout, _ := b.want(exitDone, "get", "p", "-o", "yaml")
	_, rest, _ := strings.Cut(stdout, "\nrevision: ")
	revision, _, _ := strings.Cut(rest, "\n")
	for args, want := range map[string]string{
		"set p 5/s --outage ":      "hold\nstop\n:4\n",
		"top p --by ":              "instance\nclass\nkey\nlabel\n:4\n",
		"set p 5/s --if-revision ": revision + "\n:4\n",
		"budget p --limit ":        "500/h\n:4\n",
		"budget keyed --limit ":    "70/h\n:4\n",
		"budget keyed --key ":      "installation-4711\n:4\n",
		"budget p --keys-file ":    ":0\n",
		"list -o ":                 "table\nwide\njson\nyaml\n:4\n",
		"list --cacert ":           ":0\n",
		"list --user ":             ":4\n",
		"rollback p ":              revision + "\t20/s,500/h by ann@host\n:4\n",
		"history p --diff ":        revision + "\t20/s,500/h by ann@host\n:4\n",
		"explain p ":               ":4\n",
		"keys delete keyed ":       "installation-4711\n:4\n",
		"keys list keyed x":        ":4\n",
	} {
		if stdout, _ := b.want(exitDone, append([]string{"__complete"}, strings.Split(args, " ")...)...); stdout != want {
			t.Errorf("%s: %q, want %q", args, stdout, want)
		}
	}
}
