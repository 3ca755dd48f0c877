package consumer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// A report has the uses by class once a call has a class of its own.
func TestAReportHasClasses(t *testing.T) {
	st := Status{Issued: 5, Refused: 2, IssuedBy: map[Class]int64{Default: 5}, RefusedOf: map[Class]int64{Default: 2}, WaitingBy: map[Class]int{Default: 7}}
	if got := st.reportedClasses(); got != nil {
		t.Errorf("all calls are of Default, and the report has %v", got)
	}
	st.WaitingBy[Critical] = 1
	if got := st.reportedClasses(); len(got) != 3 || got["critical"].Waiting != 1 {
		t.Errorf("a critical call waits, and the report has %v", got)
	}
	st = Status{Issued: 9, Refused: 4, IssuedBy: map[Class]int64{Default: 5, Critical: 4}, RefusedOf: map[Class]int64{Default: 2, Sheddable: 2}, WaitingBy: map[Class]int{}}
	want := map[string]protocol.ClassUse{"critical": {Issued: 4}, "default": {Issued: 5, Refused: 2}, "sheddable": {Refused: 2}}
	if diff := cmp.Diff(want, st.reportedClasses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
