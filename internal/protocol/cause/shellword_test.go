package cause_test

import (
	"os/exec"
	"testing"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// A shell reads a key in a command of an error as the key.
func TestAShellReadsAKeyAsItIs(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"installation-4711", "a b", "it's", `$HOME "x" \n`, "-x", "é", "a;rm", "~"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+cause.ShellWord(key)).Output()
		if err != nil || string(out) != key {
			t.Errorf("%q is read as %q, %v", key, out, err)
		}
	}
}
