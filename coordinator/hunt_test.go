//go:build load

package coordinator

import (
	"flag"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/test/mutant"
)

var hunted = flag.String("mutants", ".", "the mutants to run the tests against, by `name`, a regular expression")

func TestMutantsAreCaught(t *testing.T) {
	mutants.Matching(t, *hunted).Hunt(t,
		mutant.Suite{Package: "./coordinator", Limit: 40 * time.Second,
			Run: "Answers|Pages|DeadMember|Freshness|Writer|TurnsOut|OneSession|SeeEachOther|Ghost|Lazy|SessionsProblem|DeletedKey|LostLease|Compaction|TooLarge|OneBefore|JoinsAsNew|ListedAnew|AfterLeave|IsAnswered"},
		mutant.Suite{Package: "./internal/test/hours", Limit: 40 * time.Second, Run: "SlowAnswers|BackSoon"},
	)
}
