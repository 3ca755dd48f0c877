package admin

import (
	"slices"
	"testing"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Processes of one host have its name. Operators see which is which.
func TestNamesAreToldApart(t *testing.T) {
	var all []protocol.InstanceStatus
	for _, id := range []string{"", ".Y4AB", "api.Z222", "web-1.AAAA7QXA", "web-1.BBBB3KKL", "web-2.CCCC"} {
		name := map[string]string{"api.Z222": "api", "web-1.AAAA7QXA": "web-1", "web-1.BBBB3KKL": "web-1", "web-2.CCCC": "web-2"}[id]
		all = append(all, protocol.InstanceStatus{Instance: protocol.Instance{ID: id, Name: name}})
	}
	tellApart(all)
	var names []string
	for i := range all {
		names = append(names, all[i].Instance.Name)
	}
	if want := []string{"", "", "api", "web-1 (7QXA)", "web-1 (3KKL)", "web-2"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
