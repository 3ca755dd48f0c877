package coordinator

import (
	"fmt"
	"strings"
	"testing"
)

// Who does not look at Join's error is told so, and not that a pointer is nil.
func TestASessionThatIsNoneSaysSo(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(s *Session){
		"Close": func(s *Session) { _ = s.Close() }, "Shutdown": func(s *Session) { _ = s.Shutdown(t.Context()) },
	} {
		for _, s := range []*Session{nil, {}} {
			func() {
				defer func() {
					if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "coordinator: "+name+" of a Session that is nil or empty: ") {
						t.Errorf("%s: %s", name, text)
					}
				}()
				call(s)
			}()
		}
	}
}
