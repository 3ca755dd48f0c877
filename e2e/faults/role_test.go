//go:build e2e && linux

package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// The variables by which a process is told what it is to be.
const (
	roleVariable   = "QUOTIENT_E2E_ROLE"
	configVariable = "QUOTIENT_E2E_CONFIG"
)

// roles are the programs, by name.
var roles = map[string]func(config string) error{
	"member":   role(beMember),
	"instance": role(beInstance),
	"provider": role(beProvider),
}

func role[T any](run func(T) error) func(string) error {
	return func(text string) error {
		var c T
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return err
		}
		return run(c)
	}
}

func TestMain(m *testing.M) {
	etcdtest.RunIfMember()
	if name := os.Getenv(roleVariable); name != "" {
		if err := roles[name](os.Getenv(configVariable)); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
