package commandline

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("tool", pflag.ContinueOnError)
	set.Usage = func() {}
	set.String("reason", "", "`why`")
	set.String("outage", "", "the rule: `hold|stop`")
	set.String("cert", "", "`file` of the certificate")
	set.BoolP("yes", "y", false, "do not ask")
	return set
}

func TestNear(t *testing.T) {
	for arg, want := range map[string]string{
		"--resaon": "; did you mean --reason?", "--outag": "; did you mean --outage?", "--ce": "; did you mean --cert?",
		"--nonsense": "", "-z": "", "--outage": "",
	} {
		set := flags()
		if got := Near(set, set.Parse([]string{arg})); got != want {
			t.Errorf("%s: %q, want %q", arg, got, want)
		}
	}
}

func TestComplete(t *testing.T) {
	for args, want := range map[string]string{
		"__complete --outage ": "hold\nstop\n:4\n",
		"__complete --reason ": ":4\n",
		"__complete --cert ":   ":0\n",
		"__complete --ou":      "--outage\tthe rule: `hold|stop`\n:4\n",
	} {
		var out bytes.Buffer
		asked, err := Complete("tool", flags(), strings.Split(args, " "), &out)
		if got := out.String(); !asked || err != nil || got != want {
			t.Errorf("%q: %v, %v, %q, want %q", args, asked, err, got, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		var out bytes.Buffer
		if asked, err := Complete("tool", flags(), []string{"completion", shell}, &out); !asked || err != nil || !strings.Contains(out.String(), "tool") {
			t.Errorf("%s: %v, %v, %d bytes", shell, asked, err, out.Len())
		}
	}
	if asked, _ := Complete("tool", flags(), []string{"--yes"}, nil); asked {
		t.Error("nobody asked")
	}
}
