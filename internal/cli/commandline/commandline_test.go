package commandline

import (
	"bytes"
	"errors"
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
	set.Duration("guard", 0, "")
	set.Int("n", 0, "")
	set.Uint64("u", 0, "")
	set.Float64("part", 0, "")
	set.Func("form", "", func(string) error { return errors.New("known are a and b") })
	set.BoolP("yes", "y", false, "do not ask")
	Gone(set, "forms", "leave it out")
	return set
}

func TestWrong(t *testing.T) {
	for arg, want := range map[string]string{
		"--resaon":   "unknown flag: --resaon; did you mean --reason?",
		"--outag":    "unknown flag: --outag; did you mean --outage?",
		"--ce":       "unknown flag: --ce; did you mean --cert?",
		"--gurad":    "unknown flag: --gurad; did you mean --guard?",
		"--nonsense": "unknown flag: --nonsense", "-z": "unknown shorthand flag: 'z' in -z",
		"--outage":  "flag needs an argument: --outage",
		"--guard=5": `--guard "5": write a number with its unit, as in 250ms, 3s or 1m`,
		"--n=x":     `--n "x": write a whole number`, "--u=-1": `--u "-1": write a whole number, not below 0`,
		"--yes=x":   `--yes "x": write true or false`,
		"--part=x":  `--part "x": write a number, as in 1.5`,
		"--form=x":  `--form "x": known are a and b`,
		"--forms=x": `--forms "x": it is gone: leave it out`, "--form_": "unknown flag: --form_; did you mean --form?",
	} {
		set := flags()
		if got := Wrong(set, set.Parse([]string{arg})); got != want {
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

// Each group keeps the order of its flags, and all are parsed together.
func TestGroups(t *testing.T) {
	var g Groups
	load := g.Add("Load", func(set *pflag.FlagSet) {
		set.Int("hot", 0, "`N` that call")
		set.Bool("even", false, "all call")
	})
	g.Add("Report", func(set *pflag.FlagSet) { set.Bool("a", false, "all of it") })
	if want := "\nLoad:\n      --hot N   N that call\n      --even    all call\n\nReport:\n      --a   all of it\n"; g.Usages() != want {
		t.Errorf("%q, want %q", g.Usages(), want)
	}
	set := g.Set("tool")
	if err := set.Parse([]string{"--a", "--hot", "3"}); err != nil || !load.Changed("hot") || load.Changed("even") || !set.Changed("a") {
		t.Error(err, load.Changed("hot"), load.Changed("even"), set.Changed("a"))
	}
}
