//go:build load

package coordinator

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/mutant"
)

func TestMutantsAreCaught(t *testing.T) {
	mutant.Hunt(t, mutants,
		mutant.Suite{Package: "./coordinator", Limit: 40 * time.Second,
			Run: "Answers|Pages|DeadMember|Freshness|Writer|TurnsOut|OneSession|SeeEachOther|Ghost|Lazy|SessionsProblem|DeletedKey|LostLease|Compaction"},
		mutant.Suite{Package: "./internal/longrun", Limit: 40 * time.Second, Run: "SlowAnswers|BackSoon"},
	)
}
