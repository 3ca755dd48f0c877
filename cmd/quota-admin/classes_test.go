package main

import (
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/quota"
)

func TestWhatClassesKeep(t *testing.T) {
	for text, want := range map[string]int64{"critical=10": 10, "critical=90%": 90, "critical=0": 0, "off": 0} {
		p := quota.Policy{Release: quota.Release{Critical: 7}}
		if set, err := parseClasses(text); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if set(&p); p.Critical != want {
			t.Errorf("%s keeps %d percent, want %d", text, p.Critical, want)
		}
	}
	for text, want := range map[string]string{"critical=91": "from 0 to 90", "critical": "from 0 to 90", "default=5": "critical calls only", "": "critical=PERCENT"} {
		if _, err := parseClasses(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
